"""The checklist, on runs that meet every condition and on runs that miss one. The plot that it reads is a real one."""

import pytest
import samples
from small_run import device_record

from roofline import figures
from roofline.acceptance import accept
from roofline.interpretation import interpret
from roofline.records import Roofline, VendorPeak

DTYPES = "3 or more dtypes, each within 30 % of the vendor's peak"
SEQ_LENS = "decode attention at 4 or more S"
PLOT = "the plot with all ceilings and dots"
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

    def judge(content, *, plotted=None, words=None, expected=(), **devices):
        roofline = Roofline.model_validate(content)
        described = {name: devices.get(name) or device(name) for name in roofline.devices}
        text = interpret(roofline, described, [], [], []) if words is None else words
        found = accept(roofline, described, drawing(plotted or content), text, list(expected))
        return {(c.device, c.criterion): (c.result, c.reason) for c in found.criteria}

    return judge


# ---------------------------------------------------------------------------------------------- the whole


def test_a_whole_run_passes(judged, tmp_path):
    """A default run on a rented H200: what does not apply to the CPU is said to be so."""
    (tmp_path / "there.json").write_text("{}")
    found = judged(samples.default_run(), expected=[str(tmp_path / "there.json")])
    results = {key: result for key, (result, _) in found.items()}
    assert results == {
        ("gpu0", DTYPES): "pass",
        ("gpu0", SEQ_LENS): "pass",
        ("gpu0", PLOT): "pass",
        ("cpu", DTYPES): "not_applicable",
        ("cpu", SEQ_LENS): "pass",
        ("cpu", PLOT): "pass",
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


# ---------------------------------------------------------------------------------------------- the plot


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("default_run", {"gpu0": "10 ceilings, 34 dots", "cpu": "4 ceilings, 10 dots"}),
        ("many_operations", {"gpu0": "5 ceilings, 21 dots"}),  # of 22: one has no FLOPs and so no place
        ("eight_devices", {f"gpu{i}": "10 ceilings, 18 dots" for i in range(8)}),
    ],
)
def test_what_is_drawn_is_found_in_the_plot(judged, name, shown):
    found = judged(samples.SAMPLES[name]())
    assert {device: found[device, PLOT] for device in shown} == {key: ("pass", said) for key, said in shown.items()}


@pytest.mark.parametrize("name", ["fp16", "fp32", "d2d", "h2d"])
def test_a_ceiling_that_is_not_drawn_is_missed(judged, name):
    """Its name stands elsewhere in the picture, as a dtype or in the subtitle: that does not count."""
    content, without = samples.default_run(), samples.default_run()
    without["ceilings"] = [c for c in without["ceilings"] if (c["device"], c["name"]) != ("gpu0", name)]
    found = judged(content, plotted=without)
    result, reason = found["gpu0", PLOT]
    assert result == "fail" and f"not in the plot: {name}" in reason
    assert found["cpu", PLOT][0] == "pass"


def test_a_ceiling_at_another_value_is_missed(judged):
    """A picture of an earlier run."""
    content, earlier = samples.default_run(), samples.default_run()
    (fp16,) = [c for c in earlier["ceilings"] if c["name"] == "fp16"]
    fp16["tflops"] *= 1.02
    assert judged(content, plotted=earlier)["gpu0", PLOT] == ("fail", "10 ceilings, 34 dots; not in the plot: fp16")


def test_dots_that_are_not_drawn_are_missed(judged):
    content, without = samples.default_run(), samples.default_run()
    without["operators"] = without["operators"][2:]
    result, reason = judged(content, plotted=without)["gpu0", PLOT]
    assert (result, reason) == ("fail", "10 ceilings, 34 dots; 2 dots have no label in the plot")


def test_a_device_that_is_not_drawn_is_missed(judged):
    result, reason = judged(samples.default_run(), plotted=samples.only_cpu())["gpu0", PLOT]
    assert result == "fail" and "34 dots have no label" in reason


@pytest.mark.parametrize("kind", ["compute", "memory"])
def test_a_plot_needs_both_kinds_of_ceiling(judged, kind):
    content = samples.only_cpu()
    content["ceilings"] = [c for c in content["ceilings"] if c["kind"] != kind]
    content["operators"] = []
    result, reason = judged(content)["cpu", PLOT]
    assert result == "fail" and f"0 {kind}" in reason


# ---------------------------------------------------------------------------------------------- words and files


def test_a_heading_without_an_answer_is_no_answer(judged):
    words = "# Title\n\n## 1. One?\n\nYes.\n\n## 2. Two?\n\n## 3. Three?\n\nNo.\n"
    assert judged(samples.default_run(), words=words)[None, QUESTIONS] == ("fail", "2 of 3 in interpretation.md")


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
