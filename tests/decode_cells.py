"""Cells of decode attention on weights made by hand, for tests of its implementations."""

import numpy

from roofline.core.dtypes import array_dtype
from roofline.operators.base import Case
from roofline.operators.decode_attention.attention_arithmetic import FP8, AttentionShape, project_query, query_dtype
from roofline.operators.decode_attention.operator import DecodeAttention

OPERATOR = DecodeAttention()
DTYPES = ("fp32", "fp16", "bf16")
FUSED_DTYPES = (*DTYPES, FP8)


def case_of(shape: AttentionShape, dtype: str, layers: int = 1) -> Case:
    return Case(shape.as_dict(), dtype, params={"layers": layers})


def cell_of(device, kind, shape: AttentionShape, dtype: str = "fp32", *, copies=1, layers=1, seed=3):
    """An implementation prepared on `copies` caches of made-up numbers."""
    random, size, as_dtype = numpy.random.default_rng(seed), shape.hidden_size, array_dtype(query_dtype(dtype))
    layer = {name: random.standard_normal((size, size), numpy.float32) / size**0.5 for name in ("query", "output")}
    layer |= {f"{name}_bias": random.standard_normal(size, numpy.float32) for name in ("query", "output")}
    layer = {name: device.to_device(weights).astype(as_dtype) for name, weights in layer.items()}
    hidden = device.to_device(random.standard_normal((shape.batch, size), numpy.float32)).astype(as_dtype)
    query = project_query(device, shape, hidden, layer)
    case = case_of(shape, dtype, layers)
    inputs = OPERATOR.rotated_inputs(device, case, seed, copies)
    cell = kind(OPERATOR, device, case, copies)
    cell.prepare({"layer": layer, "hidden": hidden, "query": query}, inputs)
    return cell
