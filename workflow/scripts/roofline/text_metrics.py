"""How wide a text is, in points, and how to make one fit: by font metrics, so that every format agrees."""

from __future__ import annotations

from functools import cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

FONT = "DejaVu Sans"


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    font = FontProperties(family=FONT, size=size, weight=weight)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def shortened(text: str, width: float, size: float) -> str:
    """The text, without its middle where it is too wide."""
    keep, short = len(text), text
    while keep > 1 and text_width(short, size) > width:
        keep -= 1
        short = text[: keep - keep // 3].rstrip() + "…" + text[len(text) - keep // 3 :].lstrip()
    return short


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Lines that fit. A no-break space breaks no line; a word that is too wide loses its middle."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(shortened(word, width, size))
    return lines
