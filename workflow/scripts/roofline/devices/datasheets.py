"""The vendor's figures by exact device name, or the architecture's formula. config/datasheets.yaml explains them.

Peaks are in TFLOPS (TOPS for int8; a multiply-add is two operations), bandwidth in decimal GB/s.
"""

import hashlib
import json
from math import inf
from typing import NamedTuple

from roofline.core.dtypes import COMPUTE_CEILINGS, DTYPES, FIRST_TENSOR_CORE_CAPABILITY
from roofline.core.units import GIB, MIB
from roofline.devices import datasheet_file
from roofline.records.device_record import DeviceRecord

read_datasheets = datasheet_file.read_datasheets

TENSOR_CORE = "tensor_core"
CUDA_CORE = "cuda_core"

# The datasheet's figure for each ceiling on CUDA cores: fp32 GEMM and register-only fp32 run on the same units, and so
# does fp64 GEMM on a card without fp64 tensor cores.
CUDA_CORE_FIGURE = {
    "fp64": "fp64_fma",
    "fp32": "fp32",
    "fp64_fma": "fp64_fma",
    "fp32_fma": "fp32",
    "fp16_fma": "fp16_fma",
}


CLOCK_COUNT_TOLERANCE = 1.05  # a block may run a little faster than the one over which the clock was counted
CLOCK_ROUNDING = 1.005  # of clocks and timers: an H100 ran fp64_fma at 33.50 TFLOPS, and 1980 MHz allow 33.45
# A reported total lies between the nominal size in GB, less ECC's share, and the nominal size in GiB.
MEMORY_TOLERANCE = 0.12


def datasheet_figures(
    datasheets: dict,
    *,
    name: str,
    compute_capability: str,
    multiprocessors: int,
    memory_bytes: int,
    sm_clock_max_mhz: float | None,
    memory_clock_max_mhz: float | None,
    memory_bus_width_bits: int | None,
    mig: bool = False,
    nvlinks: int | None = None,
) -> dict:
    """Dense peaks and bandwidth from the vendor for a device, as plain data, each with its source.

    The arguments are what the device reports. If name, compute capability, multiprocessors and memory size
    agree with a card of the table ('match': 'exact'), the figures are the printed ones. Otherwise they
    follow from the rates of the architecture ('formula') and the rate class of the named card ('entry'). 'absent' has
    the reason for each dtype without a peak.
    """
    card_id, card = find_card_model(datasheets, full_card_name(name))
    mismatches = _find_mismatches(card_id, card, name, compute_capability, multiprocessors, memory_bytes, mig)
    printed = None if mismatches else card
    same_silicon = card is not None and card["compute_capability"] == compute_capability
    basis = _PeakBasis(
        compute_capability,
        multiprocessors,
        printed,
        _rate_class(datasheets, name, card),
        boost_clock_mhz=card["boost_clock_mhz"] if same_silicon else sm_clock_max_mhz,
        tensor_clock_mhz=card["tensor_clock_mhz"] if same_silicon else sm_clock_max_mhz,
        clocks_of_card=same_silicon,
        architecture_id=find_nearest_architecture(datasheets, compute_capability)[0],
    )
    peaks, absent = _collect_peaks(datasheets, basis)
    return {
        "match": "exact" if printed else "formula",
        "entry": card_id,
        "reason": _match_reason(card_id, mismatches, basis),
        "boost_clock_mhz": basis.boost_clock_mhz,
        "tensor_clock_mhz": basis.tensor_clock_mhz,
        "rate_class": basis.rate_class,
        "l2_bytes": round(printed["l2_mib"] * MIB) if printed and printed["l2_mib"] else None,
        "power_limit_w": printed["power_limit_w"] if printed else None,
        "peaks": peaks,
        "absent": absent,
        "bandwidth": _bandwidth_figure(printed, memory_clock_max_mhz, memory_bus_width_bits),
        "nvlink": _nvlink_figure(datasheets["nvlink"].get(compute_capability), nvlinks),
    }


def entry_sha256(datasheets: dict, name: str, compute_capability: str) -> str:
    """SHA-256 (hex) of what the datasheets say of a device. Another card added to the file does not change it."""
    _, card = find_card_model(datasheets, full_card_name(name))
    rate_class = _rate_class(datasheets, name, card)
    used = {
        "card": card,
        "rate_class": {rate_class: datasheets["rate_classes"][rate_class]},
        "architecture": find_nearest_architecture(datasheets, compute_capability),
        "nvlink": datasheets["nvlink"].get(compute_capability),
    }
    canonical = json.dumps(used, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


# ---------------------------------------------------------------- formulas


def clock_peak_tflops(operations_per_clock: float, multiprocessors: int, clock_mhz: float) -> float:
    """TFLOPS of multiprocessors that each do `operations_per_clock` operations; a multiply-add is two.

    An H200 in fp16: 132 x 4096 x 1830 MHz / 10^6 = 989.4 (NVIDIA H100 whitepaper v1.04, table 3).
    """
    return operations_per_clock * multiprocessors * clock_mhz / 1e6


def highest_possible_tflops(device: DeviceRecord, ceiling: str, counted_mhz: float | None) -> float:
    """TFLOPS that no block of a listed card can exceed, by its highest clock and the clock counted over the block;
    infinity if the rate is by formula, and may be what is wrong, or no clock is known."""
    peak, highest_mhz = device.vendor.peaks.get(ceiling), device.hardware.get("sm_clock_max_mhz")
    rate = peak and peak.operations_per_clock_per_multiprocessor
    clocks = [mhz for mhz in (highest_mhz, counted_mhz and CLOCK_COUNT_TOLERANCE * counted_mhz) if mhz]
    if device.vendor.match != "exact" or not rate or not clocks:
        return inf
    return CLOCK_ROUNDING * clock_peak_tflops(rate, device.hardware["multiprocessors"], min(clocks))


def bus_bandwidth_gb_per_s(memory_clock_mhz: float, bus_width_bits: int) -> float:
    """GB/s of a memory bus with two transfers per clock (CUDA C++ best practices guide, theoretical bandwidth)."""
    return 2 * memory_clock_mhz * bus_width_bits / 8 / 1e3


def memory_matches(memory_bytes: int, nominal_gb: float) -> bool:
    """Whether a total is within 12 % of `nominal_gb` as GB or GiB: ECC takes its share (15.8e9 bytes of a T4)."""
    return any(abs(memory_bytes / (nominal_gb * unit) - 1) <= MEMORY_TOLERANCE for unit in (1e9, GIB))


def nominal_memory_bytes(card: dict) -> int:
    """About what a card of the datasheets reports: vendors give HBM in GiB, and ECC takes some 6 % of GDDR."""
    return int(card["memory_gb"] * (GIB if card["memory_type"].startswith("HBM") else 1e9))


# ---------------------------------------------------------------- looking up


def find_card_model(datasheets: dict, name: str) -> tuple[str, dict] | tuple[None, None]:
    """The card of exactly this name, and its id; else (None, None). Not by prefix: A10 begins A100."""
    for card_id, card in datasheets["cards"].items():
        if name in card["device_names"]:
            return card_id, card
    return None, None


def full_card_name(name: str) -> str:
    """The name of the card that a MIG slice is part of: 'NVIDIA B200 MIG 1g.23gb' is part of an 'NVIDIA B200'."""
    return name.split(" MIG ")[0]


def find_nearest_architecture(datasheets: dict, compute_capability: str) -> tuple[str, dict] | tuple[None, None]:
    """Rates of this compute capability, or of the nearest with its major number; (None, None) if unknown."""
    major, minor = _version_tuple(compute_capability)
    relatives = [known for known in datasheets["architectures"] if _version_tuple(known)[0] == major]
    if not relatives:
        return None, None
    nearest = min(relatives, key=lambda known: (abs(_version_tuple(known)[1] - minor), _version_tuple(known)))
    return nearest, datasheets["architectures"][nearest]


def missing_tensor_core_reason(dtype: str, compute_capability: str) -> str | None:
    """Why no tensor core of this compute capability takes `dtype`; None if one does, or if none is needed."""
    needed = FIRST_TENSOR_CORE_CAPABILITY.get(dtype)
    if needed is None or _version_tuple(compute_capability) >= _version_tuple(needed):
        return None
    return f"compute capability {compute_capability}, {dtype} tensor cores need {needed}"


def _rate_class(datasheets: dict, name: str, card: dict | None) -> str:
    """The rate class of the card; outside the table the one that its name suggests, else 'full'."""
    if card is not None:
        return card["rate_class"]
    for rate_class, properties in datasheets["rate_classes"].items():
        if any(part in name for part in properties["name_contains"]):
            return rate_class
    return "full"


def _version_tuple(compute_capability: str) -> tuple[int, int]:
    major, minor = compute_capability.split(".")
    return int(major), int(minor)


# ---------------------------------------------------------------- one figure


class _PeakBasis(NamedTuple):
    """What the peaks of a device follow from."""

    compute_capability: str
    multiprocessors: int
    printed: dict | None  # the card whose printed figures apply
    rate_class: str
    boost_clock_mhz: float | None
    tensor_clock_mhz: float | None
    clocks_of_card: bool  # else both are the maximum that the device reports
    architecture_id: str | None


class _Rate(NamedTuple):
    figure: str  # of the datasheet
    unit: str
    operations_per_clock: float
    at_tensor_clock: bool


def _find_rate(datasheets: dict, basis: _PeakBasis, ceiling: str) -> _Rate | None:
    """The rate of a ceiling, with the factor of the rate class; None where the architecture is unknown or lacks it."""
    if basis.architecture_id is None:
        return None
    architecture = datasheets["architectures"][basis.architecture_id]
    if ceiling in architecture["tensor_core"]:
        factor = datasheets["rate_classes"][basis.rate_class]["factors"].get(ceiling, 1)
        operations = architecture["tensor_core"][ceiling] * factor
        return _Rate(ceiling, TENSOR_CORE, operations, ceiling not in architecture["tensor_at_boost_clock"])
    if figure := CUDA_CORE_FIGURE.get(ceiling):
        return _Rate(figure, CUDA_CORE, architecture["cuda_core"][figure], at_tensor_clock=False)
    return None


def _collect_peaks(datasheets: dict, basis: _PeakBasis) -> tuple[dict[str, dict], dict[str, str]]:
    """The peaks by ceiling, and why dtypes have none."""
    peaks, absent = {}, {}
    for ceiling in COMPUTE_CEILINGS:
        rate = _find_rate(datasheets, basis, ceiling)
        reason = missing_tensor_core_reason(ceiling, basis.compute_capability) or _missing_peak_reason(rate, basis)
        if reason is None:
            peaks[ceiling] = _peak_figure(rate, basis)
        elif ceiling in DTYPES:
            absent[ceiling] = reason
    return peaks, absent


def _missing_peak_reason(rate: _Rate | None, basis: _PeakBasis) -> str | None:
    """Why there is no peak for a ceiling that this compute capability may have; None if there is one."""
    if rate is None:
        return f"no rate is known for compute capability {basis.compute_capability}"
    if rate.operations_per_clock == 0:
        return f"cards of rate class {basis.rate_class} have no tensor cores"
    if basis.boost_clock_mhz is None:
        return "the card is not in the table, and the device does not report its clock"
    return None


def _peak_figure(rate: _Rate, basis: _PeakBasis) -> dict:
    """The card's printed figure, or the formula's where no card of the table applies or it has no such figure."""
    operations, card = rate.operations_per_clock, basis.printed
    if card and rate.figure in card["peaks_tflops"]:
        tflops = card["peaks_tflops"][rate.figure]
        verified = rate.figure not in card["unverified"]
        derived = rate.figure in card.get("from_formula", [])
        source = "architecture formula; the vendor prints no such figure"
        source = source if derived else _source_text(card, rate.figure, otherwise="peaks")
    else:
        clock_mhz = basis.tensor_clock_mhz if rate.at_tensor_clock else basis.boost_clock_mhz
        tflops = clock_peak_tflops(operations, basis.multiprocessors, clock_mhz)
        verified, derived = False, True
        # Tensor cores may sustain less than the maximum clock, and no device reports how much.
        clock = "maximum clock of the device, so an upper bound"
        if basis.clocks_of_card:
            clock = f"{'tensor' if rate.at_tensor_clock else 'boost'} clock of the card"
        source = (
            f"architecture formula: {basis.multiprocessors} multiprocessors x {clock_mhz:g} MHz ({clock}) x "
            f"{operations:g} operations per clock (compute capability {basis.architecture_id})"
        )
    return {
        "tflops": float(tflops),
        "unit": rate.unit,
        "operations_per_clock_per_multiprocessor": int(operations) if operations % 1 == 0 else operations,
        "source": source,
        "verified": verified,
        "derived": derived,
    }


def _bandwidth_figure(card: dict | None, memory_clock_mhz: float | None, bus_width_bits: int | None) -> dict | None:
    if card:
        return {
            "gb_per_s": float(card["bandwidth_gb_per_s"]),
            "source": _source_text(card, "bandwidth_gb_per_s", otherwise="bandwidth"),
            "verified": "bandwidth_gb_per_s" not in card["unverified"],
            "derived": False,
        }
    # For a MIG slice CUDA reports the bus width of its share (640 bit of the 5120 of an H100, for 1g.10gb).
    if not memory_clock_mhz or not bus_width_bits:
        return None
    return {
        "gb_per_s": bus_bandwidth_gb_per_s(memory_clock_mhz, bus_width_bits),
        "source": f"bus formula: 2 x {memory_clock_mhz:g} MHz x {bus_width_bits} bit / 8",
        "verified": False,
        "derived": True,
    }


def _nvlink_figure(link: dict | None, links: int | None) -> dict | None:
    if not link or not links:
        return None
    source = f"{links} links of {link['gb_per_s']:g} GB/s in one direction; {link['source']}"
    return {"gb_per_s": links * link["gb_per_s"], "source": source, "verified": link["verified"], "derived": True}


def _source_text(card: dict, figure: str, otherwise: str) -> str:
    source = card["sources"].get(figure, card["sources"][otherwise])
    return f"{source} (this figure not verified)" if figure in card["unverified"] else source


# ---------------------------------------------------------------- does the device agree with the card


def _find_mismatches(
    card_id: str | None,
    card: dict | None,
    name: str,
    compute_capability: str,
    multiprocessors: int,
    memory_bytes: int,
    mig: bool,
) -> list[str]:
    """Why the printed figures do not apply to this device, one phrase each; empty if they do."""
    if card is None:
        return [f"the name {name!r} is not in the table"]
    if mig or name != full_card_name(name):
        return [f"a MIG slice, not the whole card of entry {card_id}"]
    found = []
    if card["compute_capability"] != compute_capability:
        found.append(f"compute capability {compute_capability}, entry {card_id} has {card['compute_capability']}")
    if card["multiprocessors"] != multiprocessors:
        found.append(f"{multiprocessors} multiprocessors, entry {card_id} has {card['multiprocessors']}")
    if not memory_matches(memory_bytes, card["memory_gb"]):
        found.append(f"{memory_bytes / 1e9:.1f} GB of memory, entry {card_id} has {card['memory_gb']:g}")
    return found


def _match_reason(card_id: str | None, mismatches: list[str], basis: _PeakBasis) -> str:
    if not mismatches:
        return f"name, compute capability, multiprocessors and memory size agree with entry {card_id}"
    if basis.architecture_id is None:
        return "; ".join([*mismatches, f"no rates are known for compute capability {basis.compute_capability}"])
    parts = [f"figures by formula: {mismatches[0]}", *mismatches[1:]]
    if card_id is None:
        parts.append(f"rate class {basis.rate_class} assumed from the name")
    if basis.architecture_id != basis.compute_capability:
        parts.append(f"rates of the nearest known compute capability, {basis.architecture_id}")
    return "; ".join(parts)
