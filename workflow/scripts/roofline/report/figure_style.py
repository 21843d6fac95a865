"""What all pictures share: paper, colours, fonts, and files that are the same each time they are drawn."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axis import XAxis, YAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import Affine2D, Transform

# All of them, since pictures name them by this module.
from roofline.report.palette import FAULT, GRID, INK, MUTED, PAPER, SHADE, SPINES  # noqa: F401

FONT = "DejaVu Sans"
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 14.0, 8.0, 7.5
# Points: at 900 pixels a text of 8 points is 10 pixels high.
WIDTH, MARGIN, AXES_LEFT, LINE = 720.0, 14.0, 56.0, 11.0
DOT = 5.2
LEGEND_LINE = 12.0
DOUBT_NOTE = "*: do not rely on it."
Look = dict[str, Any]  # options of Matplotlib's plot or text
# Across a dot that is not to be relied on.
CROSSED: Look = {"marker": "x", "color": INK, "ls": "none", "ms": 8.0, "mew": 0.7, "zorder": 4.6}
STYLE_SHEET = Path(__file__).with_name("pictures.mplstyle")
# What follows from the constants above and from the palette; the rest is in the style sheet.
RC_PARAMS = matplotlib.rc_params_from_file(STYLE_SHEET, use_default_template=False) | {
    # Browsers without DejaVu Sans take a narrower font, so that labels which do not overlap here do not there.
    "font.family": [FONT, "sans-serif"],
    "font.size": TEXT_SIZE,
    "text.color": INK,
    "axes.edgecolor": SPINES,
    "axes.labelcolor": MUTED,
    "axes.titlesize": TEXT_SIZE + 1,
    "grid.color": GRID,
    **{f"{axis}tick.labelcolor": MUTED for axis in "xy"},
    **{f"{axis}tick.labelsize": SMALL_SIZE for axis in "xy"},
    "legend.labelspacing": (LEGEND_LINE - 1.17 * TEXT_SIZE) / TEXT_SIZE,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw with Matplotlib's defaults and ours, whatever the user's matplotlibrc says; a decorator too."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib.RcParams(RC_PARAMS))
        yield


def new_figure(height: float, title: str) -> Figure:
    """Return an empty figure without a window. It is laid out at 72 dots per inch, so that a pixel is a point."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
    figure.set_label(title)
    FigureCanvasAgg(figure)
    return figure


def new_titled_figure(height: float, title: str, lines: Sequence[str]) -> Figure:
    """Return a figure with a title and lines of text under it."""
    figure = new_figure(height, title)
    print_head(figure, height - MARGIN, title, lines)
    return figure


def new_empty_figure(title: str, words: str) -> Figure:
    """Return a figure that says why it shows nothing."""
    return new_titled_figure(62.0, title, [words])


def subplot_margins(height: float, top: float, bottom: float, right: float = MARGIN) -> dict[str, float]:
    """Return the margins of a grid of subplots in a figure of this height as Matplotlib wants them, from points."""
    return {"left": AXES_LEFT / WIDTH, "right": 1 - right / WIDTH, "top": 1 - top / height, "bottom": bottom / height}


class PanelRows(NamedTuple):
    """Rows of panels of one height below a title. All lengths are points."""

    head: float  # from the top of the figure to the first row
    panel: float  # the height of a panel
    row: float  # from the top of one row to the top of the next
    foot: float  # from the last row to the bottom of the figure

    def lay_out(self, title: str, caption: str, count: int, columns: int, gap: float = 0.17) -> tuple[Figure, GridSpec]:
        """Return a new figure with a title and a caption under it, and the places of its panels."""
        rows = -(-count // columns)
        height = self.head + self.row * (rows - 1) + self.panel + self.foot
        margins = subplot_margins(height, top=self.head, bottom=self.foot)
        figure = new_titled_figure(height, title, wrap_text(caption))
        return figure, figure.add_gridspec(rows, columns, **margins, hspace=self.row / self.panel - 1, wspace=gap)


def set_log_axis(axis: XAxis | YAxis, words: Callable[[float], str], **ticks: Any) -> None:
    """Make an axis logarithmic. `words` formats a value at a tick, `ticks` are options of Matplotlib's LogLocator."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set(major_locator=LogLocator(**ticks), minor_locator=NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def print_head(figure: Figure, top: float, title: str, lines: Sequence[str]) -> None:
    """Print a title whose upper edge is at this height in points, and lines of text under it."""
    title = shorten_middle(title, 0.85 * (WIDTH - 2 * MARGIN), TITLE_SIZE)  # bold is wider than it is measured
    figure.text(MARGIN, top - TITLE_SIZE, title, size=TITLE_SIZE, weight="bold", transform=in_points(figure))
    print_lines(figure, top - TITLE_SIZE - 15, lines)


def add_failures(figure: Figure, lines: Sequence[str]) -> Figure:
    """Print what failed above the title of a figure, and return the figure."""
    words = shorten_middle("; ".join(lines), WIDTH - 2 * MARGIN, SMALL_SIZE)
    print_lines(figure, 72 * figure.get_figheight() - 9.0, [words] if lines else [], FAULT)
    return figure


def print_lines(figure: Figure, height: float, lines: Sequence[str], colour: str = MUTED) -> None:
    """Print small lines from the left margin, with the first baseline at this height in points."""
    for place, line in enumerate(lines):
        figure.text(MARGIN, height - LINE * place, line, size=SMALL_SIZE, color=colour, transform=in_points(figure))


def in_points(figure: Figure | SubFigure) -> Transform:
    """Return the transform of points from the lower left corner of a figure."""
    return Affine2D().scale(1 / 72) + figure.dpi_scale_trans


@styled()
def save(figure: Figure, paths: Iterable[Path | str], dpi: float | None = None) -> None:
    """Write a figure to each path, as its suffix says, under the title that it carries as its label."""
    for path in map(Path, paths):
        metadata = {"Title": figure.get_label()} | ({"Date": None} if path.suffix == ".svg" else {})
        # two thirds of the usual 6's time, and files as small to within a few per cent
        packing: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if path.suffix == ".png" else {}
        figure.savefig(path, dpi=dpi or 72, metadata=metadata, **packing)


def add_legend(figure: Figure, top: float, handles: Sequence[Artist], columns: int) -> None:
    """Add a legend at the left margin, with its top at this height in points."""
    place, points = (MARGIN, top), in_points(figure)
    figure.legend(handles=handles, ncols=columns, loc="upper left", bbox_to_anchor=place, bbox_transform=points)


def legend_line(words: str, colour: str = MUTED, width: float = 1.2, dashes: Any = "-") -> Line2D:
    """Return a line as an entry of a legend."""
    return Line2D([], [], color=colour, lw=width, ls=dashes, label=words)


def legend_dot(words: str, colour: str = INK, marker: str = "o", hollow: bool = False) -> Line2D:
    """Return a dot as an entry of a legend."""
    return Line2D([], [], **dot_style(colour, marker, hollow), label=words)


def dot_style(colour: str, marker: str, hollow: bool = False, size: float = DOT) -> Look:
    """Return the options of Matplotlib's plot that draw a dot of this size in points."""
    edge, width = (colour, 0.16 * size) if hollow else (PAPER, 0.5)
    face = PAPER if hollow else colour
    return {"color": colour, "marker": marker, "ms": size, "mfc": face, "mec": edge, "mew": width, "ls": "none"}


def crossed_entry() -> Line2D:
    """Return the entry of a legend that explains a crossed dot."""
    return Line2D([], [], **CROSSED, label="crossed: not to be relied on")


def mix_colours(colour: str, second_colour: str, share: float) -> str:
    """Return a mixture of two colours; `share` is that of the second."""
    pairs = zip(to_rgb(colour), to_rgb(second_colour), strict=True)
    return to_hex([(1 - share) * a + share * b for a, b in pairs])  # type: ignore[arg-type]  # three, as to_rgb returns


def wrap_text(text: str, width: float = WIDTH - 2 * MARGIN) -> list[str]:
    """Return the lines of a small text that fit a width in points."""
    return textwrap.wrap(text, max(1, int(width / (0.56 * SMALL_SIZE))))


def shorten_middle(text: str, width: float, size: float) -> str:
    """Return a text, without its middle where it is wider than so many points."""
    length, short = len(text), text
    while length > 1 and measure_text(short, size) > width:
        length -= 1
        tail = length // 3
        short = text[: length - tail].rstrip() + "…" + text[len(text) - tail :].lstrip()
    return short


def measure_text(text: str, size: float) -> float:
    """Return the width of a text in points."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(family=FONT, size=size), ismath=False)[0]
