"""What our kernels execute by their own formulas."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.operators.base import Case
from roofline.operators.decode_attention import fused as attention
from roofline.operators.decode_attention.counts import Shape, flops
from roofline.operators.gemm.operator import Gemm, TensorMatmul
from roofline.operators.row_norm import cuda as row_norm
from roofline.operators.row_norm.operator import RowNorm

H200 = SimpleNamespace(multiprocessors=132, is_hopper=True)


@pytest.mark.parametrize(("rows", "columns", "counted"), [(16384, 1024, 312475648), (1024, 128, 3178496)])
def test_welfords_formula_is_what_ncu_counted(rows, columns, counted):
    """In the run of reference/nvidia-h200."""
    cell = row_norm.Welford(RowNorm(), H200, Case({"rows": rows, "columns": columns}, "fp32"))
    assert cell.executed_flops(None).flops["fp32"] == pytest.approx(counted, rel=0.02)


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.booleans())
def test_a_products_tiles_cover_it_and_no_more_than_one_tile_beyond(m, n, k, is_hopper):
    case = Case({"m": m, "n": n, "k": k}, "fp16")
    workload = SimpleNamespace(product=SimpleNamespace(library="tensor_matmul"))
    cell = TensorMatmul(Gemm(), SimpleNamespace(is_hopper=is_hopper, multiprocessors=132), case, workload)
    executed, _ = cell.executed_flops(None)
    assert 2 * m * n * k <= executed["tensor"] < 2 * (m + 256) * (n + 256) * (k + 64)


def test_a_whole_products_tiles_are_the_declared_flops():
    case = Case(dict.fromkeys(("m", "n", "k"), 4096), "fp16")
    workload = SimpleNamespace(product=SimpleNamespace(library="tensor_matmul"))
    assert TensorMatmul(Gemm(), H200, case, workload).executed_flops(None).flops == {"tensor": 2.0 * 4096**3}


def executed(shape: Shape, dtype: str) -> dict[str, float]:
    return attention.executed_flops(shape, dtype, attention.plan(shape, dtype, (9, 0), 132, 233472)).flops


@pytest.mark.parametrize(("dtype", "of_turn", "tile"), [("fp16", 278, 32), ("fp32", 147, 16)])
def test_attention_of_whole_tiles_is_each_lanes_turns_and_what_joins_them(dtype, of_turn, tile):
    """Instructions of a turn as sm_90a has them: FADD and FMUL once, FFMA twice; parts are joined for each place."""
    shape = Shape(256, 8, 8, 64, 1024)
    turns = 2048 * 1024 / tile * 32 * of_turn
    joined = 2048 * (64 * (1 + 6 * 16 + 10) + 3 * 128)
    assert executed(shape, dtype) == {"fp32": turns + joined}


@given(
    st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 16, 256]), st.integers(1, 5000), st.sampled_from([64, 128])
)
def test_attention_executes_no_less_than_is_declared(group, batch, seq_len, size):
    shape = Shape(batch, 8 * group, 8, size, seq_len)
    for dtype in ("fp16", "fp32"):
        assert sum(executed(shape, dtype).values()) >= flops(shape, "core")
