"""How wide a text is, in points, and how to make one fit: by font metrics, so that every format agrees."""

from __future__ import annotations

from functools import cache
from itertools import zip_longest

from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font, Kerning, LoadFlags

FONT = "DejaVu Sans"
SCALE = 100.0  # points, at which glyphs are measured


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    pairs = zip_longest(text, text[1:])
    return size / SCALE * sum(_advance(character, following, weight) for character, following in pairs)


@cache
def _advance(character: str, following: str | None, weight: str) -> float:
    """From one character to the one that follows, kerned: laying out whole texts takes a hundred times as long."""
    font = _font(weight)
    width = font.load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536
    if following is None:
        return width
    pair = font.get_char_index(ord(character)), font.get_char_index(ord(following))
    return width + font.get_kerning(*pair, Kerning.UNFITTED) / 64


@cache
def _font(weight: str) -> FT2Font:
    font = FT2Font(findfont(FontProperties(family=FONT, weight=weight)))
    font.set_size(SCALE, 72)
    return font


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
