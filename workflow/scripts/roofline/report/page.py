"""report.html and ROOFLINE.md: the same story as a page that needs nothing beside it, and as Markdown."""

from importlib.util import find_spec
from pathlib import Path

import jinja2
from markupsafe import Markup

from roofline.report.charts import SYMBOLS, colour
from roofline.report.markdown import with_code
from roofline.report.story import Story

TEMPLATES = Path(__file__).parent / "templates"
STYLE, SCRIPT = "report.css.j2", "report.js.j2"  # parts of report.html.j2
SIGNS = dict(zip(SYMBOLS, "●◆■▲▼★✚✖⬟⬢", strict=True))  # as text


def html(story: Story) -> str:
    environment = _environment(autoescape=True)
    return environment.get_template("report.html.j2").render(
        story=story, plotly=Markup(plotly()), style=_part(STYLE), script=_part(SCRIPT), charts=_charts(story)
    )


def markdown(story: Story) -> str:
    return _environment(autoescape=False).get_template("ROOFLINE.md.j2").render(story=story)


def plotly() -> str:
    """plotly.js whole, from the Python package: 4.8 MB. The package carries no smaller bundle."""
    package = Path(find_spec("plotly").origin).parent  # importing it would take half a second
    return (package / "package_data" / "plotly.min.js").read_text(encoding="utf-8").replace("</script", "<\\/script")


def _environment(autoescape: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=(lambda value: with_code(value) if type(value) is str else value) if autoescape else None,
    )
    environment.filters |= {"colour": colour, "sign": SIGNS.get}
    return environment


def _part(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _charts(story: Story) -> dict[str, dict]:
    """By the id of the element that each is drawn in."""
    found = {"roofline": story.roofline_chart, "predictions": story.prediction_chart, "load": story.load_chart}
    found |= {f"{part.anchor}-chart": part.chart for part in story.operators}
    found |= {one.anchor: one.chart for one in story.instructions}
    return {name: chart for name, chart in found.items() if chart}
