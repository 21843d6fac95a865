"""The vendor's figures: the table itself, the formula beside it, and which of the two a device gets."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import FIRST_CAPABILITY
from roofline.devices import datasheets

PATH = Path(__file__).parents[1] / "config" / "datasheets.yaml"
SHEETS = datasheets.load(PATH)
CARDS = SHEETS["cards"]
NAMES = [name for card in CARDS.values() for name in card["device_names"]]

# How far the formula may be from the printed figure. Rounding in the sheets takes up to 1.3 %; beyond that:
TOLERANCE = 0.013
LOOSER = {
    ("b300-hgx", "fp32"): 0.028,  # the sheet repeats the B200's 75 at a higher clock
    ("gb300", "fp64_fma"): 0.033,  # 1.258 printed as 1.3
    ("gb300", "fp64"): 0.033,
    ("gb300", "int8"): 0.033,  # 24 sparse POPS for 72 cards
}


def reported(entry_id: str, **changes) -> dict:
    """What a whole card of the table would report, with some of it changed."""
    card = CARDS[entry_id]
    return {
        "name": card["device_names"][0],
        "compute_capability": card["compute_capability"],
        "multiprocessors": card["multiprocessors"],
        "memory_bytes": round(card["memory_gb"] * 1e9),
        "sm_clock_max_mhz": card["boost_clock_mhz"],
        "memory_clock_max_mhz": 3201,
        "memory_bus_width_bits": 6144,
        **changes,
    }


def figures(entry_id: str, **changes) -> dict:
    return datasheets.vendor_figures(SHEETS, **reported(entry_id, **changes))


def stranger(**changes) -> dict:
    """The figures of a card that the table does not have."""
    return figures("h200-sxm", **{"name": "NVIDIA Unheard-of", **changes})


# ---------------------------------------------------------------- the formula


@pytest.mark.parametrize("entry_id", CARDS)
def test_formula_reproduces_every_printed_figure(entry_id):
    """No evidence where the figure came from the formula, or the clock from the figure: see the file's header."""
    printed = figures(entry_id)["peaks"]
    # A whole card that calls itself a MIG slice gets the formula, with the clocks of the card.
    derived = figures(entry_id, mig=True)["peaks"]
    assert printed.keys() == derived.keys()
    for ceiling, peak in printed.items():
        figure = datasheets.CUDA_CORE_FIGURE[ceiling] if peak["unit"] == "cuda_core" else ceiling
        tolerance = LOOSER.get((entry_id, figure), TOLERANCE)
        assert derived[ceiling]["tflops"] == pytest.approx(peak["tflops"], rel=tolerance), ceiling
        assert derived[ceiling]["derived"] and not derived[ceiling]["verified"]


@given(st.integers(1, 2**16), st.integers(1, 512), st.floats(100, 4000))
def test_clock_peak_counts_operations_per_second(operations, multiprocessors, clock_mhz):
    expected = operations * multiprocessors * (clock_mhz * 1e6) / 1e12
    assert datasheets.clock_peak_tflops(operations, multiprocessors, clock_mhz) == pytest.approx(expected)


def test_clock_peak_of_an_h200_in_fp16():
    assert datasheets.clock_peak_tflops(4096, 132, 1830) == pytest.approx(989.4, abs=0.05)


@pytest.mark.parametrize(
    ("memory_clock_mhz", "bus_width_bits", "gb_per_s"),
    [(3201, 6144, 4917), (2619, 5120, 3352), (877, 4096, 898), (5001, 256, 320), (10501, 384, 1008)],
)
def test_bus_bandwidth(memory_clock_mhz, bus_width_bits, gb_per_s):
    bandwidth = datasheets.bus_bandwidth_gb_per_s(memory_clock_mhz, bus_width_bits)
    assert bandwidth == pytest.approx(gb_per_s, abs=0.6)


# ---------------------------------------------------------------- printed figures


def test_h200():
    found = figures("h200-sxm", memory_bytes=150_754_820_096)
    assert (found["match"], found["entry"]) == ("exact", "h200-sxm")
    assert found["peaks"]["fp16"]["tflops"] == 989.4
    assert found["peaks"]["fp16"]["operations_per_clock_per_multiprocessor"] == 4096
    assert found["peaks"]["fp8_e4m3"]["tflops"] == 1978.9
    assert found["peaks"]["fp32"]["tflops"] == found["peaks"]["fp32_fma"]["tflops"] == 66.9
    assert found["peaks"]["fp64"]["tflops"] == 66.9
    assert found["peaks"]["fp64"]["unit"] == "tensor_core"
    assert found["peaks"]["fp64_fma"]["tflops"] == 33.5
    assert found["peaks"]["fp64_fma"]["unit"] == "cuda_core"
    assert found["bandwidth"]["gb_per_s"] == 4800
    assert (found["boost_clock_mhz"], found["tensor_clock_mhz"]) == (1980, 1830)
    assert (found["l2_bytes"], found["power_limit_w"]) == (60 * 2**20, 700)
    assert found["absent"] == {}


def test_fp16_on_cuda_cores_is_always_derived():
    peak = figures("h200-sxm")["peaks"]["fp16_fma"]
    assert peak["tflops"] == pytest.approx(512 * 132 * 1.98 / 1e3)
    assert peak["derived"] and not peak["verified"]


@pytest.mark.parametrize("entry_id", CARDS)
def test_every_card_matches_itself_and_names_its_sources(entry_id):
    for name in CARDS[entry_id]["device_names"]:
        found = figures(entry_id, name=name)
        assert (found["match"], found["entry"]) == ("exact", entry_id)
        for figure in [*found["peaks"].values(), found["bandwidth"]]:
            assert figure["source"].strip()
            assert isinstance(figure["verified"], bool)
            assert isinstance(figure["derived"], bool)
            assert not (figure["verified"] and figure["derived"])
        assert found["peaks"].keys() | found["absent"].keys() >= set(datasheets.DTYPES)
        assert not found["peaks"].keys() & found["absent"].keys()
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_an_unverified_figure_says_so():
    peaks = figures("a10")["peaks"]
    assert peaks["fp16"]["verified"]
    assert not peaks["tf32"]["verified"]
    assert "not verified" in peaks["tf32"]["source"]
    assert peaks["fp64"]["derived"]


def test_a_gpu_without_fp64_tensor_cores_computes_fp64_on_cuda_cores():
    peaks = figures("l4")["peaks"]
    assert peaks["fp64"]["unit"] == "cuda_core"
    assert peaks["fp64"]["tflops"] == peaks["fp64_fma"]["tflops"] == 0.473


def test_rate_classes_halve_what_they_should():
    assert figures("rtx-4090")["peaks"]["fp16"]["operations_per_clock_per_multiprocessor"] == 512
    assert figures("rtx-4090")["peaks"]["int8"]["operations_per_clock_per_multiprocessor"] == 2048
    assert figures("l40")["peaks"]["int8"]["operations_per_clock_per_multiprocessor"] == 1024
    assert figures("l40s")["peaks"]["fp16"]["operations_per_clock_per_multiprocessor"] == 1024


# ---------------------------------------------------------------- what the hardware lacks


def test_t4_has_neither_bf16_nor_tf32_nor_fp8():
    found = figures("t4")
    assert found["absent"].keys() == {"bf16", "tf32", "fp8_e4m3"}
    assert found["absent"]["bf16"] == "compute capability 7.5, bf16 tensor cores need 8.0"


def test_a100_has_no_fp8():
    assert figures("a100-sxm4-80gb")["absent"].keys() == {"fp8_e4m3"}


def test_v100_has_no_int8_tensor_cores():
    assert figures("v100-sxm2-16gb")["absent"].keys() == {"bf16", "tf32", "fp8_e4m3", "int8"}


@pytest.mark.parametrize("capability", SHEETS["architectures"])
def test_rates_agree_with_what_hardware_has(capability):
    tensor_core = SHEETS["architectures"][capability]["tensor_core"]
    for dtype in FIRST_CAPABILITY:
        assert (dtype in tensor_core) == (datasheets.lacks(dtype, capability) is None)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "entry_id"),
    [
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A100", None),
        ("NVIDIA H100", None),
        ("NVIDIA A10M", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090 D", None),
        ("nvidia h200", None),
        ("", None),
    ],
)
def test_a_name_is_matched_in_full(name, entry_id):
    found, entry = datasheets.find_entry(SHEETS, name)
    assert found == entry_id
    assert entry == CARDS.get(entry_id)


@given(st.sampled_from(NAMES), st.text(max_size=5), st.integers(0, 5))
def test_no_other_string_finds_a_card(name, suffix, cut):
    changed = name[: len(name) - cut] + suffix
    found, _ = datasheets.find_entry(SHEETS, changed)
    assert (found is not None) == (changed in NAMES)


# ---------------------------------------------------------------- when the formula takes over


def test_mig_slice_by_its_name():
    """As an H100 slice reports itself: openxla/xla target_config/specs/h100_sxm_mig.txtpb."""
    found = figures(
        "h100-sxm5-80gb",
        name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        multiprocessors=16,
        memory_bytes=10_468_982_784,
        memory_clock_max_mhz=2619,
        memory_bus_width_bits=640,
    )
    assert (found["match"], found["entry"]) == ("formula", "h100-sxm5-80gb")
    assert "MIG slice" in found["reason"]
    assert found["peaks"]["fp16"]["tflops"] == pytest.approx(16 * 4096 * 1830 / 1e6)
    assert found["bandwidth"]["gb_per_s"] == pytest.approx(419.04)
    assert found["bandwidth"]["derived"]
    assert (found["l2_bytes"], found["power_limit_w"]) == (None, None)


def test_mig_slice_by_the_flag_alone():
    found = figures("a100-sxm4-40gb", mig=True, multiprocessors=14)
    assert found["match"] == "formula"
    assert found["peaks"]["fp16"]["tflops"] == pytest.approx(14 * 2048 * 1410 / 1e6)


def test_unknown_card():
    found = stranger()
    assert (found["match"], found["entry"], found["rate_class"]) == ("formula", None, "full")
    assert "'NVIDIA Unheard-of' is not in the table" in found["reason"]
    # Its tensor clock is not known: the device's maximum stands in, and the source says what that means.
    assert found["peaks"]["fp16"]["tflops"] == pytest.approx(132 * 4096 * 1980 / 1e6)
    assert "upper bound" in found["peaks"]["fp16"]["source"]
    assert found["bandwidth"]["gb_per_s"] == pytest.approx(4916.7, abs=0.1)


def test_unknown_geforce_is_at_half_rate():
    found = figures("rtx-4090", name="NVIDIA GeForce RTX 4080", multiprocessors=76, sm_clock_max_mhz=2505)
    assert found["rate_class"] == "geforce"
    assert "assumed from the name" in found["reason"]
    # 97.5 dense in fp16 with fp32 accumulation: the NVIDIA Ada whitepaper.
    assert found["peaks"]["fp16"]["tflops"] == pytest.approx(97.5, rel=0.01)


def test_gtx_has_no_tensor_cores():
    found = stranger(name="NVIDIA GeForce GTX 1660", compute_capability="7.5")
    assert found["absent"]["fp16"] == "cards of rate class no_tensor_cores have no tensor cores"
    assert "fp16_fma" in found["peaks"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"multiprocessors": 114}, "114 multiprocessors, entry h200-sxm has 132"),
        ({"memory_bytes": 96 * 10**9}, "96.0 GB of memory, entry h200-sxm has 141"),
        ({"compute_capability": "8.0"}, "compute capability 8.0, entry h200-sxm has 9.0"),
    ],
)
def test_a_device_that_disagrees_with_its_name(changes, words):
    found = figures("h200-sxm", **changes)
    assert found["match"] == "formula"
    assert words in found["reason"]
    assert all(peak["derived"] for peak in found["peaks"].values())


def test_formula_uses_the_multiprocessors_that_the_device_has():
    assert figures("h200-sxm", multiprocessors=66)["peaks"]["fp16"]["tflops"] == pytest.approx(494.7, abs=0.1)


@pytest.mark.parametrize(
    ("capability", "nearest"),
    [
        ("8.7", "8.6"),
        ("12.1", "12.0"),
        ("10.1", "10.0"),
        ("7.2", "7.0"),
        ("9.0", "9.0"),
        ("6.1", None),
        ("11.0", None),
    ],
)
def test_nearest_architecture_has_the_same_major_number(capability, nearest):
    found, architecture = datasheets.nearest_architecture(SHEETS, capability)
    assert found == nearest
    assert architecture == SHEETS["architectures"].get(nearest)


def test_relative_of_a_known_architecture():
    found = stranger(compute_capability="8.7")
    assert "nearest known compute capability, 8.6" in found["reason"]
    assert "fp8_e4m3" in found["absent"]
    assert not any(peak["verified"] for peak in found["peaks"].values())


def test_architecture_without_relatives():
    found = stranger(compute_capability="11.0")
    assert found["peaks"] == {}
    assert set(found["absent"]) == set(datasheets.DTYPES)
    assert found["absent"]["fp16"] == "no rate is known for compute capability 11.0"
    assert datasheets.lacks("fp16", "11.0") is None


def test_unknown_card_that_does_not_report_its_clocks():
    found = stranger(sm_clock_max_mhz=None, memory_clock_max_mhz=None, memory_bus_width_bits=None)
    assert found["peaks"] == {}
    assert "does not report its clock" in found["absent"]["fp16"]
    assert found["bandwidth"] is None


@pytest.mark.parametrize("capability", ["90", "9", "", "sm_90"])
def test_malformed_compute_capability(capability):
    with pytest.raises(ValueError, match=r"must be of the form '9\.0'"):
        stranger(compute_capability=capability)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("memory_bytes", "nominal_gb"),
    [
        (150_754_820_096, 141),  # H200
        (153_008_209_920, 144),  # GH200 144G
        (97_280 * 2**20, 96),  # GH200 480GB
        (15_843_721_216, 16),  # T4
        (85.0e9, 80),  # A100 80GB
        (42.4e9, 40),  # A100 40GB
        (25.3e9, 24),  # RTX 4090
        (24.1e9, 24),  # A10, whose ECC lies in its memory
    ],
)
def test_memory_of_real_cards_agrees(memory_bytes, nominal_gb):
    assert datasheets.memory_agrees(memory_bytes, nominal_gb)


@given(st.sampled_from([(16, 32), (40, 80), (24, 48), (96, 141)]), st.floats(0.93, 1.08))
def test_sizes_of_one_family_stay_apart(sizes, factor):
    for own, other in (sizes, sizes[::-1]):
        assert datasheets.memory_agrees(own * factor * 1e9, own)
        assert not datasheets.memory_agrees(own * factor * 1e9, other)


def test_a_renamed_v100_does_not_get_the_other_size():
    assert figures("v100-sxm2-16gb", memory_bytes=34_089_730_048)["match"] == "formula"


# ---------------------------------------------------------------- fingerprints


def fingerprint(sheets: dict, entry_id: str) -> str:
    card = CARDS[entry_id]
    return datasheets.entry_fingerprint(sheets, card["device_names"][0], card["compute_capability"])


def test_another_card_leaves_fingerprints_unchanged():
    more = copy.deepcopy(SHEETS)
    more["cards"] = {
        "new": {**copy.deepcopy(CARDS["h200-sxm"]), "device_names": ["NVIDIA New"]},
        **more["cards"],
    }
    assert all(fingerprint(more, entry_id) == fingerprint(SHEETS, entry_id) for entry_id in CARDS)
    unknown = ("NVIDIA Unheard-of", "9.0")
    assert datasheets.entry_fingerprint(more, *unknown) == datasheets.entry_fingerprint(SHEETS, *unknown)


def test_fingerprint_changes_with_the_card_its_rates_and_its_class():
    def changed(*path_and_value):
        *path, key, value = path_and_value
        sheets = copy.deepcopy(SHEETS)
        place = sheets
        for step in path:
            place = place[step]
        place[key] = value
        return fingerprint(sheets, "h200-sxm")

    prints = {
        fingerprint(SHEETS, "h200-sxm"),
        changed("cards", "h200-sxm", "bandwidth_gb_per_s", 4801),
        changed("architectures", "9.0", "tensor_core", "fp16", 4097),
        changed("rate_classes", "full", "factors", {"fp16": 0.9}),
    }
    assert len(prints) == 4
    assert changed("architectures", "8.0", "tensor_core", "fp16", 1) in prints


def test_cards_have_different_fingerprints():
    assert len({fingerprint(SHEETS, entry_id) for entry_id in CARDS}) == len(CARDS)


# ---------------------------------------------------------------- faults of the file


def faults_after(tmp_path: Path, change) -> list[str]:
    """The messages for a copy of the real file with one change made to its contents."""
    sheets = copy.deepcopy(SHEETS)
    change(sheets)
    path = tmp_path / "datasheets.yaml"
    path.write_text(yaml.safe_dump(sheets, sort_keys=False), encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        datasheets.load(path)
    return [line.removeprefix(f"{path}: ") for line in str(caught.value).splitlines()]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("boost_clock_mhz", -1, ": -1, must be greater than 0"),
        ("boost_clock_mhz", "fast", ": 'fast', must be a valid number"),
        ("multiprocessors", 1.5, ": 1.5, must be a valid integer"),
        ("multiprocessors", True, ": True, must be a valid integer"),
        ("bandwidth_gb_per_s", float("inf"), ": inf, must be a finite number"),
        ("compute_capability", 9.0, ": 9.0, must be text, in quotes"),
        ("compute_capability", "9.9", ": '9.9', must be one of 7.0"),
        ("rate_class", "third", ": 'third', must be one of full, geforce"),
        ("device_names", [], ": [], must have at least 1 item"),
        ("device_names", ["NVIDIA A10"], ": 'NVIDIA A10' is already the name of a10"),
        ("tensor_clock_mhz", 3000, ": 3000, must not exceed the boost clock"),
        ("unverified", ["speed"], ": 'speed', must be a field or a peak of this card"),
        ("from_formula", ["fp16"], ": 'fp16', must be in peaks_tflops and in unverified"),
        ("peaks_tflops", {"fp6": 1}, ".fp6: 'fp6', must be 'fp64', 'fp64_fma'"),
        ("sources", "hearsay", ": 'hearsay', must be a mapping"),
        ("colour", "green", ": unknown key, must be one of device_names, compute_capability"),
    ],
)
def test_load_names_the_fault(tmp_path, key, value, fault):
    (message,) = faults_after(tmp_path, lambda sheets: sheets["cards"]["h200-sxm"].update({key: value}))
    assert message.startswith(f"cards.h200-sxm.{key}{fault}")


def test_load_refuses_a_peak_that_the_architecture_lacks(tmp_path):
    faults = faults_after(tmp_path, lambda sheets: sheets["cards"]["t4"]["peaks_tflops"].update(bf16=65))
    assert faults == ["cards.t4.peaks_tflops.bf16: compute capability 7.5 has no unit for it"]


def test_load_reports_all_faults_at_once(tmp_path):
    def change(sheets):
        del sheets["cards"]["l4"]["memory_gb"]
        sheets["cards"]["t4"]["multiprocessors"] = 0
        sheets["cards"]["a30"]["sources"]["hearsay"] = "a friend"
        sheets["architectures"]["9.0"]["cuda_core"]["fp32"] = 0
        sheets["architectures"][7] = sheets["architectures"].pop("7.0")
        sheets["rate_classes"]["geforce"]["factors"]["fp16"] = 2

    assert [fault.split(", ")[0] for fault in faults_after(tmp_path, change)] == [
        "rate_classes.geforce.factors.fp16: 2",
        "architectures.9.0.cuda_core.fp32: 0",
        "architectures.7: 7",
        "cards.t4.multiprocessors: 0",
        "cards.a30.sources.hearsay: unknown key",
        "cards.l4.memory_gb: missing",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file: None, must be a mapping"),
        ("- 1", "the file: [1], must be a mapping"),
        ("a: [", "line 1: "),
        ("cards: {}\ncards: {}", "line 2: the key 'cards' "),
        ("schema_version: 2", "schema_version: 2, must be 1"),
    ],
)
def test_load_of_something_else(tmp_path, text, words):
    path = tmp_path / "datasheets.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"datasheets\.yaml") as caught:
        datasheets.load(path)
    assert words in str(caught.value)


def test_load_of_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        datasheets.load(tmp_path / "none.yaml")
