"""RMSNorm and the product that follows it (docs/rmsnorm_matmul.md)."""

from roofline.operators.rmsnorm_matmul.operator import RmsNormMatmul

__all__ = ["RmsNormMatmul"]
