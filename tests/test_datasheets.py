"""The figures of the vendor: the table, the formula, which of the two a device gets, and the unit of each ceiling."""

import copy
import json
import math
from pathlib import Path

import pytest
from factories import datasheet_figures, datasheet_peak, device_record

from roofline.core.dtypes import DTYPES
from roofline.devices import datasheets
from roofline.devices.base import Identity

SHEETS = datasheets.read_datasheets(Path(__file__).parents[1] / "config" / "datasheets.yaml")
CARDS = SHEETS["cards"]

# How far the formula may be from the printed figure. Rounding in the sheets takes up to 1.3 %; beyond that:
TOLERANCE = 0.013
LOOSER = {
    ("b300-hgx", "fp32"): 0.028,  # the sheet repeats the B200's 75 at a higher clock
    ("gb300", "fp64_fma"): 0.033,  # 1.258 printed as 1.3
    ("gb300", "fp64"): 0.033,
    ("gb300", "int8"): 0.033,  # 24 sparse POPS for 72 cards
}


def figures(entry_id: str, **changes) -> dict:
    """Return the figures of a whole card of the table that reports some facts differently."""
    card = CARDS[entry_id]
    reported = {
        "name": card["device_names"][0],
        "compute_capability": card["compute_capability"],
        "multiprocessors": card["multiprocessors"],
        "memory_total_bytes": round(card["memory_gb"] * 1e9),
        "sm_clock_max_mhz": card["boost_clock_mhz"],
        "memory_clock_max_mhz": 3201,
        "memory_bus_width_bits": 6144,
        "mig_slice": False,
        "nvlinks_active": None,
    } | changes
    named = {key: reported[key] for key in ("name", "compute_capability", "memory_total_bytes")}
    identity = Identity(device="gpu0", kind="gpu", uuid="GPU-1", driver=None, memory_free_bytes=0, **named)
    return datasheets.datasheet_figures(SHEETS, identity, reported)


@pytest.mark.parametrize("entry_id", CARDS)
def test_every_card_matches_itself_and_the_formula_reproduces_its_printed_figures(entry_id):
    for name in CARDS[entry_id]["device_names"]:
        matched = figures(entry_id, name=name)
        assert (matched["peaks_by"], matched["entry"]) == ("datasheet", entry_id)
        assert all(figure["source"].strip() for figure in [*matched["peaks"].values(), matched["bandwidth"]])
        assert matched["peaks"].keys() | matched["absent"].keys() >= set(datasheets.PRODUCT_DTYPES)
        assert json.loads(json.dumps(matched, allow_nan=False)) == matched
    printed = figures(entry_id)["peaks"]
    # A whole card that calls itself a MIG slice gets the formula, with the clocks of the card.
    derived = figures(entry_id, mig_slice=True)["peaks"]
    assert printed.keys() == derived.keys()
    for ceiling, peak in printed.items():
        figure = datasheets.CUDA_CORE_FIGURE[ceiling] if peak["compute_unit"] == "cuda_core" else ceiling
        tolerance = LOOSER.get((entry_id, figure), TOLERANCE)
        assert derived[ceiling]["tflops"] == pytest.approx(peak["tflops"], rel=tolerance), ceiling
        assert derived[ceiling]["derived"] and not derived[ceiling]["verified"]


def test_h200():
    h200 = figures("h200-sxm", memory_total_bytes=150_754_820_096)
    assert (h200["peaks_by"], h200["entry"]) == ("datasheet", "h200-sxm")
    assert h200["absent"].keys() == {name for name, dtype in DTYPES.items() if not dtype.rated}
    peaks = h200["peaks"]
    assert datasheets.clock_peak_tflops(4096, 132, 1830) == pytest.approx(989.4, abs=0.05)
    assert (peaks["fp16"]["tflops"], peaks["fp16"]["operations_per_clock_per_multiprocessor"]) == (989.4, 4096)
    assert (peaks["fp64"]["tflops"], peaks["fp64"]["compute_unit"]) == (66.9, "tensor_core")
    assert (peaks["fp64_fma"]["tflops"], peaks["fp64_fma"]["compute_unit"]) == (33.5, "cuda_core")
    assert peaks["fp16_fma"]["tflops"] == pytest.approx(512 * 132 * 1.98 / 1e3)
    assert h200["bandwidth"]["gb_per_s"] == 4800
    assert (h200["boost_clock_mhz"], h200["tensor_clock_mhz"]) == (1980, 1830)
    assert h200["power_limit_w"] == 700


@pytest.mark.parametrize(
    ("entry_id", "changes", "fp16_tflops", "entry"),
    [
        # A slice as it reports itself (openxla/xla target_config/specs/h100_sxm_mig.txtpb), and by the flag alone.
        ("h100-sxm5-80gb", {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "multiprocessors": 16}, 119.93, 1),
        ("a100-sxm4-40gb", {"mig_slice": True, "multiprocessors": 14}, 14 * 2.048 * 1.41, 1),
        # The tensor clock is not known: the maximum of the device is used, an upper bound.
        ("h200-sxm", {"name": "NVIDIA Unheard-of"}, 132 * 4.096 * 1.98, 0),
        # 97.5 dense in fp16 with fp32 accumulation: the NVIDIA Ada whitepaper.
        ("rtx-4090", {"name": "NVIDIA GeForce RTX 4080", "multiprocessors": 76, "sm_clock_max_mhz": 2505}, 97.5, 0),
        # Devices that disagree with their name.
        ("h200-sxm", {"multiprocessors": 66}, 494.7, 1),
        ("v100-sxm2-16gb", {"memory_total_bytes": 34_089_730_048}, 125.3, 1),
        ("h200-sxm", {"compute_capability": "8.0"}, None, 1),
    ],
)
def test_otherwise_the_formula_gives_the_figures(entry_id, changes, fp16_tflops, entry):
    derived = figures(entry_id, **changes)
    assert derived["peaks_by"] == "formula" and derived["reason"]
    assert derived["entry"] == (entry_id if entry else None)
    assert all(peak["derived"] and not peak["verified"] for peak in derived["peaks"].values())
    if fp16_tflops:
        assert derived["peaks"]["fp16"]["tflops"] == pytest.approx(fp16_tflops, rel=1e-3)


def fingerprint(sheets: dict, entry_id: str) -> str:
    card = CARDS[entry_id]
    return datasheets.entry_sha256(sheets, card["device_names"][0], card["compute_capability"])


def changed(*path, value) -> dict:
    """Return the table with another value at a path of keys."""
    sheets = mapping = copy.deepcopy(SHEETS)
    for key in path[:-1]:
        mapping = mapping[key]
    mapping[path[-1]] = value
    return sheets


def test_a_fingerprint_depends_on_the_card_its_rates_and_its_class_alone():
    changes_of_h200 = [
        SHEETS,
        changed("cards", "h200-sxm", "bandwidth_gb_per_s", value=4801),
        changed("architectures", "9.0", "tensor_core", "fp16", value=4097),
        changed("rate_classes", "full", "factors", value={"fp16": 0.9}),
    ]
    assert len({fingerprint(sheets, "h200-sxm") for sheets in changes_of_h200}) == 4
    assert len({fingerprint(SHEETS, entry_id) for entry_id in CARDS}) == len(CARDS)
    other_architecture = changed("architectures", "8.0", "tensor_core", "fp16", value=1)
    assert fingerprint(other_architecture, "h200-sxm") == fingerprint(SHEETS, "h200-sxm")


@pytest.mark.parametrize(
    ("counted_mhz", "highest_mhz", "peaks_by", "most_mhz"),
    [
        (None, 1980, "datasheet", 1980),
        (990, 1980, "datasheet", 1.05 * 990),
        (990, None, "datasheet", 1.05 * 990),
        (None, None, "datasheet", math.inf),
        (990, 1980, "formula", math.inf),  # the rate may be what is wrong
    ],
)
def test_what_no_block_can_exceed(counted_mhz, highest_mhz, peaks_by, most_mhz):
    figures = datasheet_figures(
        peaks_by=peaks_by, peaks={"fp16": datasheet_peak(989.4, operations_per_clock_per_multiprocessor=4096)}
    )
    record = device_record(datasheet=figures, hardware={"multiprocessors": 132, "sm_clock_max_mhz": highest_mhz})
    highest = datasheets.highest_possible_tflops(record, "fp16", counted_mhz)
    assert highest == pytest.approx(1.005 * 132 * 4096 * most_mhz / 1e6)
    assert datasheets.highest_possible_tflops(record, "fp32", counted_mhz) == math.inf
