"""From records to roofline.json, with figures that are easy to reckon with."""

import pytest
from records_factory import SCAN, bandwidth_record, cell, operator_record, peak_record, stream, timing, verified

from roofline.table.rows import Roofline

FP32, D2D = peak_record("gpu0", "fp32", 50), bandwidth_record("gpu0", d2d=1000)


def close(value):
    return pytest.approx(value, rel=1e-12)


def only(roofline: Roofline, operator: str):
    (row,) = [cell for cell in roofline.operators if cell.operator == operator]
    return row


def placed(peaks=(FP32,), bandwidths=(D2D,), cpu_time_s=4e-3, gpu_time_s=3.2e-3, device="gpu0", **fields):
    """One cell of 1 GFLOP and 2 GB under these ceilings."""
    record = operator_record(device, cell(device, cpu_time_s, gpu_time_s, **fields))
    return only(verified(*peaks, *bandwidths, record), "scan")


def test_ceilings_are_what_was_measured():
    load = {"sustained": 640, "reasons": ["sw_power_cap"]}
    fp16 = peak_record("gpu0", "fp16", 780, reference=760, datasheet=1000, clock=(1755, 950), **load)
    limits = {"throttle_reasons": ["hw_slowdown"], "all_throttled": True}
    copies = stream("d2d", 4000, datasheet_gb_per_s=5000, **limits)
    compute, memory = verified(fp16, bandwidth_record("gpu0", d2d=copies)).ceilings
    assert (compute.name, compute.workload, compute.compute_unit) == ("fp16", "gemm", "tensor_core")
    assert (compute.tflops, compute.reference_tflops, compute.sustained_tflops) == (780, close(760), close(640))
    assert (compute.fraction_of_datasheet, compute.fraction_of_clock) == (0.78, 780 / 950)
    assert (compute.throttle_reasons, compute.all_throttled) == (["sw_power_cap"], False)
    assert compute.record == "gpu0/peak_flops/fp16.json"
    assert (memory.name, memory.level, memory.mix, memory.gb_per_s) == ("d2d", "hbm", "copy", 4000)
    assert (memory.fraction_of_datasheet, memory.throttle_reasons, memory.all_throttled) == (0.8, ["hw_slowdown"], True)
    assert memory.record == "gpu0/bandwidth/hbm.json"


def test_fractions_by_hand():
    row = placed()
    assert row.roof_tflops == close(0.5)
    assert (row.attained_tflops, row.gpu_attained_tflops) == (close(0.25), close(0.3125))
    assert (row.fraction_of_roof, row.gpu_fraction_of_roof) == (close(0.5), close(0.625))
    assert row.fraction_of_compute_peak == close(0.25 / 50)
    assert row.cpu_time_ci95_s == close((3.96e-3, 4.04e-3)) and row.gpu_time_ci95_s[0] == close(3.168e-3)
    assert row.intensity_flops_per_byte == 0.5
    assert (row.shape, row.record) == ({"n": 1024}, "gpu0/scan/N1024_fp32.json")


def test_the_roof_is_the_first_declared_ceiling_that_was_measured():
    assert placed().memory_ceiling == "d2d"
    row = placed(bandwidths=[bandwidth_record("gpu0", d2d=1000, hbm_read=1250)])
    assert (row.memory_ceiling, row.roof_tflops) == ("hbm_read", close(0.625))
    link = placed(bandwidths=[bandwidth_record("gpu0", h2d=50)])
    assert (link.memory_ceiling, link.regime, link.roof_tflops) == (None, None, 50)


@pytest.mark.parametrize(
    ("times", "regime", "level"),
    [
        ({"cpu_time_s": 4e-3, "gpu_time_s": 3.2e-3, "overhead_s": 3e-3}, "memory", "hbm"),
        ({"cpu_time_s": 4e-3, "gpu_time_s": 1.9e-3, "overhead_s": 3e-3}, "overhead", None),
        ({"cpu_time_s": 5e-3, "gpu_time_s": 5e-3, "start_s": 2.1e-3}, "overhead", None),
        ({"cpu_time_s": 5e-3, "gpu_time_s": 5e-3, "start_s": 0.4e-3}, "implementation", None),
        ({"cpu_time_s": 4e-3, "gpu_time_s": None, "overhead_s": 1.99e-3}, "memory", "hbm"),
        ({"cpu_time_s": 4e-3, "gpu_time_s": None, "overhead_s": 2.01e-3}, "overhead", None),
        ({"flops": 50 * 10**9, "bytes": 10**9, "cpu_time_s": 2e-3, "gpu_time_s": 2e-3}, "compute", None),  # the ridge
    ],
)
def test_the_regime_found_is_from_what_was_measured(times, regime, level):
    row = placed(**times)
    assert (row.regime, row.regime_level) == (regime, level)


@pytest.mark.parametrize(("gb_per_s", "level"), [(None, "hbm"), (30_000, "hbm"), (2_000, "shared")])
def test_the_level_found_is_the_slowest_that_was_measured(gb_per_s, level):
    measured = (D2D, bandwidth_record("gpu0", shared=gb_per_s)) if gb_per_s else (D2D,)
    row = placed(bandwidths=measured, level_bytes={"shared": 10_000_000_000})
    assert (row.regime, row.regime_level) == ("memory", level)


def test_a_cell_is_compared_with_the_baselines_of_its_own_case():
    info = SCAN.model_copy(update={"baselines": ["plain", "simple", "missing"]})
    gpu = [
        cell("gpu0", 8e-2, 6e-2),
        cell("gpu0", 4e-2, 2e-2, implementation="simple"),
        cell("gpu0", 2e-2, 1e-2, implementation="fused"),
        cell("gpu0", 1e-2, 1e-2, implementation="fused", n=64),
    ]
    cpu = [cell("cpu", 8e-2, implementation="plain"), cell("cpu", 2e-2, implementation="fused")]
    records = operator_record("gpu0", *gpu, operator=info), operator_record("cpu", *cpu, operator=info)
    roofline = verified(D2D, *records)
    plain, simple, fused, alone, of_cpu, on_cpu = roofline.operators
    ratios = {name: (speed_up.cpu_time_ratio, speed_up.gpu_time_ratio) for name, speed_up in fused.speed_up.items()}
    assert ratios == {"plain": (close(4), close(6)), "simple": (close(2), close(2))}
    assert (set(plain.speed_up), set(simple.speed_up)) == ({"simple"}, {"plain"})
    assert alone.speed_up == of_cpu.speed_up == {}, "no baseline was measured of this case"
    assert (on_cpu.speed_up["plain"].cpu_time_ratio, on_cpu.speed_up["plain"].gpu_time_ratio) == (close(4), None)
    few = gpu[1].model_copy(update={"gpu_time": timing(1e-2, interval=False)})
    above_roof = cell("gpu0", 1e-4, 1e-4)
    *doubtful, sound = verified(D2D, operator_record("gpu0", above_roof, few, gpu[2], operator=info)).operators
    assert [row.doubt for row in doubtful] == ["impossible", "few samples"]
    assert doubtful[1].speed_up == sound.speed_up == {}, "neither of a doubtful time, nor over one"
    graph = cell("gpu0", 1e-2, 1e-2, implementation="fused_graph", graph=True)
    *launched, in_graph = verified(operator_record("gpu0", *gpu, graph, operator=info)).operators
    assert in_graph.speed_up == {} != launched[2].speed_up, "its lead over single launches would be the launches'"


def operation(name="mine", flops=1e9, memory_bytes=2e9, dtype="fp32", **fields):
    return {"name": name, "flops": flops, "memory_bytes": memory_bytes, "dtype": dtype} | fields


def place_operation(**fields):
    return only(verified(FP32, D2D, operations=[operation(**fields)]), "operation")


def test_an_operation_that_the_user_measured():
    row = place_operation(measured_s=4e-3)
    assert (row.name, row.device, row.implementation, row.record) == ("mine", "gpu0", "user", None)
    assert (row.cpu_time_s, row.attained_tflops) == (4e-3, close(0.25))
    assert (row.roof_tflops, row.fraction_of_roof) == (close(0.5), close(0.5))
    assert (row.regime, row.regime_level, place_operation().cpu_time_s) == ("memory", "hbm", None)
    assert (row.estimated_time_s, row.roofline_time_s) == (close(2e-3), close(2e-3))
    assert row.roof_fraction_of_compute_peak == close(0.01)


def test_the_slope_of_an_operation_is_that_of_its_accesses():
    records = FP32, bandwidth_record("gpu0", hbm_read=1000, hbm_copy=800)
    reads, copies = (verified(*records, operations=[operation(mix=mix)]).operators[-1] for mix in ("read", "copy"))
    assert (reads.memory_ceiling, copies.memory_ceiling) == ("hbm_read", "hbm_copy")
    assert copies.roof_tflops == close(0.8 * reads.roof_tflops)


def test_a_copy_that_the_user_timed_has_its_share_of_the_bandwidth():
    row = place_operation(flops=0, measured_s=4e-3)
    assert (row.fraction_of_roof, row.reliable_fraction_of_roof, row.lower_ceiling) == (
        close(0.5),
        close(0.5),
        "memory",
    )
    assert row.attained_tflops == 0 and place_operation(flops=0).fraction_of_roof is None
