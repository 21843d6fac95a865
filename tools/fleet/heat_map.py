"""The heat map of a fleet: runs of cards by ceilings, in percent of the median."""

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Rectangle
from outliers import Fleet

from roofline.api import figure_style as style

LABELS, NAMES, HEAD, FEET = 190.0, 88.0, 34.0, 4.0  # points: at most of rows, of columns, above and below
BETTER = "#0072B2"
READABLE, HIGH = 80, 880.0  # rows with words and figures; the height of more of them
LOWEST, HIGHEST, STRONG = 80.0, 120.0, 14.0  # percent in the strongest colours; off 100, where words are white
TITLE = "Ceilings of each card, in % of the fleet's median"
MARKS = "Framed: slow. In brackets: not to be relied on, and not judged. Empty: not measured."


@style.styled()
def draw_heat_map(fleet: Fleet) -> Picture:
    """Draw a row for each run of a card, and a column for each figure."""
    rows, figures = fleet.rows, fleet.figures
    readable = len(rows) <= READABLE
    row_height = style.LINE if readable else HIGH / len(rows)
    whole = 2 * style.MARGIN + HEAD + NAMES + row_height * len(rows) + FEET
    title = f"{TITLE}: {fleet.cards} × {fleet.model}"
    picture = style.new_titled_figure(whole, title, style.wrap_text(MARKS))
    place = style.subplot_margins(whole, top=style.MARGIN + HEAD + NAMES, bottom=style.MARGIN + FEET)
    names = [style.shorten_middle(row.name, LABELS, style.SMALL_SIZE) for row in rows]
    widest = max(style.measure_text(name, style.SMALL_SIZE) for name in names)
    place["left"] = (style.MARGIN + 6 + widest) / style.WIDTH
    axes = picture.add_subplot(picture.add_gridspec(1, 1, **place)[0])
    colours = LinearSegmentedColormap.from_list("shares", [style.FAULT, style.PAPER, BETTER], bad=style.SHADE)
    shares = [[100 * row.of_median.get(figure.key, float("nan")) for figure in figures] for row in rows]
    axes.imshow(shares, cmap=colours, vmin=LOWEST, vmax=HIGHEST, aspect="auto", interpolation="nearest")
    slow = {(outlier.card, outlier.figure) for outlier in fleet.outliers}
    look = {"size": 5.5, "ha": "center", "va": "center_baseline"}
    for y, row in enumerate(rows):
        for x, figure in enumerate(figures):
            if (row.card, figure.key) in slow:
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, ec=style.INK, lw=1.0))
            if readable and figure.key in row.of_median:
                words = f"{shares[y][x]:.0f}"
                colour = style.PAPER if abs(shares[y][x] - 100) > STRONG else style.INK
                axes.text(x, y, f"({words})" if figure.key in row.not_judged else words, color=colour, **look)
    failing = {card for card, _ in slow}
    labelled = [y for y, row in enumerate(rows) if readable or row.card in failing]
    axes.set_yticks(labelled, [names[y] for y in labelled])
    axes.set_xticks(range(len(figures)), [figure.name for figure in figures], rotation=90)
    axes.xaxis.tick_top()
    axes.grid(False)
    return picture
