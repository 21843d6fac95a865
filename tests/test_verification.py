"""Predictions held against measurements: errors, regimes, the measured cause of a gap, what helps, and the page."""

import re
from itertools import pairwise

import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st
from samples import JOB, peak_record, timing
from small_run import BANDWIDTH, device_record

from roofline.analysis.collect import place
from roofline.analysis.verification import error, error_statistics, summarise, verify
from roofline.core.prediction import CONSTANT_SOURCES, CONSTANTS, way_of
from roofline.operators.decode_attention import operator as attention
from roofline.records import DecodeAttnRecord
from roofline.records.base import write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import Measurement
from roofline.records.prediction import PredictionRecord, predict_sealed
from roofline.records.timing import Timing
from roofline.records.verification import Verification
from roofline.report.verification_text import markdown
from roofline.run.manifest import Results

US = 1e-6
PROMISED = {"gpu0": {"fp32": 67.0, "fp16": 990.0, "hbm_read": 4800.0}, "cpu": {"fp32": 2.0, "dram_read": 160.0}}
MEASURED = {"gpu0": {"fp32": 55.0, "fp16": 800.0, "hbm_read": 4700.0}, "cpu": {"fp32": 1.6, "dram_read": 120.0}}
LAYERS = 6
EARLIER = "2026-11-05T11:59:00+00:00"
SEALED_JOB = JOB | {"seal_sha256": "of the seal"}
# What the seal of these tests assumes, whatever the model's own constants become.
CALLS, STARTS = 8 * US, 3.5 * US
ASSUMED = {"gpu_fused_core_call_s": CALLS, "gpu_fused_core_start_s": STARTS, "gpu_fused_share": 0.95}
ASSUMED |= {"cpu_numpy_core_call_s": 30 * US, "cpu_numpy_fp32_share": 0.8}


# ---------------------------------------------------------------------------------------------- cells by hand


def seal(device: str, promised: dict[str, float]) -> PredictionRecord:
    ceilings = []
    for name, value in promised.items():
        memory = name.endswith("_read")
        figure = {"kind": "memory", "gb_per_s": value} if memory else {"kind": "compute", "tflops": value}
        derived = device == "cpu"
        ceilings.append({"name": name, "source": "made up", "verified": True, "derived": derived, **figure})
    return PredictionRecord(
        device=device,
        device_kind=device.rstrip("0"),
        sealed_at=EARLIER,
        device_record_sha256="of the device",
        model_source_sha256="0" * 64,
        ceilings=ceilings,
        constants=CONSTANTS | ASSUMED,
        constant_sources=CONSTANT_SOURCES,
    )


def cell(latency_us, device_us=None, *, start_us=None, calls_us=None, batch=1, seq_len=128, **fields) -> Measurement:
    """A step of decode attention; its prediction is filled in by `verified`."""
    dtype, scope = fields.get("dtype", "fp16"), fields.get("scope", "core")
    on_gpu = device_us is not None
    shape = attention.Shape(batch, heads=8, kv_heads=8, head_size=64, seq_len=seq_len)
    known = {
        "operator": attention.OPERATOR,
        "implementation": "fused" if on_gpu else "numpy",
        "preset": "minigpt",
        "scope": scope,
        "dtype": dtype,
        "cache": "cold",
        "shape": shape.as_dict(),
        "flops": attention.flops(shape, scope),
        "bytes": attention.traffic_bytes(shape, dtype, scope),
        "compute_ceiling": dtype,
        "memory_ceilings": ["hbm_read", "d2d"] if on_gpu else ["dram_read", "dram_copy"],
        "memory_level": "hbm" if on_gpu else "dram",
        "predicted": {"regime": "memory", "latency_s": 1, "fraction_of_compute_peak": 1},
        "check": {"compared": "made up", "error": 0, "tolerance": 1},
        "latency": timing(latency_us * US),
        "device_latency": timing(device_us * US) if on_gpu else None,
        "overhead_s": calls_us and calls_us * US,
        "device_overhead_s": start_us and start_us * US,
        "states": [],
    }
    return Measurement.model_validate(known | fields)


def memory_record(device: str, name: str, gb_per_s: float) -> BandwidthRecord:
    level, mix = name.split("_")
    taken = Timing(**timing(BANDWIDTH.bytes / gb_per_s / 1e9, interval=False))
    told = {"name": name, "level": level, "mix": mix, "gb_per_s": gb_per_s, "latency": taken}
    told["blocks_gb_per_s"] = [gb_per_s]
    return BandwidthRecord(device=device, level=level, bandwidths=[BANDWIDTH.model_copy(update=told)], **SEALED_JOB)


def bare_peak(device: str, dtype: str, tflops: float, **fields) -> PeakFlopsRecord:
    """A compute ceiling without the square product beside it."""
    record = peak_record(device, dtype, tflops, **fields).model_copy(update=SEALED_JOB)
    record.peak.lab = None
    return record


def attention_record(device: str, *cells: Measurement) -> DecodeAttnRecord:
    weights = {"path": "w", "sha256": "", "generated": True, "naming": "minigpt", "hidden_state": "made up"}
    names = {"preset": "minigpt", "seq_len": cells[0].shape["seq_len"], "dtype": cells[0].dtype}
    return DecodeAttnRecord(device=device, weights=weights, note=None, measurements=list(cells), **names, **SEALED_JOB)


def run_of(*cells: Measurement, device="gpu0", measured=None, promised=None, peaks=(), labs=()):
    """A roofline of cells under these ceilings, each predicted as sealed, with the records that it was made from."""
    sealed = seal(device, PROMISED[device] if promised is None else promised)
    for one in (*cells, *labs):
        work = {"flops": one.flops, "traffic_bytes": one.bytes, "compute_ceiling": one.compute_ceiling}
        one.predicted = predict_sealed(sealed, **work, way=way_of(one))
    measured = MEASURED[device] if measured is None else measured
    given = {peak.dtype for peak in peaks}
    by_path = {f"{device}/peak_flops/{peak.dtype}.json": peak for peak in peaks}
    for name, value in measured.items():
        if name.endswith("_read"):
            by_path[f"{device}/bandwidth/{name}.json"] = memory_record(device, name, value)
        elif name not in given:
            by_path[f"{device}/peak_flops/{name}.json"] = bare_peak(device, name, value)
    for number, one in enumerate(cells):
        by_path[f"{device}/decode_attn/{number}.json"] = attention_record(device, one)

    def of(kind):
        return [(path, record) for path, record in by_path.items() if isinstance(record, kind)]

    card = (f"{device}/device_query.json", device_record(device))
    roofline = place({device: card}, of(PeakFlopsRecord), of(BandwidthRecord), of(DecodeAttnRecord), [])
    found = Results(
        devices={device: (f"results/{card[0]}", card[1])},
        seals={device: (f"results/{device}/prediction.json", sealed)},
        measured=[(f"results/{path}", record) for path, record in by_path.items()],
    )
    return roofline, found


def verified(*cells: Measurement, **how) -> Verification:
    roofline, found = run_of(*cells, **how)
    hashes = {path: "of the device" for path, _ in found.devices.values()}
    return verify(roofline, found, hashes | {path: "of the seal" for path, _ in found.seals.values()})


def only(*cells: Measurement, **how):
    (entry,) = verified(*cells, **how).entries
    return entry


# ---------------------------------------------------------------------------------------------- errors


def test_an_error_is_signed_and_a_share_of_what_was_measured():
    assert error(0.5, 1.0) == -0.5
    assert error(3.0, 1.0) == 2.0
    assert error(None, 1.0) is error(1.0, None) is None


def test_a_right_prediction_has_no_error_and_nothing_to_explain():
    one = cell(8, 4, seq_len=1, start_us=STARTS / US, calls_us=CALLS / US)
    entry = only(one)
    assert abs(entry.sealed_error) < 1e-6
    assert (entry.sealed.regime, entry.regime, entry.sealed_named_rightly) == ("overhead", "overhead", True)
    assert (entry.cause, entry.gap) == ("close", "predicted within 1 %, nothing to explain")


def test_a_wrong_prediction_is_told_with_what_the_regime_turned_on():
    """The calls took forty times what was assumed: predicted to be bound by memory, and bound by its calls."""
    entry = only(cell(320, 116, batch=256, seq_len=1024, start_us=3.5, calls_us=318))
    assert (entry.sealed.regime, entry.regime, entry.sealed_named_rightly) == ("memory", "overhead", False)
    assert entry.sealed_error == pytest.approx(entry.sealed.latency_s / (320 * US) - 1)
    assert entry.cause == "calls"
    assert entry.gap == (
        "the calls cost 320 us (8 us assumed) and the device waits for them: 2.76 times its 116 us; "
        "named memory and found overhead, since the device works for 36 % of the caller's time"
    )


def test_the_device_has_an_error_of_its_own():
    entry = only(cell(8, 4, start_us=3.5, calls_us=8))
    assert entry.sealed_device_error == pytest.approx(entry.sealed.device_latency_s / (4 * US) - 1)
    assert only(cell(40, calls_us=30, dtype="fp32"), device="cpu").sealed_device_error is None


# ---------------------------------------------------------------------------------------------- causes


def big(latency_us, device_us, **fields):
    """1.07 GB and so 229 us of hbm_read, whose calls nobody waits for."""
    fields = {"start_us": 3.5, "calls_us": 8} | fields
    return cell(latency_us, device_us, batch=512, seq_len=1024, **fields)


def by_memory(gb_per_s):
    """The time of `big` at a bandwidth, with the start and the share that the model takes, in microseconds."""
    return 3.5 + 512 * 8 * 1024 * 64 * 2 * 2 / (gb_per_s * 0.95 * 1e3)


CAUSES = {
    "calls that the device waits for": (
        cell(12, 4, start_us=3.4, calls_us=11.9),
        "calls",
        r"the calls cost 12 us \(8 us assumed\) and the device waits for them: 3 times its 4 us$",
    ),
    "calls of a device that is its own caller": (
        cell(60, calls_us=55, dtype="fp32", seq_len=16),
        "calls",
        r"the calls cost 55 us of the 60 us \(30 us assumed\)$",
    ),
    "a start": (
        cell(30, 29.5, start_us=28, calls_us=8),
        "start",
        r"starting the same code takes 28 us of the device's 29.5 us \(3.5 us assumed\)$",
    ),
    "a memory that is slower than promised": (
        big(by_memory(4700), by_memory(4700)),
        "memory_ceiling",
        "the datasheet promises 4800 GB/s, this run's hbm_read gave 4700$",
    ),
    "a share of the roof": (
        big(400, 399.5),
        "share_of_roof",
        "once started, the device attained 58 % of hbm_read, where the model expects 95 %$",
    ),
    "what starting leaves": (
        cell(8.9, 8.8, start_us=4.5, calls_us=8, seq_len=1024),
        "share_of_roof",
        "starting the same code takes 4.5 us of the device's 8.8 us, and the other 4.3 us are",
    ),
}


@pytest.mark.parametrize(("one", "cause", "words"), CAUSES.values(), ids=CAUSES.keys())
def test_the_sentence_names_the_measured_cause(one, cause, words):
    entry = only(one, device="gpu0" if one.device_latency else "cpu")
    assert entry.cause == cause
    assert re.search(words, entry.gap.split("; named")[0]), entry.gap


def product(latency_us, **fields) -> Measurement:
    """The square product of a compute ceiling."""
    lab = samples.lab_block("gpu0", "fp16", 2 * 4096**3 / (latency_us * US) / 1e12)
    return Measurement.model_validate(lab | fields)


def with_product(lab: Measurement, tflops: float, **fields):
    """What is said of a product under its ceiling."""
    peak = bare_peak("gpu0", "fp16", tflops, **fields)
    peak.peak.lab = lab
    return only(peaks=[peak], labs=[lab], measured={"hbm_read": 4700.0})


def test_a_ceiling_below_the_promise_is_the_cause_of_a_slower_product():
    entry = with_product(product(176), 800.0)
    assert entry.cause == "compute_ceiling"
    assert entry.gap == "the datasheet promises 990 TFLOPS, this run's fp16 reached 800"


def test_the_clock_is_the_cause_where_it_accounts_for_the_lower_ceiling():
    load = samples.sustained(800.0, 700.0, ["sw_power_cap"])
    entry = with_product(product(176), 800.0, load=load, vendor=990.0, clock=(1500.0, 850.0))
    assert entry.cause == "clock"
    wanted = "the clock fell to 1500 MHz under power cap, and the promised 990 TFLOPS want 1747"
    assert entry.gap == wanted


def test_a_clock_near_the_promised_one_is_no_cause():
    entry = with_product(product(176), 800.0, vendor=990.0, clock=(1700.0, 970.0))
    assert entry.cause == "compute_ceiling"


def test_a_products_own_clock_is_told_where_its_ceiling_ran_faster():
    states = [{"at_s": 0.1, "when": "during", "throttle_reasons": ["sw_power_cap"]}]
    lab = product(230, sm_clock_mhz=1100.0, states=states)
    entry = with_product(lab, 990.0, vendor=990.0, clock=(1750.0, 990.0))
    assert entry.cause == "own_clock"
    assert entry.gap == "the clock fell to 1100 MHz under power cap, from 1750 under its ceiling's load"


def test_where_no_roof_was_measured_nothing_explains_what_is_left():
    entry = only(big(400, 399.5), measured={"fp32": 55.0})
    assert (entry.cause, entry.regime) == ("unexplained", None)
    assert entry.gap == "nothing that was measured explains it"


@pytest.mark.parametrize("missing", ["seals", "measured"])
def test_without_the_seal_or_the_record_nothing_explains_the_gap(missing):
    roofline, found = run_of(big(400, 399.5))
    setattr(found, missing, type(getattr(found, missing))())
    hashes = {"results/gpu0/device_query.json": "of the device", "results/gpu0/prediction.json": "of the seal"}
    (entry,) = verify(roofline, found, hashes).entries
    assert (entry.cause, entry.parts) == ("unexplained", [])
    assert entry.sealed_error is not None and entry.from_ceilings_error is not None


TIMES = st.floats(0.1, 1e4)


@given(TIMES, st.floats(0.01, 1.0), TIMES, TIMES, st.sampled_from([1, 64]), st.sampled_from([1, 300, 4096]))
def test_the_parts_add_up_to_the_gap_and_the_cause_is_the_largest_in_its_direction(
    latency, busy, calls, start, batch, seq_len
):
    one = cell(latency, busy * latency, start_us=start, calls_us=calls, batch=batch, seq_len=seq_len)
    entry = only(one)
    gap_s = entry.latency_s - entry.sealed.latency_s
    assert sum(part.seconds for part in entry.parts) == pytest.approx(gap_s, abs=1e-12)
    if entry.cause == "close":
        assert abs(gap_s) <= 0.0101 * entry.latency_s
    else:
        named = next(part.seconds for part in entry.parts if part.cause == entry.cause)
        assert named * gap_s > 0
        assert all(abs(named) >= abs(part.seconds) for part in entry.parts if part.seconds * gap_s > 0)
    assert "; named" in entry.gap or entry.sealed_named_rightly


# ---------------------------------------------------------------------------------------------- remedies


def words(entry):
    return entry.regime, entry.remedies


def test_what_helps_follows_from_the_regime_and_not_from_what_is_done_already():
    overhead = {"start_us": 3.4, "calls_us": 20}
    eager, fused = ({"implementation": name} for name in ("eager", "fused"))
    graph = {"implementation": "fused_graph", "layers": LAYERS}
    assert words(only(cell(20, 4, **overhead, **eager))) == ("overhead", ["cuda_graph", "fusion", "larger_batch"])
    assert words(only(cell(20, 4, **overhead, **fused))) == ("overhead", ["cuda_graph", "larger_batch"])
    assert words(only(cell(20, 4, **overhead, **graph))) == ("overhead", ["larger_batch"])
    assert words(only(big(900, 899, **eager))) == ("memory", ["fusion"])
    for way in (fused, graph):
        assert words(only(big(300, 299, **way))) == ("memory", ["grouped_queries"])
    assert words(only(cell(40, calls_us=30, dtype="fp32"), device="cpu"))[1] == ["fusion", "larger_batch"]


@pytest.mark.parametrize(
    ("dtype", "unit", "remedies"),
    [
        ("fp32", "cuda_core", ["tensor_cores", "lower_precision"]),
        ("fp16", "tensor_core", ["lower_precision"]),
        ("fp8_e4m3", "tensor_core", []),
    ],
)
def test_tensor_cores_and_lower_precision_help_what_is_bound_by_compute(dtype, unit, remedies):
    lab = Measurement.model_validate(samples.lab_block("gpu0", dtype, 50.0))
    peak = bare_peak("gpu0", dtype, 55.0, unit=unit)
    peak.peak.lab = lab
    entry = only(peaks=[peak], labs=[lab], promised={dtype: 60.0, "hbm_read": 4800.0}, measured={"hbm_read": 4700.0})
    assert words(entry) == ("compute", remedies)


# ---------------------------------------------------------------------------------------------- summary


def test_cells_are_counted_by_device_implementation_and_regime_and_all_that_is_fused_as_one():
    small, large = cell(20, 4, start_us=3.4, calls_us=19.9), big(300, 299)
    graph = {"implementation": "fused_graph", "layers": LAYERS}
    found = verified(small, large, big(280, 279, **graph), cell(30, 14, implementation="eager", calls_us=20))
    counted = [(group.implementations, group.regime, group.cells) for group in found.summary]
    assert counted == [
        (["fused"], "memory", 1),
        (["fused"], "overhead", 1),
        (["fused_graph"], "memory", 1),
        (["eager"], "overhead", 1),
        (["fused", "fused_graph"], "all", 3),
    ]


def test_cells_without_a_regime_are_a_line_of_their_own_and_judge_none():
    (alone, fused) = verified(big(300, 299), measured={"fp32": 55.0}).summary
    assert (alone.regime, alone.cells, fused.cells) == ("not_found", 1, 1)
    assert (alone.sealed.regimes, alone.sealed.share_named_rightly) == (0, None)
    assert alone.sealed.latency.cells == 1 and alone.from_ceilings.latency is None


NUMBERS = st.floats(-1, 1e6, allow_nan=False)


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_median_and_worst_are_of_absolute_errors(errors):
    found = error_statistics(errors)
    sizes = sorted(map(abs, errors))
    assert (found.cells, found.worst) == (len(errors), sizes[-1])
    assert sum(size <= found.median for size in sizes) * 2 >= len(sizes)
    assert sum(size >= found.median for size in sizes) * 2 >= len(sizes)


def test_of_no_errors_there_is_no_median():
    assert error_statistics([]) is None


@pytest.fixture(scope="module")
def template():
    return only(big(300, 299))


@given(st.lists(st.tuples(st.sampled_from(["fused", "fused_graph", "eager"]), st.booleans() | st.none(), NUMBERS)))
def test_every_cell_counts_once_in_its_group_and_once_in_what_is_fused(template, drawn):
    entries = [
        template.model_copy(update={"implementation": name, "sealed_named_rightly": right, "sealed_error": size})
        for name, right, size in drawn
    ]
    groups = summarise(entries)
    single = [group for group in groups if group.regime != "all"]
    fused = [group for group in groups if group.regime == "all"]
    assert sum(group.cells for group in single) == len(entries)
    assert sum(group.cells for group in fused) == sum(name != "eager" for name, _, _ in drawn)
    for group in groups:
        mine = [entry for entry in entries if entry.implementation in group.implementations]
        named = [entry.sealed_named_rightly for entry in mine if entry.sealed_named_rightly is not None]
        assert (group.sealed.regimes, group.sealed.named_rightly) == (len(named), sum(named))
        assert group.sealed.share_named_rightly == (sum(named) / len(named) if named else None)
        assert group.sealed.latency.worst == max(abs(entry.sealed_error) for entry in mine)


# ---------------------------------------------------------------------------------------------- the seal


def test_a_record_under_another_seal_or_another_prediction_is_told():
    roofline, found = run_of(big(300, 299))
    hashes = {"results/gpu0/device_query.json": "of the device", "results/gpu0/prediction.json": "of the seal"}
    (check,) = verify(roofline, found, hashes).seals
    assert (check.device, check.sealed_at, check.violations) == ("gpu0", EARLIER, [])
    assert check.first_measurement_at == JOB["started_at"]
    attention = next(record for _, record in found.measured if record.kind == "decode_attn")
    attention.measurements[0].predicted.regime = "overhead"
    (check,) = verify(roofline, found, hashes).seals
    assert len(check.violations) == 1 and "another prediction" in check.violations[0]
    (check,) = verify(roofline, found, hashes | {"results/gpu0/prediction.json": "of another"}).seals
    assert any("under another seal" in line for line in check.violations)


# ---------------------------------------------------------------------------------------------- the page


def many():
    """130 cells of a GPU, of three implementations, right and wrong ones."""
    cells = []
    for number in range(130):
        name = ("eager", "fused", "fused_graph")[number % 3]
        layers = LAYERS if name == "fused_graph" else 1
        latency = 3 + number**1.4
        busy = 0.6 if number % 5 == 0 else 0.95
        more = {"implementation": name, "layers": layers, "batch": 1 + number, "seq_len": 64 + number}
        cells.append(cell(latency, busy * latency, start_us=2, calls_us=0.6 * latency, **more))
    return verified(*cells)


def test_the_page_opens_with_the_summary_and_lists_every_cell_worst_first_and_a_sentence_on_each():
    found = many()
    text = markdown(found)
    assert text.index("| device | implementation |") < text.index("## Cells") < text.index("## What explains")
    rows = [line for line in text.splitlines() if line.startswith("| minigpt core")]
    sentences = [line for line in text.splitlines() if line.startswith("- **minigpt core")]
    assert len(rows) == len(sentences) == 130
    assert sum("| **no** |" in row for row in rows) == sum(not e.sealed_named_rightly for e in found.entries) > 0
    assert max(len(line) for line in text.splitlines()) < 600
    for section in re.split(r"^### ", text.split("## What explains")[0], flags=re.MULTILINE)[1:]:
        sizes = [size_of(row.split(" | ")[3]) for row in section.splitlines() if row.startswith("| minigpt")]
        assert all(first >= second for first, second in pairwise(sizes))


def size_of(told: str) -> float:
    """An absolute error as the page says it."""
    number, unit = told.lstrip("+-").split(" ")
    return float(number) * (1 if unit == "times" else 0.01)


def test_tables_are_whole():
    """Every row of a table has as many columns as its head."""
    blocks = re.findall(r"(?:^\|.*\n)+", markdown(many()), re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_a_cell_without_a_regime_or_a_prediction_is_a_row_too():
    text = markdown(verified(big(300, 299), measured={"fp32": 55.0}))
    assert "| not found |" in text and "No regime was found" in text
    assert "No prediction has a measured counterpart." in text


def test_what_a_call_takes_stands_beside_an_empty_kernel():
    """One figure a record, whatever cells it has; the median over records; nothing where nothing was measured."""
    empty = {"empty_kernel_s": 7 * US, "empty_kernel_device_s": 2 * US}
    cells = [cell(20, 15, start_us=start, calls_us=calls, **empty) for start, calls in ((3, 9), (4, 8), (5, 12))]
    found = verified(*cells, cell(300, 299, implementation="eager"))
    (call,) = found.calls
    assert (call.device, call.implementation, call.scope, call.records) == ("gpu0", "fused", "core", 3)
    assert (call.smallest_s, call.smallest_device_s) == pytest.approx((9 * US, 4 * US))
    assert (call.empty_kernel_s, call.empty_kernel_device_s) == pytest.approx((7 * US, 2 * US))
    assert "| gpu0 | fused | core | 3 | 9 us | 4 us | 7 us | 2 us |" in markdown(found)
    assert "What a call takes" not in markdown(verified(cell(300, 299)))


def test_the_record_is_written_and_read_back(tmp_path):
    found = many()
    write(found, tmp_path / "verification.json")
    assert Verification.model_validate_json((tmp_path / "verification.json").read_text()) == found
