"""Row normalisation: each row less its mean, divided by its standard deviation (docs/row_norm.md)."""

from roofline.operators.row_norm.operator import RowNorm

__all__ = ["RowNorm"]
