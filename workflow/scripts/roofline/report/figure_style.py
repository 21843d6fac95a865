"""What all pictures share: paper, colours, fonts, and files that are the same each time they are drawn."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import Affine2D, Transform

# All of them, since pictures name them by this module.
from roofline.report.palette import FAULT, GRID, INK, MUTED, PAPER, SHADE, SPINES  # noqa: F401

FONT = "DejaVu Sans"
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 14.0, 8.0, 7.5
WIDTH, MARGIN, LEFT, LINE = 720.0, 14.0, 56.0, 11.0  # points: at 900 pixels a text of 8 points is 10 pixels high
DOT = 5.2
LEGEND_LINE = 12.0
# Across a figure that is not to be relied on.
CROSSED = {"marker": "x", "color": INK, "ls": "none", "ms": 8.0, "mew": 0.7, "zorder": 4.6}
STYLE = {
    # Browsers without DejaVu Sans take a narrower font, so that labels which do not overlap here do not there.
    "font.family": [FONT, "sans-serif"],
    "font.size": TEXT_SIZE,
    "text.color": INK,
    "text.hinting": "none",
    "text.parse_math": False,
    "axes.edgecolor": SPINES,
    "axes.labelcolor": MUTED,
    "axes.titlelocation": "left",
    "axes.titlesize": TEXT_SIZE + 1,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    **{f"{axis}tick.{key}": 0 for axis in "xy" for key in ("major.size", "minor.size")},
    **{f"{axis}tick.labelcolor": MUTED for axis in "xy"},
    **{f"{axis}tick.labelsize": SMALL_SIZE for axis in "xy"},
    "legend.frameon": False,
    "legend.borderpad": 0.0,
    "legend.labelspacing": (LEGEND_LINE - 1.17 * TEXT_SIZE) / TEXT_SIZE,
    "legend.borderaxespad": 0.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "roofline",
}


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's matplotlibrc says; a decorator too."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def new_figure(height: float, title: str) -> Figure:
    """Without a window. At 72 dots per inch, at which it is laid out, a pixel is a point."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
    figure.set_label(title)
    FigureCanvasAgg(figure)
    return figure


def new_titled_figure(height: float, title: str, lines: Sequence[str]) -> Figure:
    """Paper with a title and lines of text under it."""
    figure = new_figure(height, title)
    print_head(figure, height - MARGIN, title, lines)
    return figure


def new_empty_figure(title: str, words: str) -> Figure:
    """Paper that says why it shows nothing."""
    return new_titled_figure(62.0, title, [words])


def subplot_margins(height: float, top: float, bottom: float, right: float = MARGIN) -> dict[str, float]:
    """Of a grid of subplots on paper of this height, from points."""
    return {"left": LEFT / WIDTH, "right": 1 - right / WIDTH, "top": 1 - top / height, "bottom": bottom / height}


def set_log_axis(axis: Axis, words: Callable[[float], str], **ticks) -> None:
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set(major_locator=LogLocator(**ticks), minor_locator=NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def print_head(figure: Figure, top: float, title: str, lines: Sequence[str]) -> None:
    title = shorten_middle(title, 0.85 * (WIDTH - 2 * MARGIN), TITLE_SIZE)  # bold is wider than it is measured
    figure.text(MARGIN, top - TITLE_SIZE, title, size=TITLE_SIZE, weight="bold", transform=in_points(figure))
    print_lines(figure, top - TITLE_SIZE - 15, lines)


def add_failures(figure: Figure, lines: Sequence[str]) -> Figure:
    """The figure with what failed above its title."""
    words = shorten_middle("; ".join(lines), WIDTH - 2 * MARGIN, SMALL_SIZE)
    print_lines(figure, 72 * figure.get_figheight() - 9.0, [words] if lines else [], FAULT)
    return figure


def print_lines(figure: Figure, y: float, lines: Sequence[str], colour: str = MUTED) -> None:
    """Small print from the left margin, the first of its baselines at this height."""
    for i, line in enumerate(lines):
        figure.text(MARGIN, y - LINE * i, line, size=SMALL_SIZE, color=colour, transform=in_points(figure))


def in_points(figure: Figure) -> Transform:
    return Affine2D().scale(1 / 72) + figure.dpi_scale_trans


@styled()
def save(figure: Figure, paths: Iterable[Path | str], dpi: float | None = None) -> None:
    """Write a figure to each path, as its suffix says, under the title that it carries as its label."""
    title = figure.get_label()
    for path in map(Path, paths):
        metadata = {"Title": title} | ({"Date": None} if path.suffix == ".svg" else {})
        # two thirds of the usual 6's time, and files as small to within a few per cent
        packing = {"pil_kwargs": {"compress_level": 3}} if path.suffix == ".png" else {}
        figure.savefig(path, dpi=dpi or 72, metadata=metadata, **packing)


def add_legend(figure: Figure, top: float, handles: Sequence[Artist], columns: int) -> None:
    """At the left margin, with its top at a height in points."""
    place = {"loc": "upper left", "bbox_to_anchor": (MARGIN, top), "bbox_transform": in_points(figure)}
    figure.legend(handles=handles, ncols=columns, **place)


def legend_line(words: str, colour: str = MUTED, width: float = 1.2, dashes: Any = "-") -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], color=colour, lw=width, ls=dashes, label=words)


def legend_dot(words: str, colour: str = INK, marker: str = "o", hollow: bool = False, size: float = DOT) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], **dot_style(colour, marker, hollow, size), label=words)


def dot_style(colour: str, marker: str, hollow: bool = False, size: float = DOT) -> dict:
    edge, width = (colour, 0.16 * size) if hollow else (PAPER, 0.5)
    face = PAPER if hollow else colour
    return {"color": colour, "marker": marker, "ms": size, "mfc": face, "mec": edge, "mew": width, "ls": "none"}


def crossed_entry() -> Line2D:
    return Line2D([], [], **CROSSED, label="crossed: not to be relied on")


def mix_colours(colour: str, other: str, share: float) -> str:
    return to_hex([(1 - share) * a + share * b for a, b in zip(to_rgb(colour), to_rgb(other), strict=True)])


def wrap_text(text: str, width: float = WIDTH - 2 * MARGIN, size: float = SMALL_SIZE) -> list[str]:
    """Lines that fit."""
    return textwrap.wrap(text, max(1, int(width / (0.56 * size))))


def shorten_middle(text: str, width: float, size: float) -> str:
    """The text, without its middle where it is too wide."""
    keep, short = len(text), text
    while keep > 1 and measure_text(short, size) > width:
        keep -= 1
        short = text[: keep - keep // 3].rstrip() + "…" + text[len(text) - keep // 3 :].lstrip()
    return short


def measure_text(text: str, size: float) -> float:
    return text_to_path.get_text_width_height_descent(text, FontProperties(family=FONT, size=size), ismath=False)[0]
