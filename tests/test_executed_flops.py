"""What our kernels execute by their own formulas."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from roofline.operators.base import Case
from roofline.operators.decode_attention.attention import Shape, flops
from roofline.operators.decode_attention.fused import Fused
from roofline.operators.decode_attention.operator import DecodeAttention
from roofline.operators.gemm.operator import Gemm, TensorMatmul


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.booleans())
def test_a_products_tiles_cover_it_and_no_more_than_one_tile_beyond(m, n, k, is_hopper):
    case = Case({"m": m, "n": n, "k": k}, "fp16")
    cell = TensorMatmul(Gemm(), SimpleNamespace(is_hopper=is_hopper, multiprocessors=132), case, "tensor_matmul")
    executed, _ = cell.executed_flops(None)
    assert 2 * m * n * k <= executed["tensor"] < 2 * (m + 256) * (n + 256) * (k + 64)


@given(st.sampled_from([2, 3, 4, 8]), st.sampled_from([1, 16, 256]), st.integers(1, 5000), st.sampled_from([64, 128]))
def test_attention_on_tensor_cores_executes_no_less_than_is_declared(group, batch, seq_len, size):
    properties = {"sharedMemPerMultiprocessor": 228 << 10}
    device = SimpleNamespace(multiprocessors=132, capability=(9, 0), properties=properties)
    shape = Shape(batch, 8 * group, 8, size, seq_len)
    cell = Fused(DecodeAttention(), device, Case(shape.as_dict(), "fp16"))
    assert cell.executed_flops("core").flops["tensor"] >= flops(shape, "core")
