"""The checklist, on runs that meet every condition and on runs that miss one. The plot that it reads is a real one."""

import pytest
import samples
from small_run import device_record

from roofline.analysis import acceptance
from roofline.analysis.acceptance import accept
from roofline.analysis.verification import verify
from roofline.records.device import VendorPeak
from roofline.records.roofline import Roofline
from roofline.records.verification import SealCheck
from roofline.report import figures
from roofline.report.interpretation import interpret
from roofline.run.manifest import Results

DTYPES = "3 or more dtypes, each within 30 % of the vendor's peak"
SEQ_LENS = "decode attention at 4 or more S"
PLOT = "the plot with all dots and their ceilings"
BELOW = "no operator above its roof"
UNTHROTTLED = "no ceiling taken under thermal throttling alone"
ENVELOPE = "the HBM envelope is complete"
VERIFIED = "every prediction has its measured counterpart, sealed before it"
QUESTIONS = "the three questions answered"
LISTED = "everything there that the manifest lists"
PEAK = {
    "tflops": 1000,
    "unit": "tensor_core",
    "operations_per_clock_per_multiprocessor": None,
    "source": "made up",
    "verified": True,
    "derived": False,
}


def device(name, match="exact", dtypes=("fp64", "fp32", "fp16", "bf16")):
    peaks = {dtype: VendorPeak(**PEAK) for dtype in dtypes}
    return device_record(name, vendor=device_record().vendor.model_copy(update={"match": match, "peaks": peaks}))


def rented_card():
    """An H200 and its host: roofs of all kinds, with and without dots below them."""
    ceilings = samples.gpu_ceilings("gpu0", ("fp32", "fp16", "bf16", "fp32_fma"), ("d2d", "h2d", "d2h", "l2"))
    ceilings += [
        samples.memory_ceiling("gpu0", name, "hbm", name.removeprefix("hbm_"), gb_per_s, 4800.0)
        for name, gb_per_s in (("hbm_read", 4650.0), ("hbm_write", 4690.0), ("hbm_copy", 4315.0), ("hbm_triad", 4400.0))
    ]
    ceilings += samples.cpu_ceilings(memory=("dram_copy", "dram_read"))
    for ceiling in ceilings:
        ceiling["throttled"] = None if ceiling["device"] == "cpu" else False
    operators = [samples.gemm(ceilings, "gpu0", dtype, "hbm_read") for dtype in ("fp32", "fp16")]
    operators += samples.decode_sweep(ceilings, "gpu0")
    operators += [samples.gemm(ceilings, "cpu", dtype, "dram_read") for dtype in ("fp32", "fp64")]
    fields = {"implementation": "numpy", "overhead_s": 2e-5}
    operators += samples.decode_sweep(ceilings, "cpu", ("fp32",), scopes=("core",), memory="dram_read", **fields)
    return samples.sample_roofline(ceilings=ceilings, operators=operators)


@pytest.fixture(scope="module")
def drawing(tmp_path_factory):
    """The text of the plot of a roofline, drawn once for each."""
    path, drawn = tmp_path_factory.mktemp("plot") / "roofline.svg", {}

    def draw(content):
        key = str(content)
        if key not in drawn:
            figures.draw(content, [path], 80)
            drawn[key] = path.read_text(encoding="utf-8")
        return drawn[key]

    return draw


@pytest.fixture
def judged(drawing):
    """The criteria of a run by device and name: (result, reason)."""

    def judge(content, *, plotted=None, words=None, expected=(), violations=(), **devices):
        roofline = Roofline.model_validate(content)
        described = {name: devices.get(name) or device(name) for name in roofline.devices}
        text = interpret(roofline, described, [], [], []) if words is None else words
        moments = {"sealed_at": "before", "first_measurement_at": "after", "violations": violations}
        seals = [SealCheck(device=name, **moments) for name in roofline.devices]
        verified = verify(roofline, Results(), {}).model_copy(update={"seals": seals})
        found = accept(roofline, described, drawing(plotted or content), text, verified, list(expected))
        return {(c.device, c.criterion): (c.result, c.reason) for c in found.criteria}

    return judge


# ---------------------------------------------------------------------------------------------- the whole


def test_a_whole_run_passes(judged, tmp_path):
    """A run on a rented H200: what does not apply to the CPU is said to be so."""
    (tmp_path / "there.json").write_text("{}")
    found = judged(rented_card(), expected=[str(tmp_path / "there.json")])
    results = {key: result for key, (result, _) in found.items()}
    assert results == {
        ("gpu0", DTYPES): "pass",
        ("gpu0", SEQ_LENS): "pass",
        ("gpu0", PLOT): "pass",
        ("gpu0", BELOW): "pass",
        ("gpu0", UNTHROTTLED): "pass",
        ("gpu0", VERIFIED): "pass",
        ("gpu0", ENVELOPE): "pass",
        ("cpu", DTYPES): "not_applicable",
        ("cpu", SEQ_LENS): "pass",
        ("cpu", PLOT): "pass",
        ("cpu", BELOW): "pass",
        ("cpu", UNTHROTTLED): "not_applicable",
        ("cpu", VERIFIED): "pass",
        (None, QUESTIONS): "pass",
        (None, LISTED): "pass",
    }
    assert all(reason for _, reason in found.values())


# ---------------------------------------------------------------------------------------------- dtypes


def gpu_with(*ceilings):
    """A GPU's ceilings: pairs of a dtype and its fraction of the vendor's peak."""
    made = [
        samples.compute_ceiling("gpu0", name, "tensor_core", 1000 * (fraction or 0.5), None, fraction and 1000)
        for name, fraction in ceilings
    ]
    made.append(samples.memory_ceiling("gpu0", "d2d", "hbm", "copy", 4000, None))
    return samples.sample_roofline(samples.gpu(), made, [], [])


@pytest.mark.parametrize(
    ("ceilings", "result", "reason"),
    [
        ([("fp32", 0.7), ("fp16", 0.8), ("bf16", 0.9)], "pass", "fp32 70 %, fp16 80 %, bf16 90 %"),
        (
            [("fp32", 0.69), ("fp16", 0.8), ("bf16", 0.9), ("fp64", 0.9)],
            "fail",
            "fp32 69 %, fp16 80 %, bf16 90 %, fp64 90 %; further away: fp32",
        ),
        (
            [("fp16", 0.8), ("bf16", 0.9)],
            "fail",
            "2 dtypes were measured against a vendor's peak (fp16 80 %, bf16 90 %)",
        ),
        (
            [("fp32", 0.8), ("fp16", 0.8), ("bf16", None)],
            "fail",
            "2 dtypes were measured against a vendor's peak (fp32 80 %, fp16 80 %)",
        ),
    ],
)
def test_three_dtypes_each_within_thirty_per_cent(judged, ceilings, result, reason):
    assert judged(gpu_with(*ceilings))["gpu0", DTYPES] == (result, reason)


def test_a_card_with_two_dtypes_cannot_show_three(judged):
    content = gpu_with(("fp32", 0.8), ("fp64", 0.8))
    found = judged(content, gpu0=device("gpu0", dtypes=("fp32", "fp64")))
    assert found["gpu0", DTYPES][0] == "not_applicable"


def test_every_dtype_of_the_vendors_counts(judged):
    """The roof that a card promises in int8 or fp8 counts as one in fp64 does."""
    dtypes = ("tf32", "fp8_e4m3", "int8")
    found = judged(gpu_with(*((name, 0.8) for name in dtypes)), gpu0=device("gpu0", dtypes=dtypes))
    assert found["gpu0", DTYPES] == ("pass", "tf32 80 %, fp8_e4m3 80 %, int8 80 %")
    found = judged(gpu_with(("tf32", 0.8), ("int8", 0.8)), gpu0=device("gpu0", dtypes=dtypes))
    assert found["gpu0", DTYPES][0] == "fail"


def test_register_kernels_are_listed_apart(judged):
    """They are no GEMMs: neither does a good one stand in for a dtype, nor does a poor one fail the card."""
    two = [("fp32", 0.8), ("fp16", 0.8), ("fp32_fma", 0.95)]
    assert judged(gpu_with(*two))["gpu0", DTYPES][0] == "fail"
    three = [("fp32", 0.8), ("fp16", 0.8), ("bf16", 0.8), ("fp16_fma", 0.4)]
    assert judged(gpu_with(*three))["gpu0", DTYPES] == (
        "pass",
        "fp32 80 %, fp16 80 %, bf16 80 %; apart from these, in registers: fp16_fma 40 %",
    )


def test_peaks_by_formula_are_told_as_such(judged):
    content = gpu_with(("fp32", 0.8), ("fp16", 0.8), ("bf16", 0.8))
    result, reason = judged(content, gpu0=device("gpu0", match="formula"))["gpu0", DTYPES]
    assert result == "pass" and reason.endswith("; the peaks are by formula")


# ---------------------------------------------------------------------------------------------- lengths


@pytest.mark.parametrize(
    ("kept", "result", "told"),
    [((128, 256, 512, 1024), "pass", "S = 128, 256, 512, 1024"), ((128, 256, 512), "fail", "S = 128, 256, 512")],
)
def test_four_lengths(judged, kept, result, told):
    content = samples.only_cpu()
    content["operators"] = [o for o in content["operators"] if o["shape"].get("seq_len") in kept]
    assert judged(content)["cpu", SEQ_LENS] == (result, told)


def test_no_length_at_all(judged):
    content = samples.no_dots()
    assert judged(content)["gpu0", SEQ_LENS] == ("fail", "S = none")


@pytest.mark.parametrize("kept", ["eager", "fused", "fused_graph", "numpy"])
def test_any_implementation_shows_the_lengths(judged, kept):
    content = samples.every_implementation()
    content["operators"] = [o for o in content["operators"] if o["implementation"] == kept]
    found = judged(content)
    assert sorted(found[device, SEQ_LENS][0] for device in ("gpu0", "cpu")) == ["fail", "pass"]


# ---------------------------------------------------------------------------------------------- the plot


@pytest.mark.parametrize(
    ("text", "dots"),
    [
        ("5.8, 21, 20, 28 %", 4),
        ("0.039, 0.15,", 2),
        ("27 %", 1),
        ("S=128: 5.8 %, 256: 21 %,", 2),
        ("S=128 b=1 16 %", 1),
        ("layer 3 not measured", 1),
        ("0.01", 0),
        ("eager b=256", 0),
        ("joined: S = 128, 256", 0),
        ("fp32 1.06 TFLOPS · 49 % of formula", 0),
    ],
)
def test_how_many_dots_a_text_speaks_of(text, dots):
    assert acceptance._dots_labelled(text) == dots


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        (samples.every_implementation, {"gpu0": "8 ceilings, 71 dots", "cpu": "3 ceilings, 34 dots"}),
        (rented_card, {"gpu0": "4 ceilings, 34 dots", "cpu": "3 ceilings, 10 dots"}),
        (samples.many_operations, {"gpu0": "3 ceilings, 21 dots"}),  # of 22: one has no FLOPs and so no place
    ],
)
def test_what_is_drawn_is_found_in_the_plot(judged, sample, shown):
    """Ceilings that no dot stands under, such as h2d, need no place in the picture; GEMM peaks do."""
    found = judged(sample())
    assert {device: found[device, PLOT] for device in shown} == {key: ("pass", said) for key, said in shown.items()}


def test_each_of_eight_cards_is_found_in_the_plot(judged):
    found = judged(samples.eight_devices())
    assert {found[f"gpu{i}", PLOT][0] for i in range(8)} == {"pass"}


def without_ceiling(content, name):
    """The same run with a ceiling of the GPU's left out, as a picture that does not show it would have it."""
    kept = [c for c in content["ceilings"] if (c["device"], c["name"]) != ("gpu0", name)]
    return content | {"ceilings": kept}


@pytest.mark.parametrize("name", ["fp16", "bf16", "hbm_read"])
def test_a_ceiling_that_is_not_drawn_is_missed(judged, name):
    """Its name stands elsewhere in the picture, as a dtype or in the subtitle: that does not count."""
    found = judged(rented_card(), plotted=without_ceiling(rented_card(), name))
    result, reason = found["gpu0", PLOT]
    assert result == "fail" and f"not in the plot: {name}" in reason
    assert found["cpu", PLOT][0] == "pass"


@pytest.mark.parametrize("name", ["h2d", "l2", "fp16_fma"])
def test_a_ceiling_without_a_dot_may_be_left_out(judged, name):
    found = judged(rented_card(), plotted=without_ceiling(rented_card(), name))
    assert found["gpu0", PLOT][0] == "pass"


def test_a_register_kernels_peak_is_needed_where_an_operator_stands_under_it(judged):
    content = rented_card()
    without = without_ceiling(rented_card(), "fp32_fma")
    row = samples.operation(content["ceilings"], "gpu0", "sums", 1e12, 1e9, 0.1) | {"compute_ceiling": "fp32_fma"}
    content["operators"].append(row)
    assert "not in the plot: fp32_fma" in judged(content, plotted=without)["gpu0", PLOT][1]


def test_a_ceiling_at_another_value_is_missed(judged):
    """A picture of an earlier run."""
    content, earlier = rented_card(), rented_card()
    (fp16,) = [c for c in earlier["ceilings"] if c["name"] == "fp16"]
    fp16["tflops"] *= 1.02
    assert judged(content, plotted=earlier)["gpu0", PLOT] == ("fail", "4 ceilings, 34 dots; not in the plot: fp16")


def test_dots_that_are_not_drawn_are_missed(judged):
    content, without = rented_card(), rented_card()
    without["operators"] = without["operators"][2:]
    result, reason = judged(content, plotted=without)["gpu0", PLOT]
    assert (result, reason) == ("fail", "4 ceilings, 34 dots; 2 dots have no label in the plot")


def test_a_device_that_is_not_drawn_is_missed(judged):
    result, reason = judged(rented_card(), plotted=samples.only_cpu())["gpu0", PLOT]
    assert result == "fail" and "34 dots have no label" in reason


@pytest.mark.parametrize("kind", ["compute", "memory"])
def test_a_plot_needs_both_kinds_of_ceiling(judged, kind):
    content = samples.only_cpu()
    content["ceilings"] = [c for c in content["ceilings"] if c["kind"] != kind]
    content["operators"] = []
    result, reason = judged(content)["cpu", PLOT]
    assert result == "fail" and f"0 {kind}" in reason


# ---------------------------------------------------------------------------------------------- roofs


def above(device, number):
    return {
        "device": device,
        "operator": f"gemm {number}",
        "record": None,
        "fraction_of_roof": 1.5,
        "wrong_roof": "fp16",
        "cache": None,
        "evidence": f"evidence {number}",
    }


def test_operators_above_their_roof_fail_the_device_that_they_are_on(judged):
    content = rented_card() | {"above_roof": [above("gpu0", i) for i in range(5)]}
    found = judged(content)
    told = "gemm 0: evidence 0; gemm 1: evidence 1; gemm 2: evidence 2; and 2 more"
    assert found["gpu0", BELOW] == ("fail", told)
    allowed = "which one without an interval may pass by 5 %"
    assert found["cpu", BELOW] == ("pass", f"10 operators were held against a roof, {allowed}")


def test_without_operators_none_is_below_a_roof(judged):
    result, reason = judged(samples.no_dots())["gpu0", BELOW]
    assert result == "not_applicable" and reason.startswith("0 operators were held against a roof")


@pytest.mark.parametrize(
    ("throttled", "result", "told"),
    [
        ({}, "not_applicable", "the device does not tell when it throttles"),
        ({"fp16": False}, "pass", "1 ceilings; of fp32, d2d the device does not tell"),
        ({"fp32": False, "fp16": False, "d2d": False}, "pass", "3 ceilings"),
        ({"fp16": True, "d2d": True}, "fail", "of 3 ceilings, every sample was throttled of fp16, d2d"),
    ],
)
def test_ceilings_under_thermal_throttling(judged, throttled, result, told):
    content = samples.sample_roofline(samples.gpu(), samples.gpu_ceilings("gpu0", ("fp32", "fp16"), ("d2d",)), [], [])
    for ceiling in content["ceilings"]:
        ceiling["throttled"] = throttled.get(ceiling["name"])
    assert judged(content)["gpu0", UNTHROTTLED] == (result, told)


@pytest.mark.parametrize(
    ("names", "result", "told"),
    [
        ((), "not_applicable", "none of its mixes was asked for"),
        (("hbm_read", "hbm_triad"), "fail", "missing: hbm_write, hbm_copy"),
        (
            ("hbm_read", "hbm_write", "hbm_copy", "hbm_triad"),
            "pass",
            "hbm_read, hbm_write, hbm_copy, hbm_triad; the highest: hbm_write, 4690 GB/s",
        ),
    ],
)
def test_the_envelope_of_hbm(judged, names, result, told):
    content = rented_card()
    kept = [c for c in content["ceilings"] if not c["name"].startswith("hbm_") or c["name"] in names]
    assert judged(content | {"ceilings": kept})["gpu0", ENVELOPE] == (result, told)


def test_a_cpu_has_no_hbm_to_complete(judged):
    assert ("cpu", ENVELOPE) not in judged(samples.only_cpu())


# ---------------------------------------------------------------------------------------------- words and files


def test_a_heading_without_an_answer_is_no_answer(judged):
    words = "# Title\n\n## 1. One?\n\nYes.\n\n## 2. Two?\n\n## 3. Three?\n\nNo.\n"
    assert judged(rented_card(), words=words)[None, QUESTIONS] == ("fail", "2 of 3 in interpretation.md")


def test_one_device_alone_cannot_answer_the_third(judged):
    result, reason = judged(samples.only_cpu())[None, QUESTIONS]
    assert result == "pass"
    assert reason.endswith("the third needs a GPU and the CPU, and only cpu was measured")


def test_what_the_manifest_will_list_must_be_there(judged, tmp_path):
    there, gone = tmp_path / "there.json", tmp_path / "gone.json"
    there.write_text("{}")
    found = judged(samples.only_cpu(), expected=[str(there), str(gone)])
    assert found[None, LISTED] == ("fail", f"missing: {gone}")
    assert judged(samples.only_cpu(), expected=[str(there)])[None, LISTED] == ("pass", "1 files")


# ---------------------------------------------------------------------------------------------- predictions


def two_products(**fields):
    """A GPU with two products; the second as the fields say."""
    ceilings = samples.gpu_ceilings("gpu0")
    first, second = (samples.gemm(ceilings, "gpu0", dtype, "hbm_read") for dtype in ("fp32", "fp16"))
    return samples.sample_roofline(samples.gpu(), ceilings, [first, second | fields], [])


UNSEALED = two_products()["operators"][0]["predicted"] | {"sealed": None}


def test_predictions_with_their_counterparts_pass(judged):
    assert judged(two_products())["gpu0", VERIFIED] == ("pass", "2 cells, sealed at before, first measured at after")


@pytest.mark.parametrize(
    ("fields", "lack"),
    [
        ({"regime": None}, "no regime found, for want of a ceiling"),
        ({"latency_s": None, "attained_tflops": None, "fraction_of_roof": None}, "no measured time"),
        ({"predicted": UNSEALED}, "no sealed prediction"),
    ],
)
def test_a_prediction_or_a_measurement_that_is_missing_fails(judged, fields, lack):
    assert judged(two_products(**fields))["gpu0", VERIFIED] == ("fail", f"of 2 cells 1 have {lack}")


def test_a_broken_seal_fails(judged):
    broken = judged(two_products(), violations=["it began before"])
    assert broken["gpu0", VERIFIED] == ("fail", "it began before")


def test_nothing_predicted_is_nothing_to_verify(judged):
    found = judged(samples.no_dots(), plotted=two_products())
    assert found["gpu0", VERIFIED] == ("not_applicable", "nothing was predicted")
