"""Colours and markers, the same in every picture and on every page."""

from collections.abc import Hashable, Iterable
from itertools import cycle

FAULT = "#b00020"
PAPER, GRID, SPINES, INK, MUTED, SHADE = "#ffffff", "#dfe2e6", "#aab0b8", "#22262b", "#646a73", "#eef0f2"
# Okabe and Ito's palette, safe for the colour-blind, with Tol's wine instead of a second blue.
DTYPE_COLOURS = {
    "fp64": "#009E73",
    "fp32": "#D55E00",
    "tf32": "#E69F00",
    "fp16": "#0072B2",
    "bf16": "#882255",
    "fp8_e4m3": "#CC79A7",
    "fp8_block": "#56B4E9",
    "int8": "#000000",
}
OTHER_DTYPE = "#777777"
# Levels whose transactions the instruction roofline shows.
LEVEL_COLOURS = {"l1": "#009E73", "shared": "#CC79A7", "l2": "#0072B2", "hbm": "#D55E00"}
# Implementations of an operator, and levels of a sweep.
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#777777")
MARKERS = "oDs^vPXph*"
# Of operators and implementations that most runs have, so that they look the same on every card.
FIXED_MARKERS = {
    "GEMM, cupy.matmul": "o",
    "GEMM, cuBLASLt": "D",
    "GEMM, tensor_matmul": "h",
    "GEMM, numpy.matmul": "o",
    "decode attention, fused_graph": "s",
    "decode attention, eager": "P",
    "decode attention, numpy": "s",
    "RMSNorm + matmul, waiting, fused_graph": "^",
    "row normalisation, welford_graph": "v",
}
# The same shapes, as Plotly names them.
SYMBOLS = ["circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x", "pentagon", "hexagon", "star"]


def dtype_colour(name: str) -> str:
    """Return the colour of a dtype, the same for a name that is not known."""
    return DTYPE_COLOURS.get(name, OTHER_DTYPE)


def markers_of_kinds(kinds: Iterable[str]) -> dict[str, str]:
    """Return a marker for each kind of dot: its fixed one, else one that no fixed one of these is."""
    distinct = list(dict.fromkeys(kinds))
    fixed = {kind: FIXED_MARKERS[kind] for kind in distinct if kind in FIXED_MARKERS}
    free = [marker for marker in MARKERS if marker not in fixed.values()]
    return fixed | assign_in_turn((kind for kind in distinct if kind not in fixed), free)


def assign_in_turn(keys: Iterable[Hashable], looks: Iterable[str] = MARKERS) -> dict:
    """Return a marker, or another of these looks, for each key, in their order; after the last the first follows."""
    return dict(zip(dict.fromkeys(keys), cycle(looks), strict=False))
