"""C = A B: what it counts, how it is computed on each kind of device, and the search for its fastest form."""

from roofline.operators.gemm.operator import Gemm, products_on

__all__ = ["Gemm", "products_on"]
