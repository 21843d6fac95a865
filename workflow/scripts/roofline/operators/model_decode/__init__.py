"""One decode step of a whole dense model by a chain of our kernels in one CUDA graph."""

from roofline.operators.model_decode.operator import ModelDecode

__all__ = ["ModelDecode"]
