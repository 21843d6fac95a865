"""Fused decode attention on a real card (pytest -m gpu): right in every shape, and as fast as what it claims."""

import numpy
import pytest
from decode_cells import FUSED_DTYPES, cell_of
from fake_gpu import real_gpu

from roofline.core.dtypes import array_dtype
from roofline.operators.decode_attention.attention_arithmetic import (
    AttentionShape,
    cached_head,
    query_dtype,
    reference_attention,
    worst_head_error,
)
from roofline.operators.decode_attention.fused_attention import HEAD_SIZES, FusedAttention, FusedAttentionGraph

pytestmark = pytest.mark.gpu

TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2, "fp8_e4m3": 2e-3}
GROUPS = (1, 2, 3, 4, 8, 12)


@pytest.fixture
def device():
    return real_gpu()


def worst_error(device, cell, steps=2) -> float:
    """The worst head of the whole batch against float64 of the same rounded inputs, after a few steps."""
    step = cell.step("core")
    for index in range(steps):
        result = step(index)
    device.synchronize()
    assert result.dtype == array_dtype(query_dtype(cell.case.dtype))
    copy = cell.copies[(steps - 1) % len(cell.copies)]
    heads = numpy.ndindex(copy["keys"].shape[:2])
    cached = [[cached_head(device, copy, name, *head) for name in ("keys", "values")] for head in heads]
    keys, values = numpy.moveaxis(numpy.array(cached), 1, 0).reshape(2, *copy["keys"].shape)
    expected = reference_attention(device.to_host(cell.query), keys, values)
    return worst_head_error(device.to_host(result).astype(numpy.float64), expected)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("dtype", FUSED_DTYPES)
def test_right_for_every_dtype_head_size_group_and_length(device, dtype, head_size, group):
    shapes = [AttentionShape(2, 2 * group, 2, head_size, seq_len) for seq_len in (1, 2, 17, 127, 128, 129, 1000, 4097)]
    if head_size == 64 and group in (1, 4):  # large batches and long sequences
        large = [(1, 131_072), (1024, 33), (37, 2049), (300, 700)]
        shapes += [AttentionShape(batch, 2 * group, 2, 64, seq_len) for batch, seq_len in large]
    for shape in shapes:
        assert worst_error(device, cell_of(device, FusedAttention, shape, dtype)) < TOLERANCE[dtype], shape


@pytest.mark.parametrize("dtype", FUSED_DTYPES)
@pytest.mark.parametrize("copies", [3, 7])
@pytest.mark.parametrize(("batch", "seq_len"), [(1, 128), (1, 1024), (40, 700), (2, 5000)])
def test_a_graph_computes_what_launches_do(device, dtype, copies, batch, seq_len):
    shape = AttentionShape(batch, 8, 2, 64, seq_len)
    launched = cell_of(device, FusedAttention, shape, dtype, copies=copies)
    expected = [device.to_host(launched.step("core")(index)).copy() for index in range(copies)]
    graph = cell_of(device, FusedAttentionGraph, shape, dtype, copies=copies, layers=7)
    assert len(graph.graphs) == {3: 3, 7: 1}[copies] and graph.per_call == 7  # 21 layers go through 3 caches in turn
    graph.poison()
    step = graph.step("core")
    for index in range(20):
        assert (device.to_host(step(index)) == expected[(7 * (index + 1) - 1) % copies]).all()
