"""From records to roofline.json. The records are made by hand, with figures that are easy to reckon with."""

import json
import math
from pathlib import Path

import jsonschema
import pytest
import samples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import peak_record, skipped_peak
from small_run import device_record

from roofline import records
from roofline.analysis.collect import place
from roofline.core.prediction import CONSTANT_SOURCES, CONSTANTS, Way, assumed_costs, seal, way_of
from roofline.operators.decode_attention import operator as attention
from roofline.operators.gemm import operator as gemm
from roofline.records import DecodeAttnRecord, Weights
from roofline.records.base import write
from roofline.records.memory import Bandwidth, BandwidthRecord, FoundLevel, Sweep
from roofline.records.operator import Measurement
from roofline.records.prediction import CellPrediction, PredictionRecord, predict_sealed
from roofline.records.roofline import Roofline
from roofline.records.timing import Check, Timing

SCHEMA = Path(__file__).parents[1] / "workflow" / "schemas" / "roofline.schema.json"
SEALED = CellPrediction(regime="overhead", latency_s=2e-3, fraction_of_compute_peak=0.125)
LEVELS = {"hbm_read": ("hbm", "read"), "d2d": ("hbm", "copy"), "h2d": ("pcie", "copy"), "d2h": ("pcie", "copy")}
JOB = {"seal_sha256": "0" * 64, "started_at": "2026-11-05T12:00:00+00:00", "elapsed_s": 1.0}


# ---------------------------------------------------------------------------------------------- records by hand


def timing(median_s: float) -> Timing:
    return Timing(
        method="made up",
        warmup=3,
        requested=100,
        stopped_by="iterations",
        samples_s=[median_s] * 100,
        median_s=median_s,
        ci95_s=(0.99 * median_s, 1.01 * median_s),
    )


def measurement(device: str, latency_s: float, device_latency_s: float | None = None, **fields) -> Measurement:
    on_gpu = device != "cpu"
    known = {
        "operator": "decode_attention",
        "implementation": "eager" if on_gpu else "numpy",
        "preset": "minigpt",
        "scope": "core",
        "dtype": "fp32",
        "cache": "cold",
        "shape": {},
        "compute_ceiling": fields.get("dtype", "fp32"),
        "memory_ceilings": ["hbm_read", "d2d"] if on_gpu else ["dram_copy"],
        "memory_level": "hbm" if on_gpu else "dram",
        "predicted": SEALED,
        "check": Check(compared="made up", error=0, tolerance=1),
        "latency": timing(latency_s),
        "device_latency": timing(device_latency_s) if device_latency_s else None,
        "overhead_s": None,
        "states": [],
    }
    return Measurement(**known | fields)


def step(device: str, dtype: str, batch: int, seq_len: int, latency_s: float, *, scope="core", **fields) -> Measurement:
    shape = attention.Shape(batch, heads=8, kv_heads=8, head_size=64, seq_len=seq_len)
    fields = {"compute_ceiling": "fp32"} | fields if device == "cpu" else fields
    return measurement(
        device,
        latency_s,
        dtype=dtype,
        scope=scope,
        shape=shape.as_dict(),
        flops=attention.flops(shape, scope),
        bytes=attention.traffic_bytes(shape, dtype, scope),
        **fields,
    )


def bandwidth_record(device: str, name: str, gb_per_s: float, vendor: float | None = None, **fields) -> BandwidthRecord:
    level, mix = LEVELS.get(name, ("dram", "copy"))
    known = {
        "name": name,
        "level": level,
        "mix": mix,
        "counted": "made up",
        "bytes": 1 << 30,
        "gb_per_s": gb_per_s,
        "ci95": (0.99 * gb_per_s, 1.01 * gb_per_s),
        "vendor_gb_per_s": vendor,
        "fraction_of_vendor": gb_per_s / vendor if vendor else None,
        "threads": None,
        "grid": "made up",
        "trials": [],
        "blocks_gb_per_s": [gb_per_s],
        "sm_clock_mhz": None,
        "bytes_per_clock_per_multiprocessor": None,
        "held_back_by": [],
        "throttled": None,
        "search": {"offered": 1, "tried": 1, "refused": []},
        "latency": timing(1e-3),
        "states": [],
        "verified": "made up",
    }
    return BandwidthRecord(device=device, level=level, bandwidths=[Bandwidth(**known | fields)], **JOB)


def sweep_record(device: str, *levels: FoundLevel) -> BandwidthRecord:
    point = {"size_bytes": 4096, "gb_per_s": 400}
    found = Sweep(series="one_core", reader="one core", counted="made up", points=[point], levels=levels, states=[])
    return BandwidthRecord(device=device, level="sweep", bandwidths=[], sweeps=[found], **JOB)


def attention_record(device: str, *measurements: Measurement, note=None, generated=False) -> DecodeAttnRecord:
    weights = Weights(path="w", sha256="0" * 64, generated=generated, naming="minigpt", hidden_state="made up")
    one = measurements[0]
    return DecodeAttnRecord(
        device=device,
        preset="minigpt",
        seq_len=one.shape["seq_len"],
        dtype=one.dtype,
        weights=weights,
        note=note,
        measurements=list(measurements),
        **JOB,
    )


def placed(devices=("gpu0",), peaks=(), bandwidths=(), attention=(), operations=()) -> Roofline:
    """The roofline of such records; a record's path is made of what it is."""
    return place(
        {name: (f"{name}/device_query.json", device_record(name)) for name in devices},
        [(f"{peak.device}/peak_flops/{peak.dtype}.json", peak) for peak in peaks],
        [(f"{found.device}/bandwidth/{found.level}.json", found) for found in bandwidths],
        [(f"{found.device}/decode_attn/S{found.seq_len}_{found.dtype}.json", found) for found in attention],
        list(operations),
    )


def only(roofline: Roofline, operator: str):
    (found,) = [one for one in roofline.operators if one.operator == operator]
    return found


def close(value):
    return pytest.approx(value, rel=1e-12)


# ---------------------------------------------------------------------------------------------- what is counted


def test_a_product_counts_a_b_and_c_once():
    assert gemm.flops(2, 3, 5) == 60
    assert gemm.traffic_bytes(2, 3, 5, "fp32") == 4 * (2 * 5 + 5 * 3 + 2 * 3)


@pytest.mark.parametrize(("dtype", "intensity"), [("fp64", 341.33), ("fp32", 682.67), ("fp16", 1365.33)])
def test_intensity_of_a_product_of_4096(dtype, intensity):
    found = only(
        placed(peaks=[peak_record("gpu0", dtype, 50)], bandwidths=[bandwidth_record("gpu0", "d2d", 4000)]), "gemm"
    )
    assert found.flops == 137_438_953_472
    assert found.intensity_flops_per_byte == pytest.approx(intensity, abs=0.01)


def test_a_step_by_hand():
    """Batch 256, 8 heads of 64, S 1024: K and V are 256 x 8 x 1024 x 64 elements each; a projection is 512 x 512."""
    shape = attention.Shape(batch=256, heads=8, kv_heads=8, head_size=64, seq_len=1024)
    elements, weights = 256 * 8 * 1024 * 64, 512 * 512
    assert attention.flops(shape, "core") == 4 * elements == 536_870_912
    assert attention.traffic_bytes(shape, "fp16", "core") == 2 * elements * 2
    assert attention.traffic_bytes(shape, "fp32", "core") == 2 * elements * 4
    assert attention.flops(shape, "block") == 4 * elements + 2 * (2 * 256 * weights)
    assert attention.traffic_bytes(shape, "fp16", "block") == 2 * elements * 2 + 2 * weights * 2


def test_a_step_of_grouped_heads_by_hand():
    """Batch 2, 32 heads of 128 on 8 K/V heads, S 1024: all heads compute, 8 are read; a projection is 4096 squared."""
    shape = attention.Shape(batch=2, heads=32, kv_heads=8, head_size=128, seq_len=1024)
    elements, weights = 2 * 8 * 1024 * 128, 4096 * 4096
    assert (shape.group, shape.hidden_size) == (4, 4096)
    assert attention.flops(shape, "core") == 4 * 4 * elements
    assert attention.traffic_bytes(shape, "bf16", "core") == 2 * elements * 2
    assert attention.flops(shape, "block") == 4 * 4 * elements + 2 * (2 * 2 * weights)
    assert attention.traffic_bytes(shape, "fp32", "block") == 2 * elements * 4 + 2 * weights * 4


NUMBERS = st.integers(1, 4096)
SHAPES = st.builds(
    lambda batch, kv_heads, group, head_size, seq_len: attention.Shape(
        batch, group * kv_heads, kv_heads, head_size, seq_len
    ),
    *[NUMBERS] * 5,
)


@given(SHAPES)
def test_intensity_of_a_step_is_of_the_dtype_and_the_group_alone(shape):
    work = attention.flops(shape, "core")
    assert work / attention.traffic_bytes(shape, "fp32", "core") == 0.5 * shape.group
    assert work / attention.traffic_bytes(shape, "fp16", "core") == 1.0 * shape.group
    assert work / attention.traffic_bytes(shape, "bf16", "core") == 1.0 * shape.group


# ---------------------------------------------------------------------------------------------- ceilings


def test_ceilings_are_what_was_measured():
    load = samples.sustained(780, 640, ["sw_power_cap"])
    fp16 = peak_record("gpu0", "fp16", 780, lab=760, load=load, vendor=1000, clock=(1755, 950))
    copies = bandwidth_record("gpu0", "d2d", 4000, vendor=5000, held_back_by=["hw_slowdown"], throttled=True)
    compute, memory = (c.model_dump() for c in placed(peaks=[fp16], bandwidths=[copies]).ceilings)
    assert compute == {
        "device": "gpu0",
        "kind": "compute",
        "name": "fp16",
        "method": "gemm",
        "unit": "tensor_core",
        "tflops": 780,
        "ci95": (0.99 * 780, 1.01 * 780),
        "lab_tflops": 760,
        "sustained_tflops": 640,
        "vendor_tflops": 1000,
        "fraction_of_vendor": 0.78,
        "clock_tflops": 950,
        "fraction_of_clock": 780 / 950,
        "held_back_by": ["sw_power_cap"],
        "throttled": False,
        "record": "gpu0/peak_flops/fp16.json",
    }
    assert memory == {
        "device": "gpu0",
        "kind": "memory",
        "name": "d2d",
        "level": "hbm",
        "mix": "copy",
        "gb_per_s": 4000,
        "ci95": (3960, 4040),
        "vendor_gb_per_s": 5000,
        "fraction_of_vendor": 0.8,
        "held_back_by": ["hw_slowdown"],
        "throttled": True,
        "record": "gpu0/bandwidth/hbm.json",
    }


def test_every_stream_of_a_level_is_a_ceiling():
    whole, alone = (bandwidth_record("cpu", name, rate) for name, rate in (("dram_read", 100), ("dram_copy", 80)))
    both = whole.model_copy(update={"bandwidths": whole.bandwidths + alone.bandwidths})
    found = placed(["cpu"], bandwidths=[both]).ceilings
    assert [(one.name, one.gb_per_s) for one in found] == [("dram_read", 100), ("dram_copy", 80)]


def test_our_own_kernels_are_ceilings_and_no_operators():
    """A register-only loop has no traffic: it stands nowhere under a roof."""
    found = placed(peaks=[peak_record("gpu0", "fp32_fma", 60), FP32], bandwidths=[D2D])
    assert [(one.name, one.method, one.lab_tflops) for one in found.ceilings if one.kind == "compute"] == [
        ("fp32_fma", "fma", None),
        ("fp32", "gemm", 0.98 * 50),
    ]
    assert [(one.operator, one.dtype, one.compute_ceiling) for one in found.operators] == [("gemm", "fp32", "fp32")]


def test_the_levels_that_a_sweep_found_are_listed_with_their_series():
    l1 = FoundLevel(name="l1", gb_per_s=400, first_bytes=4096, last_bytes=32768, knee_bytes=45000, reported_bytes=49152)
    rest = FoundLevel(
        name=None, gb_per_s=12, first_bytes=65536, last_bytes=1 << 20, knee_bytes=None, reported_bytes=None
    )
    found = placed(["cpu"], bandwidths=[sweep_record("cpu", l1, rest)])
    assert found.ceilings == []
    assert [level.model_dump() for level in found.levels] == [
        {
            "device": "cpu",
            "series": "one_core",
            "name": name,
            "gb_per_s": gb_per_s,
            "knee_bytes": knee,
            "reported_bytes": reported,
            "record": "cpu/bandwidth/sweep.json",
        }
        for name, gb_per_s, knee, reported in (("l1", 400, 45000, 49152), (None, 12, None, None))
    ]


def test_what_a_device_cannot_do_is_skipped_with_the_reason():
    found = placed(peaks=[peak_record("gpu0", "fp32", 50), skipped_peak("gpu0", "bf16", "it needs 8.0")])
    assert [ceiling.name for ceiling in found.ceilings] == ["fp32"]
    (skipped,) = found.skipped
    assert (skipped.device, skipped.what, skipped.dtype, skipped.reason) == (
        "gpu0",
        "peak_flops",
        "bf16",
        "it needs 8.0",
    )


# ---------------------------------------------------------------------------------------------- under which roof

EAGER = CONSTANTS["gpu_eager_fp32_share"]  # of the memory ceiling, that the model gives to eager steps in fp32
WORK = {"flops": 10**9, "bytes": 2 * 10**9}  # 0.5 FLOP/byte
SHAPE = {"batch": 256, "seq_len": 64}
FP32, D2D = peak_record("gpu0", "fp32", 50), bandwidth_record("gpu0", "d2d", 1000)


def one_step(peaks=(FP32,), bandwidths=(D2D,), latency_s=4e-3, device_latency_s=3.2e-3, **fields):
    one = measurement("gpu0", latency_s, device_latency_s, shape=SHAPE, **WORK | fields)
    return only(
        placed(peaks=peaks, bandwidths=bandwidths, attention=[attention_record("gpu0", one)]), "decode_attention"
    )


def test_fractions_by_hand():
    """Under 1000 GB/s 0.5 FLOP/byte may reach 0.5 TFLOPS; 1 GFLOP in 4 ms is 0.25 TFLOPS, in 3.2 ms 0.3125."""
    found = one_step()
    assert found.roof_tflops == close(0.5)
    assert (found.attained_tflops, found.device_attained_tflops) == (close(0.25), close(0.3125))
    assert (found.fraction_of_roof, found.device_fraction_of_roof) == (close(0.5), close(0.625))
    assert found.fraction_of_compute_peak == close(0.25 / 50)
    assert (found.latency_s, found.device_latency_s) == (4e-3, 3.2e-3)
    assert found.latency_ci95_s == close((3.96e-3, 4.04e-3)) and found.device_latency_ci95_s[0] == close(3.168e-3)
    assert (found.intensity_flops_per_byte, found.no_traffic) == (0.5, False)
    assert found.record == "gpu0/decode_attn/S64_fp32.json"


def test_the_declared_reading_ceiling_goes_before_the_copy():
    assert one_step().memory_ceiling == "d2d"
    found = one_step(bandwidths=[D2D, bandwidth_record("gpu0", "hbm_read", 1250)])
    assert found.memory_ceiling == "hbm_read"
    assert found.roof_tflops == close(0.625)


def test_an_operator_above_its_roof_is_told_with_the_ceiling_that_is_too_low():
    """2 GB in 1.6 ms is 1250 GB/s where the copy gave 1000; its device tells of no cache that holds so much."""
    one = measurement("gpu0", 4e-3, 1.6e-3, shape=SHAPE, **WORK)
    (above,) = placed(peaks=[FP32], bandwidths=[D2D], attention=[attention_record("gpu0", one)]).above_roof
    assert (above.wrong_roof, above.cache, above.record) == ("d2d", None, "gpu0/decode_attn/S64_fp32.json")
    assert above.fraction_of_roof == pytest.approx(1.25 / 1.01)  # at the slow end of its interval


def test_no_other_memory_ceiling_takes_its_place():
    """A reader's roof is never the host link's, however well a dot would fit under it."""
    found = one_step(bandwidths=[bandwidth_record("gpu0", "h2d", 50)])
    assert (found.memory_ceiling, found.regime) == (None, None)
    assert found.roof_tflops == 50


def test_the_roof_is_the_compute_ceiling_where_that_is_the_lower():
    found = one_step(peaks=[peak_record("gpu0", "fp32", 0.3)])
    assert found.roof_tflops == 0.3
    assert found.fraction_of_roof == found.fraction_of_compute_peak == close(0.25 / 0.3)


def test_a_missing_compute_ceiling_is_null():
    """peak_flops.dtypes need not list what decode_attn.dtypes does."""
    found = one_step(peaks=[peak_record("gpu0", "fp16", 700)])
    assert (found.compute_ceiling, found.fraction_of_compute_peak, found.regime) == (None, None, None)
    assert found.roof_tflops == close(0.5)
    assert found.predicted.from_ceilings.latency_s == close(2e-3 / EAGER)


def test_without_any_ceiling_there_is_no_roof():
    found = one_step(peaks=(), bandwidths=())
    assert (found.roof_tflops, found.fraction_of_roof, found.device_fraction_of_roof) == (None, None, None)
    assert (found.regime, found.predicted.from_ceilings) == (None, None)
    assert found.attained_tflops == close(0.25)


def test_the_ceilings_of_another_device_are_not_its_own():
    found = one_step(
        peaks=[FP32, peak_record("cpu", "fp32", 0.1)], bandwidths=[bandwidth_record("gpu1", "d2d", 7), D2D]
    )
    assert found.roof_tflops == close(0.5)


# ---------------------------------------------------------------------------------------------- regimes


@pytest.mark.parametrize(
    ("alone_s", "regime", "level"), [(4e-3, "memory", "hbm"), (3.2e-3, "memory", "hbm"), (3.1e-3, "overhead", None)]
)
def test_launches_set_the_pace_where_the_device_is_idle_a_fifth_of_the_time(alone_s, regime, level):
    """Whatever the calls cost: a step of 4 ms whose calls take 3 ms of the host hides them behind the device."""
    found = one_step(device_latency_s=alone_s, overhead_s=3e-3)
    assert (found.regime, found.regime_level) == (regime, level)


@pytest.mark.parametrize(
    ("overhead_s", "regime", "level"),
    [(None, "memory", "hbm"), (1.99e-3, "memory", "hbm"), (2e-3, "overhead", None), (3.9e-3, "overhead", None)],
)
def test_a_device_that_is_its_own_caller_is_judged_by_what_its_calls_cost(overhead_s, regime, level):
    found = one_step(device_latency_s=None, overhead_s=overhead_s)
    assert (found.regime, found.regime_level) == (regime, level)


@pytest.mark.parametrize(
    ("start_s", "alone_s", "regime", "level"),
    [
        (1.4e-3, 5e-3, "overhead", None),  # 3.6 times what next to nothing takes, and the roof explains 2 ms of it
        (1.2e-3, 5e-3, "memory", "hbm"),  # more than four times that
        (1.4e-3, 4e-3, "memory", "hbm"),  # half of it is the roof's
        (None, 5e-3, "memory", "hbm"),
    ],
)
def test_what_it_costs_the_device_to_start_sets_the_time_where_the_roof_explains_less_than_half(
    start_s, alone_s, regime, level
):
    found = one_step(latency_s=alone_s, device_latency_s=alone_s, overhead_s=1e-3, device_overhead_s=start_s)
    assert (found.regime, found.regime_level) == (regime, level)


def test_compute_bound_at_and_above_the_ridge_point():
    """50 TFLOPS and 1000 GB/s meet at 50 FLOP/byte."""
    for intensity, expected in ((49, ("memory", "hbm")), (50, ("compute", None)), (51, ("compute", None))):
        found = one_step(flops=intensity * 10**9, bytes=10**9)
        assert (found.regime, found.regime_level) == expected


def test_the_memory_of_a_cpu_is_dram():
    one = step("cpu", "fp16", 1, 128, 1e-3)
    roofline = placed(
        ["cpu"],
        [peak_record("cpu", "fp32", 1)],
        [bandwidth_record("cpu", "dram_copy", 100)],
        [attention_record("cpu", one)],
    )
    found = only(roofline, "decode_attention")
    assert (found.compute_ceiling, found.memory_ceiling) == ("fp32", "dram_copy")
    assert (found.regime, found.regime_level) == ("memory", "dram")


# ---------------------------------------------------------------------------------------------- predictions


def from_ceilings(**fields):
    return one_step(**{"overhead_s": 1e-3, "device_overhead_s": 1e-4} | fields).predicted.from_ceilings


def test_predictions_of_both_kinds():
    """1 GFLOP at 50 TFLOPS takes 20 us; 2 GB at 1000 GB/s take 2 ms, and longer at the share of it that eager steps
    attain; the device's start comes before that, and the calls take what they take beside it."""
    memory = one_step(overhead_s=1e-3, device_overhead_s=1e-4).predicted
    assert memory.sealed == SEALED
    whole_s = 1e-4 + 2e-3 / EAGER
    assert memory.from_ceilings.regime == "memory"
    assert memory.from_ceilings.latency_s == memory.from_ceilings.device_latency_s == close(whole_s)
    assert memory.from_ceilings.fraction_of_compute_peak == close(20e-6 / whole_s)
    compute = from_ceilings(flops=10**12)
    assert (compute.regime, compute.latency_s) == ("compute", close(0.0201))
    assert compute.fraction_of_compute_peak == close(0.02 / 0.0201)


def test_a_prediction_is_of_overhead_where_calls_or_the_start_are():
    calls = from_ceilings(overhead_s=10e-3)
    assert (calls.regime, calls.latency_s, calls.device_latency_s) == ("overhead", 10e-3, close(1e-4 + 2e-3 / EAGER))
    assert calls.fraction_of_compute_peak == close(0.002)
    start = from_ceilings(device_overhead_s=6e-3)
    assert (start.regime, start.latency_s) == ("overhead", close(6e-3 + 2e-3 / EAGER))


def test_a_prediction_has_joining_and_the_implementations_share():
    fused = from_ceilings(implementation="fused", joins=True)
    start_s = 1e-4 + CONSTANTS["gpu_joining_s"]
    assert fused.latency_s == close(start_s + 2e-3 / CONSTANTS["gpu_fused_share"])
    alone = from_ceilings(implementation="fused_graph", layers=6)
    assert alone.latency_s == close(1e-4 + 2e-3 / CONSTANTS["gpu_fused_share"])


def test_the_calls_of_a_device_that_is_its_own_caller_come_before_its_work():
    one = step("cpu", "fp32", 1, 128, 1e-3, overhead_s=3e-5)
    roofline = placed(
        ["cpu"],
        [peak_record("cpu", "fp32", 1)],
        [bandwidth_record("cpu", "dram_copy", 100)],
        [attention_record("cpu", one)],
    )
    found = only(roofline, "decode_attention").predicted.from_ceilings
    moved, a_core = 2 * 8 * 128 * 64 * 4, 1e9 * CONSTANTS["cpu_dram_gb_per_s_per_core"]
    assert found.latency_s == close(3e-5 + moved / a_core / CONSTANTS["cpu_numpy_fp32_share"]), "read by one core"
    assert found.device_latency_s is None


def test_a_product_is_predicted_from_its_ceilings_alone():
    found = only(placed(peaks=[FP32], bandwidths=[D2D]), "gemm")
    assert found.predicted.from_ceilings.latency_s == close(found.flops / 50e12)
    assert (found.predicted.from_ceilings.device_latency_s, found.predicted.from_ceilings.regime) == (None, "compute")


# ---------------------------------------------------------------------------------------------- sealed


WAYS = [
    (kind, Way(implementation, scope, dtype))
    for kind, implementations in attention.IMPLEMENTATIONS.items()
    for implementation in implementations
    for scope in (attention.SCOPES if implementation in ("eager", "numpy") else ("core",))
    for dtype in attention.DTYPES
]
WAYS += [(kind, Way("gemm", None, dtype)) for kind in attention.IMPLEMENTATIONS for dtype in ("fp64", "fp8_e4m3")]


@pytest.mark.parametrize(("kind", "way"), WAYS, ids=str)
def test_the_seal_has_the_costs_of_every_way(kind, way):
    costs = assumed_costs(CONSTANTS, kind, way, 10**6)
    assert costs.call_s > 0 and 0 < costs.share <= 1
    assert (costs.start_s is None) == (kind == "cpu")


def test_every_constant_has_a_source_and_is_some_ways():
    assert set(CONSTANT_SOURCES) == set(CONSTANTS) and all(CONSTANT_SOURCES.values())

    class Noting(dict):
        def __getitem__(self, name):
            used.add(name)
            return super().__getitem__(name)

        def get(self, name, default=None):
            used.add(name)
            return super().get(name, default)

    used = {"cpu_dram_gb_per_s_per_core"}  # of a ceiling
    for kind, way in WAYS:
        assumed_costs(Noting(CONSTANTS), kind, Way(way.implementation, way.scope, way.dtype, joins=True), 10**6)
    assert set(CONSTANTS) <= used


def test_the_calls_of_a_graph_are_shared_by_its_layers_and_joining_costs_the_device():
    one, six = (assumed_costs(CONSTANTS, "gpu", Way("fused_graph", "core", "fp16", layers), 1) for layers in (1, 6))
    assert six.call_s == close(one.call_s / 6) and six.start_s == one.start_s
    joined = assumed_costs(CONSTANTS, "gpu", Way("fused_graph", "core", "fp16", 6, joins=True), 1)
    assert (joined.start_s, joined.call_s) == (six.start_s, six.call_s)
    assert joined.joining_s == CONSTANTS["gpu_joining_s"] and six.joining_s == 0


def test_waves_of_blocks_wait_for_the_memory_beside_using_it():
    """Three waits of a wave and four times as long of reading: five times as long, on top of the start."""
    wave_s, start_s = CONSTANTS["gpu_wave_s"], CONSTANTS["gpu_fused_core_start_s"]
    way = Way("fused", "core", "fp16", waves=4)
    assert assumed_costs(CONSTANTS, "gpu", way, 1).waves_s == close(3 * wave_s)
    alone = sealed(traffic_bytes=1, flops=1, way=way).device_latency_s
    assert alone == pytest.approx(start_s + 3 * wave_s, rel=1e-4)
    whole = sealed(traffic_bytes=10**9, flops=1, way=Way("fused", "core", "fp16")).device_latency_s - start_s
    waves = Way("fused", "core", "fp16", waves=1 + 0.75 * whole / wave_s)
    assert sealed(traffic_bytes=10**9, flops=1, way=waves).device_latency_s == close(start_s + 1.25 * whole)


def test_work_takes_as_long_as_the_turns_of_a_block_however_fast_the_memory_is():
    costs = assumed_costs(CONSTANTS, "gpu", Way("fused", "core", "fp16", turns=4), 1)
    assert costs.least_work_s == close(3 * CONSTANTS["gpu_turn_s"])
    start_s = CONSTANTS["gpu_fused_core_start_s"]
    assert sealed(traffic_bytes=1, flops=1, way=Way("fused", "core", "fp16", turns=1001)).device_latency_s == close(
        start_s + 1000 * CONSTANTS["gpu_turn_s"]
    )


def test_the_way_of_a_measurement():
    one = measurement("gpu0", 1e-3, scope="block", dtype="bf16", layers=32, joins=True, turns=5, waves=2.5, **WORK)
    assert way_of(one) == Way("eager", "block", "bf16", layers=32, joins=True, turns=5, waves=2.5)
    assert way_of(FP32.peak.lab) == Way("gemm", None, "fp32"), "by whichever library"


def sealed(**fields):
    """What is sealed for a fused step of 1 GFLOP and 2 GB on a card of 50 TFLOPS and 1000 GB/s."""
    promised = [
        {"kind": "compute", "name": "fp16", "tflops": 50, "source": "s", "verified": True, "derived": False},
        {"kind": "memory", "name": "hbm_read", "gb_per_s": 1000, "source": "s", "verified": True, "derived": False},
    ]
    content = {
        "device": "gpu0",
        "device_kind": "gpu",
        "sealed_at": JOB["started_at"],
        "device_record_sha256": "0" * 64,
        "model_source_sha256": "0" * 64,
        "ceilings": promised,
        "constants": CONSTANTS,
        "constant_sources": CONSTANT_SOURCES,
    }
    known = {"flops": 1e9, "traffic_bytes": 2e9, "compute_ceiling": "fp16", "way": Way("fused", "core", "fp16")}
    return predict_sealed(PredictionRecord.model_validate(content), **known | fields)


def test_what_is_sealed_comes_from_the_seal_alone():
    start_s, share = CONSTANTS["gpu_fused_core_start_s"], CONSTANTS["gpu_fused_share"]
    found = sealed()
    assert found.latency_s == found.device_latency_s == close(start_s + 2e-3 / share)
    assert found.regime == "memory"
    small = sealed(flops=1e4, traffic_bytes=2e4)
    assert (small.latency_s, small.regime) == (CONSTANTS["gpu_fused_core_call_s"], "overhead")
    assert small.device_latency_s == close(start_s + 20e-9 / share)
    unknown = sealed(compute_ceiling="fp4")
    assert (unknown.latency_s, unknown.fraction_of_compute_peak) == (close(start_s + 2e-3 / share), None)


def test_a_seal_holds_every_constant_with_its_source(tmp_path):
    device = device_record("cpu", hardware={"cores_usable": 8})
    write(device, tmp_path / "device.json")
    made = seal(device, tmp_path / "device.json", JOB["started_at"])
    assert (made.constants, made.constant_sources) == (CONSTANTS, CONSTANT_SOURCES)
    assert {one.gb_per_s for one in made.ceilings} == {8 * CONSTANTS["cpu_dram_gb_per_s_per_core"]}


# ---------------------------------------------------------------------------------------------- the user's operations


def operation(name="mine", flops=1e9, memory_bytes=2e9, dtype="fp32", **fields):
    return {"name": name, "flops": flops, "memory_bytes": memory_bytes, "dtype": dtype} | fields


def place_operation(**fields):
    return only(placed(peaks=[FP32], bandwidths=[D2D], operations=[operation(**fields)]), "operation")


def test_an_operation_that_the_user_measured():
    found = place_operation(measured_s=4e-3)
    assert (found.name, found.device, found.implementation, found.record) == ("mine", "gpu0", "user", None)
    assert (found.latency_s, found.attained_tflops) == (4e-3, close(0.25))
    assert (found.roof_tflops, found.fraction_of_roof) == (close(0.5), close(0.5))
    assert found.fraction_of_compute_peak == close(0.005)
    assert (found.regime, found.regime_level) == ("memory", "hbm")
    assert (found.estimated_time_s, found.roofline_time_s) == (close(2e-3), close(2e-3))
    assert found.efficiency_percent == close(1)


def test_an_operation_that_nobody_measured():
    found = place_operation()
    assert (found.latency_s, found.attained_tflops, found.fraction_of_roof) == (None, None, None)
    assert found.roof_tflops == close(0.5)


def test_an_operation_without_traffic():
    found = place_operation(memory_bytes=0, measured_s=40e-6)
    assert (found.intensity_flops_per_byte, found.no_traffic) == (None, True)
    assert (found.roof_tflops, found.regime, found.regime_level) == (50, "compute", None)
    assert found.fraction_of_roof == close(0.5)


def test_an_operation_without_work_is_a_copy():
    """It attains nothing, so that by FLOPs it would never end; by its bytes it does."""
    found = place_operation(flops=0, measured_s=4e-3)
    assert (found.intensity_flops_per_byte, found.roof_tflops, found.attained_tflops) == (0, 0, 0)
    assert (found.fraction_of_roof, found.estimated_time_s) == (None, None)
    assert found.roofline_time_s == close(2e-3)


def test_an_operation_without_a_ceiling_is_skipped_on_that_device_alone():
    roofline = placed(
        ["gpu0", "cpu"],
        [FP32, peak_record("cpu", "fp64", 0.5), skipped_peak("cpu", "fp16", "NumPy has none")],
        [D2D, bandwidth_record("cpu", "dram_copy", 100)],
        operations=[operation(dtype="fp32"), operation("other", dtype="fp64")],
    )
    assert [(o.device, o.name) for o in roofline.operators if o.operator == "operation"] == [
        ("gpu0", "mine"),
        ("cpu", "other"),
    ]
    assert [(s.device, s.name, s.dtype, s.reason) for s in roofline.skipped if s.what == "operation"] == [
        ("gpu0", "other", "fp64", "no fp64 ceiling was measured on gpu0"),
        ("cpu", "mine", "fp32", "no fp32 ceiling was measured on cpu"),
    ]


def test_an_operation_needs_a_slope():
    roofline = placed(peaks=[FP32], bandwidths=[bandwidth_record("gpu0", "h2d", 50)], operations=[operation()])
    assert [skip.reason for skip in roofline.skipped] == ["no memory ceiling was measured on gpu0"]


# ---------------------------------------------------------------------------------------------- what is written


def refuse(constant):
    raise AssertionError(f"{constant} is written")


def everything() -> Roofline:
    """Each kind of ceiling, operator and gap that there is."""
    return placed(
        ["gpu0", "cpu"],
        [FP32, peak_record("cpu", "fp32", 1), skipped_peak("cpu", "fp16", "NumPy has none")],
        [
            D2D,
            bandwidth_record("gpu0", "h2d", 50),
            bandwidth_record("cpu", "dram_copy", 100),
            *samples.sweep_records(),
        ],
        [
            attention_record("gpu0", step("gpu0", "fp16", 256, 1024, 1e-3, overhead_s=1e-4)),
            attention_record("cpu", step("cpu", "fp16", 1, 128, 1e-3, scope="block")),
        ],
        [
            operation("measured", measured_s=1e-3),
            operation("no traffic", memory_bytes=0),
            operation("no work", flops=0),
            operation("nothing", flops=0, memory_bytes=0),
            operation("no ceiling", dtype="bf16"),
        ],
    )


def test_the_committed_schema_is_that_of_the_records():
    expected = json.dumps(Roofline.model_json_schema(), indent=2) + "\n"
    make = f"{SCHEMA.name} is out of date; make it anew with: PYTHONPATH=workflow/scripts python -c 'import json; from "
    make += "roofline.records import Roofline; print(json.dumps(Roofline.model_json_schema(), indent=2))' "
    assert SCHEMA.read_text(encoding="utf-8") == expected, make + f"> workflow/schemas/{SCHEMA.name}"


@pytest.mark.parametrize("name", [*samples.SAMPLES, "everything"])
def test_what_is_written_is_of_the_schema(tmp_path, name):
    roofline = everything() if name == "everything" else Roofline.model_validate(samples.SAMPLES[name]())
    write(roofline, tmp_path / "roofline.json")
    text = (tmp_path / "roofline.json").read_text(encoding="utf-8")
    jsonschema.validate(json.loads(text, parse_constant=refuse), json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert records.read(Roofline, tmp_path / "roofline.json") == roofline


@pytest.mark.parametrize(
    ("place_of_it", "wrong"),
    [
        (("devices", "gpu0", "kind"), "tpu"),
        (("ceilings", 0, "unit"), "matrix_core"),
        (("ceilings", 0, "tflops"), 0),
        (("ceilings", 1, "gb_per_s"), "1000"),
        (("operators", 0, "regime"), "io"),
        (("operators", 0, "unheard_of"), 1),
        (("operators", 0, "latency_ci95_s"), [1e-3]),
    ],
)
def test_the_schema_is_closed(place_of_it, wrong):
    content = everything().model_dump(mode="json")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.validate(content, schema)
    *way, last = place_of_it
    part = content
    for key in way:
        part = part[key]
    part[last] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_never_written(tmp_path, wrong):
    """Neither in a field of numbers nor where anything may stand; and nothing half-written is left."""
    path = tmp_path / "record.json"
    roofline, record = everything(), device_record("gpu0")
    write(roofline, path)
    before = path.read_bytes()
    faulty_operator = roofline.operators[0].model_copy(update={"latency_s": wrong})
    faulty = [
        roofline.model_copy(update={"operators": [faulty_operator]}),
        record.model_copy(update={"hardware": {"clock_mhz": wrong}}),
        device_record("gpu0", hardware={"clocks": [{"mhz": wrong}]}),
    ]
    for one in faulty:
        with pytest.raises(ValueError, match="not JSON compliant"):
            write(one, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


AMOUNTS = st.just(0) | st.integers(1, 10**30) | st.floats(1e-9, 1e30)


@settings(deadline=None)
@given(AMOUNTS, AMOUNTS, st.none() | st.floats(1e-12, 1e12))
def test_whatever_the_users_operation_it_can_be_written(flops, memory_bytes, measured_s):
    listed = operation(flops=flops, memory_bytes=memory_bytes) | ({"measured_s": measured_s} if measured_s else {})
    roofline = placed(peaks=[FP32], bandwidths=[D2D], operations=[listed])
    text = json.dumps(roofline.model_dump(), allow_nan=False)
    assert Roofline.model_validate_json(text) == roofline
