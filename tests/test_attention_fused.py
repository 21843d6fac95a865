"""Fused decode attention without a card: how the work is divided, and what is launched on a fake GPU."""

import pytest
from decode_cells import DTYPES, FUSED_DTYPES, OPERATOR, case_of, cell_of
from factories import device_record, seals_for
from fake_gpu import open_gpu
from hypothesis import assume, given
from hypothesis import strategies as st

from roofline.core.units import KIB
from roofline.devices.base import RESERVED_SHARED_BYTES, GpuLimits
from roofline.measure.operator_job import JobPlan, measure_job
from roofline.measure.protocol import TimingBudget
from roofline.operators.base import Job
from roofline.operators.decode_attention import checkpoint, fused_attention
from roofline.operators.decode_attention.attention_arithmetic import FP8, AttentionShape
from roofline.operators.decode_attention.operator import GPU_CONSTANTS
from roofline.plan import settings

H200 = GpuLimits(multiprocessors=132, shared_per_block=227 * KIB, shared_per_sm=228 * KIB, capability=(9, 0))
T4 = GpuLimits(multiprocessors=40, shared_per_block=64 * KIB, shared_per_sm=64 * KIB, capability=(7, 5))
L4 = GpuLimits(multiprocessors=58, shared_per_block=99 * KIB, shared_per_sm=100 * KIB, capability=(8, 9))
CARDS = st.sampled_from([H200, T4, L4])
SEQ_LENS = st.one_of(st.integers(1, 300), st.integers(1, 200_000))
SHAPES = st.builds(
    lambda batch, kv_heads, group, head_size, seq_len: AttentionShape(
        batch, kv_heads * group, kv_heads, head_size, seq_len
    ),
    st.integers(1, 600),
    st.integers(1, 32),
    st.integers(1, 17),
    st.sampled_from(fused_attention.HEAD_SIZES),
    SEQ_LENS,
)


def keys_of(seq_len: int, tile: int, split: int, splits: int) -> range:
    """The keys of a split, as kernels/decode_attention.cu divides them."""
    slices = (seq_len + tile - 1) // tile
    begin = slices * split // splits * tile
    end = min(seq_len, slices * (split + 1) // splits * tile)
    return range(begin, end)


@given(SHAPES, st.sampled_from(FUSED_DTYPES), CARDS)
def test_every_key_is_in_exactly_one_split_and_every_query_in_one_tile(shape, dtype, limits):
    assume(dtype != FP8 or limits.capability >= fused_attention.FP8_FROM)
    plan = fused_attention.plan_attention(shape, dtype, limits)
    parts = [keys_of(shape.seq_len, plan.variant.tile, split, plan.splits) for split in range(plan.splits)]
    assert [parts[0].start, *(part.stop for part in parts)] == [*(part.start for part in parts), shape.seq_len]
    assert all(parts), "a block without a key"
    assert plan.tiles * plan.variant.queries >= shape.group > (plan.tiles - 1) * plan.variant.queries
    assert plan.blocks == shape.batch * shape.kv_heads * plan.tiles * plan.splits


def test_keys_are_divided_evenly_or_into_many_waves():
    h200, t4 = (132, 3), (40, 1)  # multiprocessors, and blocks that one has room for
    for card, heads, seq_len, splits in (
        (h200, 8, 1024, 8),  # of 128 keys each
        (h200, 8, 131_072, 33),  # two blocks per multiprocessor
        (h200, 8, 8192, 16),  # one: two would have fewer than 512 keys each
        (h200, 56, 16_384, 7),  # 392 blocks are three, where two would leave 40 multiprocessors with one
        (h200, 512, 8192, 4),  # a wave and a third become five
        (h200, 800, 8192, 1),  # two waves are enough
        (t4, 32, 4096, 4),  # room for one each: 128 blocks are three waves
    ):
        assert fused_attention.choose_splits(heads, seq_len, *card) == splits


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_variants_hold_a_group_or_the_most_that_registers_and_shared_memory_do(shape, dtype, limits):
    uses_mma = shape.group > 1 and dtype != "fp32" and limits.capability >= (8, 0)
    for variant in fused_attention.list_variants(shape, dtype, limits):
        assert variant.uses_mma == uses_mma
        most_queries = 8 if uses_mma else 4
        assert variant.queries == most_queries or (variant.queries >= shape.group and not uses_mma)
        assert variant.queries < 2 * shape.group or uses_mma, "places of no query"
        assert variant.blocks >= 1
        resident_bytes = variant.blocks * (variant.shared_bytes + RESERVED_SHARED_BYTES)
        assert resident_bytes <= limits.shared_per_sm


@pytest.mark.parametrize(
    ("group", "dtype", "capability"),
    [(1, "fp32", "9.0"), (3, "fp16", "7.5"), (4, "bf16", "8.6"), (1, "fp8_e4m3", "9.0"), (3, "fp8_e4m3", "8.9")],
)
@pytest.mark.parametrize("kind", [fused_attention.FusedAttention, fused_attention.FusedAttentionGraph])
def test_the_step_of_a_cell_passes_its_check(monkeypatch, group, kind, dtype, capability):
    device = open_gpu(monkeypatch, capability)
    cell = cell_of(device, kind, AttentionShape(2, 2 * group, 2, 64, 700), dtype, copies=3, layers=4)
    check, _ = OPERATOR.check(cell, "core")
    assert check.relative_error <= check.tolerance
    assert cell.plan()["splits"] > 1
    assert cell.costs("core").extra == {"join_splits_s": 1.0}
    assert set(cell.costs("core").calls) <= set(GPU_CONSTANTS)


def test_fp8_takes_tensor_cores_and_stages_for_any_group_and_a_card_that_converts_it(monkeypatch):
    shape = AttentionShape(1, 2, 2, 64, 1000)
    variants = list(fused_attention.list_variants(shape, "fp8_e4m3", L4))
    assert variants and all(variant.uses_mma and variant.stages for variant in variants)
    case = case_of(shape, "fp8_e4m3")
    assert "8.9" in fused_attention.FusedAttention.unsupported(open_gpu(monkeypatch, "8.0"), case)
    assert fused_attention.FusedAttention.unsupported(open_gpu(monkeypatch, "8.9"), case) is None
    # Half the bytes of fp16, and two scales of fp32 for each K/V head.
    assert OPERATOR.bytes(case) == OPERATOR.bytes(case_of(shape, "fp16")) // 2 + 2 * 2 * 4
    converted = cell_of(open_gpu(monkeypatch), fused_attention.FusedAttention, shape, "fp8_e4m3").costs("core").floor
    assert converted["fp8_conversion_s_per_number"] == 2 * 2 * 1000 * 64


def test_a_wrong_scale_fails_the_check(monkeypatch):
    shape = AttentionShape(2, 4, 2, 64, 300)
    cell = cell_of(open_gpu(monkeypatch), fused_attention.FusedAttention, shape, "fp8_e4m3")
    values_scales = cell.copies[0]["values_scales"]
    cell.copies[0] = cell.copies[0] | {"values_scales": 1.1 * values_scales}  # as the reference sees them
    with pytest.raises(ArithmeticError, match="fp8_e4m3"):
        OPERATOR.check(cell, "core")


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_job_measures_every_implementation_and_predicts_them_apart(tmp_path, monkeypatch, cache):
    sizes = {"layers": 3, "heads": 4, "head_size": 64, "kv_heads": 2}
    weights = tmp_path / "weights.safetensors"
    checkpoint.make_checkpoint(weights, sizes | {"seed": 1})
    model = {"checkpoint": str(weights), "presets": {"mine": sizes}}
    decode = {"presets": ["mine"], "seq_lens": [64], "dtypes": ["fp16"], "batch_sizes": [1, 2]}
    (job,) = OPERATOR.jobs(settings.complete({"model": model, "decode_attn": decode}).config)
    plan = JobPlan(OPERATOR, open_gpu(monkeypatch), Job(job.path, job.cases), None, cold=cache == "cold")
    measurements = measure_job(plan, seals_for(device_record("gpu0"), OPERATOR), TimingBudget(2, 8, 0.05))
    assert [(cell.shape["batch"], cell.implementation, cell.scope, cell.per_call) for cell in measurements] == [
        (batch, *cell)
        for batch in (1, 2)
        for cell in (("eager", "core", 1), ("eager", "block", 1), ("fused", "core", 1), ("fused_graph", "core", 3))
    ]
    # Where there is little to do, a call costs what the seal says of it, and a graph's layers cost the device's part.
    of_batch_1 = [cell for cell in measurements if cell.shape["batch"] == 1]
    sealed = {(cell.implementation, cell.scope): cell.sealed for cell in of_batch_1}
    assert {name: prediction.cpu_time_s for name, prediction in sealed.items()} == {
        ("eager", "core"): pytest.approx(12 * GPU_CONSTANTS["array_operation_s"].value),
        ("eager", "block"): pytest.approx(17 * GPU_CONSTANTS["array_operation_s"].value),
        ("fused", "core"): pytest.approx(
            GPU_CONSTANTS["kernel_launch_s"].value + 9 * GPU_CONSTANTS["kernel_argument_s"].value
        ),
        ("fused_graph", "core"): sealed["fused_graph", "core"].gpu_time_s,
    }
    for cell in measurements:
        assert cell.check.relative_error <= cell.check.tolerance and cell.overhead_s > 0 and cell.start_s > 0
        assert (cell.cache, cell.memory_level) == (cache, "hbm" if cache == "cold" else "l2")
