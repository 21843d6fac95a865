"""The colours of all pictures and pages."""

from roofline.devices.levels import TITLES

FAULT = "#b00020"
PAPER, GRID, SPINES, INK, MUTED, SHADE = "#ffffff", "#dfe2e6", "#aab0b8", "#22262b", "#646a73", "#eef0f2"
# Okabe and Ito's palette, safe for the colour-blind. A dtype has one colour, as a ceiling and as a dot.
DTYPE_COLOURS = {
    "fp64": "#009E73",
    "fp32": "#D55E00",
    "tf32": "#E69F00",
    "fp16": "#0072B2",
    "bf16": "#56B4E9",
    "fp8_e4m3": "#CC79A7",
    "int8": "#000000",
}
OTHER_DTYPE = "#777777"
# Of the instruction roofline.
LEVEL_COLOURS = {"l1": "#009E73", "shared": "#CC79A7", "l2": "#0072B2", "hbm": "#D55E00"}
LEVEL_NAMES = TITLES


# Of what has neither a dtype nor a level: implementations of an operator, levels of a sweep.
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#777777")


def dtype_colour(name: str) -> str:
    return DTYPE_COLOURS.get(name, OTHER_DTYPE)
