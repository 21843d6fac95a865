"""report.html, ROOFLINE.md and verification.md: what they show of records, and how the page behaves in a browser."""

import re
import shutil

import pytest
from pictures import reference
from workflow_run import CHECKOUT

from roofline.core.formatting import duration, regime_text
from roofline.records.base import read
from roofline.records.operator_record import PredictionsRecord
from roofline.records.seal_records import PredictionRecord
from roofline.report.charts import build_roofline_chart
from roofline.report.pages import build_pages
from roofline.report.report_model import Source, build_report
from roofline.report.roofline_content import build_content
from roofline.run.archive import unpacked
from roofline.table.rows import Roofline

MOST_BYTES = 3_000_000
PARTS = ["the-roofline", "ceilings", "memory", "operators", "gpu-cpu", "predicted", "experts", "reproduce"]
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def shown():
    return build_pages(build_report(reference()))


@pytest.fixture(scope="module")
def html(shown):
    return shown["report.html"]


def test_the_page_has_its_parts_in_order_and_fetches_nothing(html):
    style, _, body = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL).partition("</style>")
    assert re.findall(r'<section[^>]* id="([^"]+)"', body) == PARTS and len(html.encode()) < MOST_BYTES
    links = re.findall(r'<[^>]* (?:src|href)="([^"]*)"', style + body)
    assert len(links) > 10 and all(re.fullmatch(r"#[\w-]+|[\w]+\.(png|svg|json|md)", link) for link in links)
    assert "@import" not in style and "url(" not in style


def test_the_written_report_has_a_bounded_length_and_seven_parts(shown):
    text = shown["ROOFLINE.md"]
    assert 1500 <= len(text.split()) <= 2500
    assert len(re.findall(r"^## \d", text, re.MULTILINE)) == 7
    assert len(re.findall(r"^\d\. \*\*", text, re.MULTILINE)) == 3
    assert not re.search(r"\{\{|None|nan\b", text)


def archived_table(name: str) -> Roofline:
    with unpacked(CHECKOUT / "reference" / name) as root:
        return read(Roofline, root / "results/roofline.json")


CARD_ROWS = ("ceilings", "operators", "sweeps", "energy_fits", "instructions", "counters", "checks")


@pytest.mark.parametrize(
    ("other", "named"), [("nvidia-h200", "NVIDIA H200"), ("nvidia-h100-80gb-hbm3", "of the same model")]
)
def test_two_cards_have_no_longer_a_report(other, named):
    first, second = (archived_table(name) for name in ("nvidia-h100-80gb-hbm3", other))
    moved = {name: [row for row in getattr(second, name) if row.device == "gpu0"] for name in CARD_ROWS}
    both = {
        name: [*getattr(first, name), *(row.model_copy(update={"device": "gpu1"}) for row in rows)]
        for name, rows in moved.items()
    }
    two = first.model_copy(update={**both, "devices": {**first.devices, "gpu1": second.devices["gpu0"]}})
    text = build_pages(build_report(two, Source("0" * 40, "https://example.org/roofline", ("replaced",)), {}))[
        "ROOFLINE.md"
    ]
    assert len(text.split()) <= 2500 and "gpu0 and gpu1, pass" in text
    assert f"gpu1, {named}" in text


def test_doubted_cells_are_crossed_in_the_chart():
    table = reference()
    doubted = [
        cell.model_copy(update={"doubt": "disturbed"}) for cell in table.operators if cell.operator == "row_norm"
    ]
    others = [cell for cell in table.operators if cell.operator != "row_norm"]
    runs = [table.model_copy(update={"operators": cells}) for cells in (others, doubted)]
    charts = [build_roofline_chart(run, build_content(run, "gpu0", run.operators)) for run in runs]
    crosses = [[trace for trace in chart["data"] if trace.get("meta", {}).get("kind") == "crossed"] for chart in charts]
    assert [sum(len(trace["x"]) for trace in traces) for traces in crosses] == [0, len(doubted)]


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # the tests of the words do without

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        path = next(filter(None, map(shutil.which, (*CHROMIUMS, playwright.chromium.executable_path))), None)
        if not path:
            pytest.skip("no Chromium on this machine: apt-get install chromium")
        chromium = playwright.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """A page in a window of some width, and what its console said."""

    def open_page(text: str, width: int = 1280, scheme: str = "light"):
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        messages: list[str] = []
        window.on("console", lambda message: messages.append(message.text))
        window.on("pageerror", lambda error: messages.append(str(error)))
        window.on("request", lambda request: messages.append(request.url) if request.url[:5] != "file:" else None)
        window.goto(file.as_uri())
        window.wait_for_selector("body[data-ready]")
        return window, messages

    return open_page


# Elements that reach beyond the window, or beyond a parent that hides what is over; tables scroll by themselves.
CUT = """() => [...document.querySelectorAll("body *")].filter(element => {
  if (element.closest(".table, pre, svg, script, style") || !element.getClientRects().length) return false;
  const box = element.getBoundingClientRect();
  return box.right > innerWidth + 1 || box.left < -1 || element.scrollWidth > element.clientWidth + 1
    && element.clientWidth > 0 && getComputedStyle(element).overflowX === "hidden";
}).map(element => element.outerHTML.slice(0, 100))"""
# Tables of cells that hide their time or their share to the right.
HIDDEN = """() => [...document.querySelectorAll(".heat td, #operators details th:nth-child(-n+4)")]
  .filter(element => element.getBoundingClientRect().right > innerWidth).length"""


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (420, "dark")])
def test_nothing_is_cut_or_complains(opened, html, width, scheme):
    window, messages = opened(html, width, scheme)
    window.evaluate("document.querySelectorAll('details').forEach(element => { element.open = true; })")
    assert messages == [] and window.locator(".chart .main-svg").count() == 6
    assert window.evaluate("document.documentElement.scrollWidth") <= width
    assert window.evaluate(CUT) == [] and window.evaluate(HIDDEN) == 0


@pytest.mark.browser
def test_what_if_moves_the_star_to_the_prediction_of_python(opened, finished_run):
    predictions = read(PredictionsRecord, finished_run.results / "cpu/predictions.json")
    seal = read(PredictionRecord, finished_run.results / "cpu/prediction.json")
    window, messages = opened((finished_run.results / "report.html").read_text(encoding="utf-8"))
    assert window.evaluate(f"{STAR}.x.length") == 1
    cells = [cell for cell in predictions.what_if if cell.dtype == "fp32"]
    for cell in cells[0], cells[len(cells) // 2], cells[-1]:
        chosen = {"dtype": cell.dtype, "batch": cell.shape["batch"], "seq_len": cell.shape["seq_len"]}
        words, place = window.evaluate(CHOOSE, chosen)
        predicted = cell.entry.predict(seal)
        assert duration(predicted.cpu_time_s) in words and regime_text(predicted.regime) in words
        intensity, rate = cell.entry.flops / cell.entry.bytes, cell.entry.flops / predicted.cpu_time_s / 1e9
        assert place == pytest.approx([intensity, rate])
    assert messages == []


STAR = """document.getElementById("roofline").data.find(trace => trace.meta?.kind === "what-if")"""
# Moves the sliders; returns the words of the choice and the star's place on the chart.
CHOOSE = """chosen => {
  for (const [key, value] of Object.entries(chosen)) {
    const slider = document.querySelector(`#what-if input[name=${key}]`);
    slider.value = whatIf.choices.find(choice => choice.key === key).values.indexOf(value);
    slider.dispatchEvent(new Event("input"));
  }
  const star = document.getElementById("roofline").data.find(trace => trace.meta?.kind === "what-if");
  return [document.querySelector("#what-if [role=status]").textContent, [star.x[0], star.y[0]]];
}"""
