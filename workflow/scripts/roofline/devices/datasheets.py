"""The vendor's figures by exact device name, or the architecture's formula. config/datasheets.yaml explains them.

Peaks are in TFLOPS (TOPS for int8; a multiply-add is two operations), bandwidth in decimal GB/s.
"""

import hashlib
import json
from math import inf
from typing import NamedTuple

from roofline.core.architectures import missing_tensor_cores_reason, parse_capability
from roofline.core.dtypes import COMPUTE_CEILINGS, DTYPES, PRODUCT_DTYPES, REGISTER_ONLY_DTYPES, operand_dtype
from roofline.core.levels import PEER, memory_ceiling_names
from roofline.core.terms import ACCESS_PATTERNS, ComputeUnit
from roofline.core.units import GIB
from roofline.devices import datasheet_file
from roofline.devices.base import Identity
from roofline.records.device_record import DatasheetFigures, DeviceRecord
from roofline.records.seal_records import PromisedCeiling

read_datasheets = datasheet_file.read_datasheets  # offered next to what is looked up in them

TENSOR_CORE: ComputeUnit = "tensor_core"
CUDA_CORE: ComputeUnit = "cuda_core"

# The datasheet's figure for each ceiling on CUDA cores: fp32 GEMM and register-only fp32 run on the same units, and so
# does fp64 GEMM on a card without fp64 tensor cores.
CUDA_CORE_FIGURE = {name: datasheet_file.CUDA_CORE_FIGURES[dtype] for name, dtype in REGISTER_ONLY_DTYPES.items()}
CUDA_CORE_FIGURE |= {
    name: figure for name, figure in datasheet_file.CUDA_CORE_FIGURES.items() if DTYPES[name].bits >= 32
}

SOURCE_FIELDS = {"source", "verified", "derived"}
NOT_PRINTED_SOURCE = "architecture formula; the vendor prints no such figure"
CLOCK_COUNT_TOLERANCE = 1.05  # a block may run a little faster than the one over which the clock was counted
CLOCK_ROUNDING = 1.005  # clocks and timers are rounded: an H100 ran fp64_fma at 33.50 TFLOPS, 1980 MHz allow 33.45
# A reported total lies between the nominal size in GB, less ECC's share, and the nominal size in GiB.
MEMORY_TOLERANCE = 0.12


def datasheet_figures(datasheets: dict, identity: Identity, hardware: dict) -> dict:
    """Return the vendor's dense peaks and bandwidth for a GPU as plain data, each with its source.

    `hardware` is what the GPU reports of itself, by the keys of the device record.

    If name, compute capability, multiprocessors and memory size agree with a card of the table, the figures are the
    printed ones ('peaks_by': 'datasheet'). Otherwise they follow from the rates of the architecture ('formula') and the
    rate class of the named card ('entry'). 'absent' has the reason for each dtype without a peak.
    """
    card_id, card = find_card_model(datasheets, full_card_name(identity.name))
    capability = identity.require_capability()
    mismatches = _find_mismatches(card_id, card, identity, hardware)
    printed = None if mismatches else card
    silicon = card if card is not None and card["compute_capability"] == capability else None
    basis = _PeakBasis(
        compute_capability=capability,
        multiprocessors=hardware["multiprocessors"],
        printed=printed,
        rate_class=_rate_class(datasheets, identity.name, card),
        boost_clock_mhz=silicon["boost_clock_mhz"] if silicon else hardware["sm_clock_max_mhz"],
        tensor_clock_mhz=silicon["tensor_clock_mhz"] if silicon else hardware["sm_clock_max_mhz"],
        clocks_of_card=silicon is not None,
        architecture_id=find_nearest_architecture(datasheets, capability)[0],
    )
    peaks, absent = _collect_peaks(datasheets, basis)
    return {
        "peaks_by": "datasheet" if printed else "formula",
        "entry": card_id,
        "reason": _match_reason(card_id, mismatches, basis),
        "boost_clock_mhz": basis.boost_clock_mhz,
        "tensor_clock_mhz": basis.tensor_clock_mhz,
        "rate_class": basis.rate_class,
        "power_limit_w": printed["power_limit_w"] if printed else None,
        "peaks": peaks,
        "absent": absent,
        "bandwidth": _bandwidth_figure(printed, hardware["memory_clock_max_mhz"], hardware["memory_bus_width_bits"]),
        "nvlink": _nvlink_figure(datasheets["nvlink"].get(capability), hardware["nvlinks_active"]),
    }


def promise_gpu_ceilings(figures: DatasheetFigures) -> list[PromisedCeiling]:
    """Return the ceilings that a GPU's figures promise: by their names the peaks, its memory's bandwidth and NVLink's.

    A dtype with block scales, of which no datasheet prints a rate, is promised the rate of its numbers without scales,
    which the same tensor cores multiply. Without a bandwidth no memory ceiling is promised.
    """
    peaks = dict(figures.peaks)
    for name, reason in figures.absent.items():
        unscaled = figures.peaks.get(DTYPES[name].stored_as)
        if reason == _not_printed_reason(name) and unscaled:
            source = f"{DTYPES[name].stored_as} without scales: {unscaled.source}"
            peaks[name] = unscaled.model_copy(update={"source": source, "derived": True})
    compute = [
        PromisedCeiling(kind="compute", name=name, tflops=peak.tflops, **peak.model_dump(include=SOURCE_FIELDS))
        for name, peak in peaks.items()
    ]
    if not figures.bandwidth:
        return compute  # neither the table nor the driver reports one
    names = dict.fromkeys(name for mix in ACCESS_PATTERNS for name in memory_ceiling_names("gpu", mix))
    promised = dict.fromkeys(names, figures.bandwidth) | ({PEER: figures.nvlink} if figures.nvlink else {})
    memory = [PromisedCeiling(kind="memory", name=name, **rate.model_dump()) for name, rate in promised.items()]
    return compute + memory


def entry_sha256(datasheets: dict, name: str, compute_capability: str) -> str:
    """Return the SHA-256 (hex) of the entries of the datasheets that a GPU's figures follow from.

    Another card added to the file does not change it.
    """
    _, card = find_card_model(datasheets, full_card_name(name))
    rate_class = _rate_class(datasheets, name, card)
    entries = {
        "card": card,
        "rate_class": {rate_class: datasheets["rate_classes"][rate_class]},
        "architecture": find_nearest_architecture(datasheets, compute_capability),
        "nvlink": datasheets["nvlink"].get(compute_capability),
    }
    canonical = json.dumps(entries, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


# ---------------------------------------------------------------- formulas


def clock_peak_tflops(operations_per_clock: float, multiprocessors: int, clock_mhz: float) -> float:
    """Return the TFLOPS of multiprocessors that each do `operations_per_clock` operations; a multiply-add is two.

    An H200 in fp16: 132 x 4096 x 1830 MHz / 10^6 = 989.4 (NVIDIA H100 whitepaper v1.04, table 3).
    """
    return operations_per_clock * multiprocessors * clock_mhz / 1e6


def highest_possible_tflops(device: DeviceRecord, ceiling: str, counted_mhz: float | None) -> float:
    """Return the TFLOPS that no block of a listed card can exceed, by its highest clock and the block's counted clock.

    Infinity if no clock is known, or if the rate is by formula and so may itself be wrong.
    """
    peak, highest_mhz = device.datasheet.peaks.get(ceiling), device.hardware.get("sm_clock_max_mhz")
    rate = peak and peak.operations_per_clock_per_multiprocessor
    clocks = [highest_mhz] if highest_mhz else []
    if counted_mhz:
        clocks.append(CLOCK_COUNT_TOLERANCE * counted_mhz)
    if device.datasheet.peaks_by != "datasheet" or not rate or not clocks:
        return inf
    return CLOCK_ROUNDING * clock_peak_tflops(rate, device.hardware["multiprocessors"], min(clocks))


def bus_bandwidth_gb_per_s(memory_clock_mhz: float, bus_width_bits: int) -> float:
    """Return the GB/s of a memory bus with two transfers per clock.

    Source: CUDA C++ best practices guide, theoretical bandwidth.
    """
    return 2 * memory_clock_mhz * bus_width_bits / 8 / 1e3


def memory_matches(memory_bytes: int, nominal_gb: float) -> bool:
    """Return whether a total is within 12 % of `nominal_gb` as GB or GiB.

    ECC takes its share: a T4 of 16 GB reports 15.8e9 bytes.
    """
    return any(abs(memory_bytes / (nominal_gb * unit) - 1) <= MEMORY_TOLERANCE for unit in (1e9, GIB))


def nominal_memory_bytes(card: dict) -> int:
    """Return about the memory that a card of the datasheets reports.

    Vendors give HBM in GiB, and ECC takes some 6 % of GDDR.
    """
    return int(card["memory_gb"] * (GIB if card["memory_type"].startswith("HBM") else 1e9))


# ---------------------------------------------------------------- look-ups


def find_card_model(datasheets: dict, name: str) -> tuple[str, dict] | tuple[None, None]:
    """Return the id and the entry of the card of exactly this name; else (None, None).

    A prefix is not enough: A10 is a prefix of A100.
    """
    for card_id, card in datasheets["cards"].items():
        if name in card["device_names"]:
            return card_id, card
    return None, None


def full_card_name(name: str) -> str:
    """Return the name of the card that a MIG slice is part of: 'NVIDIA B200' for 'NVIDIA B200 MIG 1g.23gb'."""
    return name.split(" MIG ")[0]


def find_nearest_architecture(datasheets: dict, compute_capability: str) -> tuple[str, dict] | tuple[None, None]:
    """Return the id and the rates of this compute capability, or of the nearest with its major number.

    (None, None) if none has it. Of two that are equally near, the older counts.
    """
    major, minor = parse_capability(compute_capability)
    relatives = [capability for capability in datasheets["architectures"] if parse_capability(capability)[0] == major]
    if not relatives:
        return None, None

    def distance(capability: str) -> tuple[int, tuple[int, int]]:
        version = parse_capability(capability)
        return abs(version[1] - minor), version

    nearest = min(relatives, key=distance)
    return nearest, datasheets["architectures"][nearest]


def missing_ceiling_reason(ceiling: str, compute_capability: str) -> str | None:
    """Return why a card of this compute capability lacks a compute ceiling; None if it has it.

    A dtype with a rate on CUDA cores is multiplied there by a card without tensor cores for it.
    """
    if ceiling in CUDA_CORE_FIGURE:
        return None
    return missing_tensor_cores_reason(ceiling, parse_capability(compute_capability))


def _rate_class(datasheets: dict, name: str, card: dict | None) -> str:
    """Return the rate class of the card; outside the table the class that its name suggests, else 'full'."""
    if card is not None:
        return card["rate_class"]
    for rate_class, properties in datasheets["rate_classes"].items():
        if any(part in name for part in properties["name_contains"]):
            return rate_class
    return "full"


# ---------------------------------------------------------------- one figure


class _PeakBasis(NamedTuple):
    """The facts that the peaks of a device follow from."""

    compute_capability: str
    multiprocessors: int
    printed: dict | None  # the card whose printed figures apply
    rate_class: str
    boost_clock_mhz: float | None
    tensor_clock_mhz: float | None
    clocks_of_card: bool  # False: both clocks are the maximum that the device reports
    architecture_id: str | None


class _Rate(NamedTuple):
    """The rate of one multiprocessor at a ceiling, and the datasheet's figure that corresponds to it."""

    figure: str
    unit: ComputeUnit
    operations_per_clock: float
    at_tensor_clock: bool


def _find_rate(datasheets: dict, basis: _PeakBasis, ceiling: str) -> _Rate | None:
    """Return the rate of a ceiling, with the factor of the rate class.

    None where the architecture is unknown or lacks the ceiling.
    """
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
    """Return the peaks by ceiling, and by dtype why it has none."""
    peaks, absent = {}, {}
    for ceiling in COMPUTE_CEILINGS:
        rate = _find_rate(datasheets, basis, ceiling)
        reason = missing_ceiling_reason(ceiling, basis.compute_capability) or _missing_peak_reason(ceiling, rate, basis)
        if rate and reason is None:
            peaks[ceiling] = _peak_figure(rate, basis)
        elif reason and ceiling in PRODUCT_DTYPES:
            absent[ceiling] = reason
    return peaks, absent


def _missing_peak_reason(ceiling: str, rate: _Rate | None, basis: _PeakBasis) -> str | None:
    """Return why there is no peak for a ceiling that this compute capability may have; None if there is one."""
    if not DTYPES[operand_dtype(ceiling)].rated:
        return _not_printed_reason(ceiling)
    if rate is None:
        return f"no rate is known for compute capability {basis.compute_capability}"
    if rate.operations_per_clock == 0:
        return f"cards of rate class {basis.rate_class} have no tensor cores"
    if basis.boost_clock_mhz is None:
        return "the card is not in the table, and the device does not report its clock"
    return None


def _not_printed_reason(ceiling: str) -> str:
    return f"no datasheet prints a rate of {ceiling}"


def _peak_figure(rate: _Rate, basis: _PeakBasis) -> dict:
    """Return the card's printed figure; the formula's where no card of the table applies or the card has none."""
    operations, card = rate.operations_per_clock, basis.printed
    if card and rate.figure in card["peaks_tflops"]:
        tflops = card["peaks_tflops"][rate.figure]
        verified = rate.figure not in card["unverified"]
        derived = rate.figure in card.get("from_formula", [])
        source = NOT_PRINTED_SOURCE if derived else _source_text(card, rate.figure, otherwise="peaks")
    else:
        clock_mhz = basis.tensor_clock_mhz if rate.at_tensor_clock else basis.boost_clock_mhz
        assert clock_mhz is not None, "_missing_peak_reason names a device without a clock"
        tflops = clock_peak_tflops(operations, basis.multiprocessors, clock_mhz)
        verified, derived = False, True
        source = (
            f"architecture formula: {basis.multiprocessors} multiprocessors x {clock_mhz:g} MHz "
            f"({_clock_text(rate, basis)}) x {operations:g} operations per clock "
            f"(compute capability {basis.architecture_id})"
        )
    return {
        "tflops": float(tflops),
        "compute_unit": rate.unit,
        "operations_per_clock_per_multiprocessor": int(operations) if operations % 1 == 0 else operations,
        "source": source,
        "verified": verified,
        "derived": derived,
    }


def _clock_text(rate: _Rate, basis: _PeakBasis) -> str:
    if not basis.clocks_of_card:
        # Tensor cores may sustain less than the maximum clock, and no device reports how much.
        return "maximum clock of the device, so an upper bound"
    return f"{'tensor' if rate.at_tensor_clock else 'boost'} clock of the card"


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


# ---------------------------------------------------------------- agreement of a device with its card


def _find_mismatches(card_id: str | None, card: dict | None, identity: Identity, hardware: dict) -> list[str]:
    """Return why the printed figures do not apply to a device, one phrase each; empty if they do."""
    if card is None:
        return [f"the name {identity.name!r} is not in the table"]
    if hardware["mig_slice"] or identity.name != full_card_name(identity.name):
        return [f"a MIG slice, not the whole card of entry {card_id}"]
    mismatches, capability = [], card["compute_capability"]
    multiprocessors, memory_bytes = hardware["multiprocessors"], identity.memory_total_bytes
    if capability != identity.compute_capability:
        mismatches.append(f"compute capability {identity.compute_capability}, entry {card_id} has {capability}")
    if card["multiprocessors"] != multiprocessors:
        mismatches.append(f"{multiprocessors} multiprocessors, entry {card_id} has {card['multiprocessors']}")
    if not memory_matches(memory_bytes, card["memory_gb"]):
        mismatches.append(f"{memory_bytes / 1e9:.1f} GB of memory, entry {card_id} has {card['memory_gb']:g}")
    return mismatches


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
