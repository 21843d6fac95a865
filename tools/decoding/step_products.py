"""The products of a decode step: the library's kernels with an epilogue of the step (kernels/step_epilogue.cuh)."""

from pathlib import Path

from roofline.api import product_kernel as products

KERNELS = Path(__file__).parent / "kernels"
SOURCES = {name: KERNELS / f"step_{name}.cu" for name in products.KERNELS}
QKV, ADDED, GATED, NONE = range(4)  # as step_epilogue.cuh numbers them
SIZES = (*((name, "i4") for name in ("heads", "key_heads", "context", "parts")), ("eps", "f4"))
CACHE_TENSORS = ("keys", "values", "keys_scales", "values_scales")
NORM_TENSORS = ("query_norm", "key_norm", "norm")  # the weights of norms
TENSORS = ("y", "stream", "g", "squares", "next_squares", *CACHE_TENSORS, "turns", "bias", *NORM_TENSORS)


def step_epilogue(kind: int, head_size: int, *, norms: bool, bias: bool, fp8_cache: bool) -> products.Epilogue:
    """Return the epilogue QKV, ADDED, GATED or NONE.

    With QKV, queries and keys of heads are normalised where `norms` is set, a bias is added where `bias` is, and keys
    and values are written as FP8 where `fp8_cache` is.
    """
    flags = {"HEAD_NORMS": norms and kind == QKV, "BIAS": bias, "FP8_CACHE": fp8_cache}
    macros = {"EPILOGUE": kind, "HEAD_SIZE": head_size, **flags}
    return products.Epilogue(SOURCES, SIZES, TENSORS, tuple((name, int(value)) for name, value in macros.items()))
