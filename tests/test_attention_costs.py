"""The cost model of the implementations of decode attention: launches, passes and working cores."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from decode_cells import DTYPES, case_of
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.prediction import predict_cell
from roofline.measure.sealing import cpu_gb_per_s
from roofline.operators.decode_attention.attention import Shape, flops, traffic_bytes
from roofline.operators.decode_attention.eager import Eager
from roofline.operators.decode_attention.numpy_attention import NumpyOnAllCores
from roofline.operators.decode_attention.operator import DecodeAttention

SHAPES = st.builds(
    Shape,
    batch=st.integers(1, 512),
    heads=st.just(8),
    kv_heads=st.sampled_from([2, 8]),
    head_size=st.sampled_from([64, 128]),
    seq_len=st.integers(1, 8192),
)


def predicted(kind, shape, dtype, scope="core", cores=16):
    one = kind(None, SimpleNamespace(cores=cores, multiprocessors=132, l2_bytes=1 << 20), case_of(shape, dtype))
    constants = {name: constant.value for name, constant in DecodeAttention.constants[kind.kind].items()}
    return predict_cell(
        flops=flops(shape, scope),
        traffic_bytes=traffic_bytes(shape, dtype, scope),
        peak_tflops=60.0 if kind.kind == "gpu" else 2.0,
        bandwidth_gb_per_s=4800.0 if kind.kind == "gpu" else cpu_gb_per_s(cores, "AMD EPYC"),
        costs=one.costs(scope).costs(constants),
    )


@given(SHAPES, st.sampled_from(DTYPES), st.sampled_from([Eager, NumpyOnAllCores]))
def test_a_block_takes_longer_than_its_core_and_a_longer_cache_no_less(shape, dtype, kind):
    core = predicted(kind, shape, dtype).latency_s
    assert predicted(kind, shape, dtype, "block").latency_s > core
    assert predicted(kind, replace(shape, seq_len=2 * shape.seq_len), dtype).latency_s >= core


# Medians in us of runs on H200s (of the fastest host if its calls set the time) and on two cores of an AMD EPYC, whose
# costs are the constants of the code; and the regime.
SEEN = [
    (Eager, "core", "fp16", 1, 1024, (240, 240), "overhead"),
    (Eager, "core", "fp16", 256, 1024, (2107, 2112), "implementation"),
    (Eager, "block", "fp32", 256, 512, (438, 442), "implementation"),
    (NumpyOnAllCores, "core", "fp32", 1, 1024, (184, 225), "memory"),
    (NumpyOnAllCores, "core", "fp16", 256, 1024, (61_716, 72_279), "implementation"),
    (NumpyOnAllCores, "block", "fp16", 256, 128, (11_263, 14_094), "implementation"),
    (NumpyOnAllCores, "core", "fp32", 256, 1024, (31_786, 35_763), "memory"),
]


@pytest.mark.parametrize(("kind", "scope", "dtype", "batch", "seq_len", "seen_us", "regime"), SEEN)
def test_measured_times_are_within_a_factor_of_two_and_in_their_regime(
    kind, scope, dtype, batch, seq_len, seen_us, regime
):
    found = predicted(kind, Shape(batch, 8, 8, 64, seq_len), dtype, scope, cores=2)
    assert found.regime == regime
    if (kind, dtype) == (NumpyOnAllCores, "fp16"):  # which is widened, as bf16 is
        assert predicted(kind, Shape(batch, 8, 8, 64, seq_len), "bf16", scope, cores=2).regime == regime
    assert seen_us[1] / 2 <= found.latency_s * 1e6 <= 2 * seen_us[0]
