"""y = (x / sqrt(mean(x^2) + eps) * g) W^T, of x [batch, hidden], g [hidden] and W [hidden, hidden], stored [outputs,
inputs].

FLOPs 2 x batch x hidden^2 of the product, and 4 x batch x hidden of the norm: a multiply-add of the squares, the
factor, and g. Bytes: W, x, g and y once each.
"""

from roofline.core.dtypes import ITEM_BYTES

EPS = 1e-6
MOST_WEIGHTS = 1 << 21  # that a check multiplies in float64: of more, some outputs are compared


def flops(batch: int, hidden: int) -> int:
    return 2 * batch * hidden**2 + 4 * batch * hidden


def traffic_bytes(batch: int, hidden: int, dtype: str) -> int:
    return (hidden**2 + 2 * batch * hidden + hidden) * ITEM_BYTES[dtype]


def normalised(x, g, eps: float = EPS):
    """x / sqrt(mean(x^2) + eps) * g, row by row, in the dtype of the arrays."""
    return x / ((x * x).mean(axis=-1, keepdims=True) + eps) ** 0.5 * g


def reference(x, w, g, eps: float = EPS):
    """In float64, of these rounded inputs; of some rows of W the outputs that they give."""
    x, w, g = (array.astype("float64") for array in (x, w, g))
    return normalised(x, g, eps) @ w.T


def compared_outputs(hidden: int) -> slice:
    """All outputs; of a large W every n-th. The step is odd: it meets every place of a block's outputs."""
    return slice(None, None, -(-(hidden**2) // MOST_WEIGHTS) | 1)
