"""Decode attention in NumPy, on all cores of the CPU and by the eager implementation, against loops of our own."""

import itertools
import math

import numpy
import pytest
from decode_cells import DTYPES, OPERATOR, cell_of
from fake_gpu import open_gpu
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import array_dtype
from roofline.devices import discovery
from roofline.operators.base import Case
from roofline.operators.decode_attention.attention_arithmetic import AttentionShape, worst_head_error
from roofline.operators.decode_attention.eager_attention import EagerAttention
from roofline.operators.decode_attention.numpy_attention import NumpyAttention

KINDS = [EagerAttention, NumpyAttention]
SCOPES = ("core", "block")
# For a head and for a block: on all cores the result is rounded once. Eager also rounds the scaled query and what lies
# between its operations.
ROUNDED_ONCE = {"fp32": 2e-6, "fp16": 2.0**-11, "bf16": 2.0**-8}
TOLERANCE = {
    (NumpyAttention, "core"): ROUNDED_ONCE,
    (NumpyAttention, "block"): ROUNDED_ONCE,
    (EagerAttention, "core"): {"fp32": 2e-6, "fp16": 2.0**-8, "bf16": 2.0**-6},
    (EagerAttention, "block"): {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2},
}


@pytest.fixture(scope="module")
def cpu():
    return discovery.open_device("cpu")


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    return request.param


@pytest.fixture
def device(kind, cpu, monkeypatch):
    """The device that the implementation is for; eager runs on NumPy in CuPy's place."""
    return cpu if kind.kind == "cpu" else open_gpu(monkeypatch)


def loops(query, keys, values):
    """Softmax(K q / sqrt(d)) V in float64, with the sums written out."""
    query, keys, values = (numpy.array(array, numpy.float64) for array in (query, keys, values))
    result = numpy.empty_like(query)
    group = query.shape[1] // keys.shape[1]
    for b, h in itertools.product(*map(range, query.shape[:2])):
        scores = [math.fsum(key * query[b, h]) / math.sqrt(query.shape[2]) for key in keys[b, h // group]]
        largest = max(scores)
        weights = [math.exp(score - largest) for score in scores]
        total = math.fsum(weights)
        result[b, h] = numpy.einsum("s,sd->d", numpy.array(weights) / total, values[b, h // group])
    return result


def shape_of(batch=1, seq_len=17, heads=2, kv_heads=None, head_size=8):
    return AttentionShape(batch, heads, kv_heads or heads, head_size, seq_len)


def core(cell, index=0):
    return numpy.array(cell.step("core")(index), numpy.float64)


def worst_of(cell, index=0):
    return worst_head_error(core(cell, index), loops(cell.query, *cell.caches[index % len(cell.caches)]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [shape_of(1, 1, 4, 4), shape_of(3, 128, 4, 2), shape_of(2, 301, 4, 4, 64)],
    ids=lambda shape: "-".join(map(str, shape.as_dict().values())),
)
def test_core_and_block_against_loops(device, kind, dtype, shape):
    cell = cell_of(device, kind, shape, dtype)
    assert worst_of(cell) < TOLERANCE[kind, "core"][dtype]
    size = shape.head_size
    weights = {name: numpy.array(array, numpy.float64) for name, array in cell.shared["layer"].items()}
    projected = numpy.array(cell.hidden, numpy.float64) @ weights["query"] + weights["query_bias"]
    query = numpy.stack([projected[:, h * size : (h + 1) * size] for h in range(shape.heads)], axis=1)
    joined = numpy.concatenate(list(loops(query, *cell.caches[0]).swapaxes(0, 1)), axis=1)
    expected = joined @ weights["output"] + weights["output_bias"]
    result = numpy.array(cell.step("block")(0), numpy.float64)
    error = numpy.linalg.norm(result - expected) / numpy.linalg.norm(expected)
    assert error < TOLERANCE[kind, "block"][dtype] * (1 if size == 8 else 3)
    for scope, sizes in (("core", (shape.batch, shape.heads, size)), ("block", (shape.batch, shape.hidden_size))):
        result = cell.step(scope)(0)
        assert result.shape == sizes and result.dtype == array_dtype(dtype)
        check, _ = OPERATOR.check(cell, scope)
        assert check.relative_error <= check.tolerance == kind.tolerance[dtype]


def test_fp8_is_skipped_with_the_reason(device, kind):
    case = Case({"batch": 1}, "fp8_e4m3")
    assert "FP8" in kind.unsupported(device, case) and not OPERATOR.notes(device, case)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_wrong_result_fails_the_job(device, monkeypatch, kind, scope):
    cell = cell_of(device, kind, shape_of(batch=3), "fp16")
    OPERATOR.check(cell, scope)
    right = cell.step(scope)

    def one_head_of_the_last_sequence_is_wrong(index):
        result = right(index)
        result[-1].reshape(-1)[:8] *= 1.1
        return result

    monkeypatch.setattr(cell, "step", lambda scope: one_head_of_the_last_sequence_is_wrong)
    with pytest.raises(ArithmeticError, match=f"decode_attention, {kind.name} {scope}, .*fp16 batch 3"):
        OPERATOR.check(cell, scope)


@given(
    st.builds(
        lambda b, kv, group, d, s: AttentionShape(b, kv * group, kv, d, s), *[st.integers(1, 40) for _ in range(5)]
    ),
    st.sampled_from(DTYPES),
)
def test_work_and_traffic_by_hand(shape, dtype):
    case, item = Case(shape.as_dict(), dtype), array_dtype(dtype).itemsize
    hidden = shape.heads * shape.head_size
    flops = 4 * shape.batch * shape.heads * shape.seq_len * shape.head_size
    moved = 2 * shape.batch * shape.kv_heads * shape.seq_len * shape.head_size * item
    assert (OPERATOR.flops(case, "core"), OPERATOR.bytes(case, "core")) == (flops, moved)
    assert OPERATOR.flops(case, "block") == flops + 4 * shape.batch * hidden**2
    assert OPERATOR.bytes(case, "block") == moved + 2 * hidden**2 * item
