"""The size along which an operator is swept."""

from typing import NamedTuple

BYTES = "bytes"


class Axis(NamedTuple):
    key: str  # of the shape, or bytes: those that a step moves
    symbol: str
    at_least: int | None = None  # values that acceptance asks for
