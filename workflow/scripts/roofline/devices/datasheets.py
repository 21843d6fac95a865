"""What the vendor promises: printed figures by exact device name, or the architecture's formula.

The figures live in config/datasheets.yaml, whose header explains them. Pure functions of that file's contents
and of what a device reports. Units are in the names: clocks in MHz, peaks in TFLOPS (TOPS for int8; a
multiply-add is two operations), bandwidth in decimal GB/s, memory in bytes.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

TENSOR_CORE = "tensor_core"
CUDA_CORE = "cuda_core"
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
CEILINGS = (*DTYPES, "fp64_fma", "fp32_fma", "fp16_fma")

# The figure of the datasheet that a ceiling on CUDA cores is held against: fp32 GEMM and register-only fp32
# run on the same units, and so does fp64 GEMM on a card without fp64 tensor cores.
CUDA_CORE_FIGURE = {
    "fp64": "fp64_fma",
    "fp32": "fp32",
    "fp64_fma": "fp64_fma",
    "fp32_fma": "fp32",
    "fp16_fma": "fp16_fma",
}

# The first compute capability whose tensor cores take a dtype.
FIRST_CAPABILITY = {"fp16": "7.0", "int8": "7.5", "tf32": "8.0", "bf16": "8.0", "fp8_e4m3": "8.9"}

# A reported total lies between the nominal size in GB, less what ECC keeps, and the nominal size in GiB.
MEMORY_TOLERANCE = 0.12


# ---------------------------------------------------------------- the figures of one device


def vendor_figures(
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
) -> dict:
    """The vendor's dense peaks and bandwidth for a device, as plain data, each figure with its source.

    The arguments are what the device itself reports; a clock or bus width that it does not tell is None.
    Where name, compute capability, multiprocessors and memory size all agree with a card of the table
    ('match': 'exact'), the figures are the printed ones. Otherwise ('formula') they follow from the rates of
    the architecture and are marked derived and unverified; 'reason' says what disagreed. 'entry' is the card
    of that name, or None; under 'formula' it lends only its rate class and, where the compute capability
    agrees, its clocks (for a tensor clock is not reported by any device).

    'absent' gives the reason for each dtype without a peak: the hardware lacks it (`lacks` gives the same
    reason), or nothing is known of its rate, which does not keep it from running. 'bandwidth' is None where
    neither the table nor the device tells it.

    Raises ValueError for a compute capability that is not of the form 'major.minor'.
    """
    entry_id, entry = find_entry(datasheets, full_card_name(name))
    mismatches = _mismatches(entry_id, entry, name, compute_capability, multiprocessors, memory_bytes, mig)
    exact = not mismatches
    same_silicon = entry is not None and entry["compute_capability"] == compute_capability
    basis = _Basis(
        compute_capability,
        multiprocessors,
        printed=entry if exact else None,
        rate_class=_rate_class(datasheets, name, entry),
        boost_clock_mhz=entry["boost_clock_mhz"] if same_silicon else sm_clock_max_mhz,
        tensor_clock_mhz=entry["tensor_clock_mhz"] if same_silicon else sm_clock_max_mhz,
        clocks_of_card=same_silicon,
        architecture_id=nearest_architecture(datasheets, compute_capability)[0],
    )
    peaks, absent = _peaks(datasheets, basis)
    if exact:
        bandwidth = _printed_bandwidth(entry)
    else:
        bandwidth = _derived_bandwidth(memory_clock_max_mhz, memory_bus_width_bits)
    return {
        "match": "exact" if exact else "formula",
        "entry": entry_id,
        "reason": _reason(entry_id, mismatches, basis),
        "boost_clock_mhz": basis.boost_clock_mhz,
        "tensor_clock_mhz": basis.tensor_clock_mhz,
        "rate_class": basis.rate_class,
        "l2_bytes": round(entry["l2_mib"] * 2**20) if exact and entry["l2_mib"] else None,
        "power_limit_w": entry["power_limit_w"] if exact else None,
        "peaks": peaks,
        "absent": absent,
        "bandwidth": bandwidth,
    }


def entry_fingerprint(datasheets: dict, name: str, compute_capability: str) -> str:
    """SHA-256 (hex) of what the datasheets say of a device: its card, its rate class and its architecture.

    Another card added to the file leaves it as it is, so it can stand for the file where results grow stale.
    """
    _, entry = find_entry(datasheets, full_card_name(name))
    rate_class = _rate_class(datasheets, name, entry)
    used = {
        "card": entry,
        "rate_class": {rate_class: datasheets["rate_classes"][rate_class]},
        "architecture": nearest_architecture(datasheets, compute_capability),
    }
    canonical = json.dumps(used, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


# ---------------------------------------------------------------- formulas


def clock_peak_tflops(operations_per_clock: float, multiprocessors: int, clock_mhz: float) -> float:
    """TFLOPS of so many multiprocessors, each doing `operations_per_clock` operations in every clock.

    Operations a second are multiprocessors x operations a clock x clocks a second, and MHz to TFLOPS is
    10^6 / 10^12. An H200 in fp16: 132 x 4096 x 1830 / 10^6 = 989.4. The rate counts a multiply-add as two.
    (NVIDIA H100 whitepaper v1.04, table 3, whose printed peaks it reproduces.)
    """
    return operations_per_clock * multiprocessors * clock_mhz / 1e6


def bus_bandwidth_gb_per_s(memory_clock_mhz: float, bus_width_bits: int) -> float:
    """GB/s of a memory bus that transfers twice a clock: 2 x MHz x bits / 8 bits a byte / 1000.

    The clock is the one that CUDA and NVML report, which holds for HBM and GDDR alike
    (CUDA C++ best practices guide, theoretical bandwidth).
    """
    return 2 * memory_clock_mhz * bus_width_bits / 8 / 1e3


def memory_agrees(memory_bytes: int, nominal_gb: float) -> bool:
    """Whether a reported total is that of a card sold with `nominal_gb`, within 12 % of it as GB or as GiB.

    Wide, since vendors mean either unit and ECC takes its share (an H200 of '141 GB' reports 150.8e9 bytes, a
    T4 of '16 GB' 15.8e9); narrow enough to keep 16 from 32 and 40 from 80.
    """
    return any(abs(memory_bytes / (nominal_gb * unit) - 1) <= MEMORY_TOLERANCE for unit in (1e9, 2**30))


# ---------------------------------------------------------------- looking up


def find_entry(datasheets: dict, name: str) -> tuple[str, dict] | tuple[None, None]:
    """The card of exactly this device name, with its id; (None, None) if there is none.

    Never by prefix: 'NVIDIA A10' begins 'NVIDIA A100-SXM4-40GB', 'NVIDIA H200' begins 'NVIDIA H200 NVL'.
    """
    for entry_id, entry in datasheets["cards"].items():
        if name in entry["device_names"]:
            return entry_id, entry
    return None, None


def full_card_name(name: str) -> str:
    """The name of the card that a MIG slice is cut from: 'NVIDIA B200 MIG 1g.23gb' is of an 'NVIDIA B200'."""
    return name.split(" MIG ")[0]


def _rate_class(datasheets: dict, name: str, entry: dict | None) -> str:
    """The rate class of the card, or that which the name of one outside the table suggests; else 'full'."""
    if entry is not None:
        return entry["rate_class"]
    for rate_class, properties in datasheets["rate_classes"].items():
        if any(part in name for part in properties["name_contains"]):
            return rate_class
    return "full"


def nearest_architecture(datasheets: dict, compute_capability: str) -> tuple[str, dict] | tuple[None, None]:
    """The rates of this compute capability, or of the nearest one (the older of two) with its major number.

    (None, None) where no such major number is known. Raises ValueError if it is not 'major.minor'.
    """
    major, minor = _version(compute_capability)
    relatives = [known for known in datasheets["architectures"] if _version(known)[0] == major]
    if not relatives:
        return None, None
    nearest = min(relatives, key=lambda known: (abs(_version(known)[1] - minor), _version(known)))
    return nearest, datasheets["architectures"][nearest]


def lacks(dtype: str, compute_capability: str) -> str | None:
    """Why no tensor core of this compute capability takes `dtype`; None if one does, or if none is needed."""
    needed = FIRST_CAPABILITY.get(dtype)
    if needed is None or _version(compute_capability) >= _version(needed):
        return None
    return f"compute capability {compute_capability}, {dtype} tensor cores need {needed}"


def _version(compute_capability: str) -> tuple[int, int]:
    if not _is_capability(compute_capability):
        raise ValueError(f"compute capability: {compute_capability!r}, must be of the form '9.0'")
    major, minor = compute_capability.split(".")
    return int(major), int(minor)


# ---------------------------------------------------------------- one figure


class _Basis(NamedTuple):
    """What the peaks of a device rest on."""

    compute_capability: str
    multiprocessors: int
    printed: dict | None  # the card whose printed figures apply
    rate_class: str
    boost_clock_mhz: float | None
    tensor_clock_mhz: float | None
    clocks_of_card: bool  # else both are the maximum that the device reports
    architecture_id: str | None


class _Rate(NamedTuple):
    """What runs a ceiling: the figure that the datasheet has for it, and how fast in which clock domain."""

    figure: str
    unit: str
    operations_per_clock: float
    at_tensor_clock: bool


def _peaks(datasheets: dict, basis: _Basis) -> tuple[dict[str, dict], dict[str, str]]:
    """The peak of every ceiling that the device has, and the reason for every dtype without one."""
    peaks: dict[str, dict] = {}
    absent: dict[str, str] = {}
    for ceiling in CEILINGS:
        rate = _rate(datasheets, basis, ceiling)
        reason = lacks(ceiling, basis.compute_capability) or _unknown(rate, basis)
        if reason is None:
            peaks[ceiling] = _printed_peak(rate, basis) or _derived_peak(rate, basis)
        elif ceiling in DTYPES:
            absent[ceiling] = reason
    return peaks, absent


def _rate(datasheets: dict, basis: _Basis, ceiling: str) -> _Rate | None:
    """The rate of a ceiling after the rate class; None where the architecture has no unit for it."""
    if basis.architecture_id is None:
        return None
    architecture = datasheets["architectures"][basis.architecture_id]
    if ceiling in architecture["tensor_core"]:
        factor = datasheets["rate_classes"][basis.rate_class]["factors"].get(ceiling, 1)
        operations = architecture["tensor_core"][ceiling] * factor
        at_tensor_clock = ceiling not in architecture["tensor_at_boost_clock"]
        return _Rate(ceiling, TENSOR_CORE, operations, at_tensor_clock)
    if ceiling in CUDA_CORE_FIGURE:
        figure = CUDA_CORE_FIGURE[ceiling]
        return _Rate(figure, CUDA_CORE, architecture["cuda_core"][figure], at_tensor_clock=False)
    return None


def _unknown(rate: _Rate | None, basis: _Basis) -> str | None:
    """Why nothing can be said of a ceiling that this compute capability may have; None if something can."""
    if rate is None:
        return f"no rate is known for compute capability {basis.compute_capability}"
    if rate.operations_per_clock == 0:
        return f"cards of rate class {basis.rate_class} have no tensor cores"
    if basis.boost_clock_mhz is None:
        return "the card is not in the table, and the device does not tell its clock"
    return None


def _peak(rate: _Rate, tflops: float, source: str, verified: bool, derived: bool) -> dict:
    operations = rate.operations_per_clock
    return {
        "tflops": float(tflops),
        "unit": rate.unit,
        "operations_per_clock_per_multiprocessor": int(operations) if operations % 1 == 0 else operations,
        "source": source,
        "verified": verified,
        "derived": derived,
    }


def _printed_peak(rate: _Rate, basis: _Basis) -> dict | None:
    """The figure as the table has it; None where no card of the table applies, or it has no such figure."""
    card = basis.printed
    if card is None or rate.figure not in card["peaks_tflops"]:
        return None
    derived = rate.figure in card.get("from_formula", [])
    if derived:
        source = "architecture formula; the vendor prints no such figure"
    else:
        source = _source(card, rate.figure, otherwise="peaks")
    verified = rate.figure not in card["unverified"]
    return _peak(rate, card["peaks_tflops"][rate.figure], source, verified, derived)


def _derived_peak(rate: _Rate, basis: _Basis) -> dict:
    clock_mhz = basis.tensor_clock_mhz if rate.at_tensor_clock else basis.boost_clock_mhz
    if basis.clocks_of_card:
        clock = f"{'tensor' if rate.at_tensor_clock else 'boost'} clock of the card"
    else:
        # What tensor cores sustain may be less, and no device reports it.
        clock = "maximum clock of the device, so an upper bound"
    source = (
        f"architecture formula: {basis.multiprocessors} multiprocessors x {clock_mhz:g} MHz ({clock}) x "
        f"{rate.operations_per_clock:g} operations a clock (compute capability {basis.architecture_id})"
    )
    tflops = clock_peak_tflops(rate.operations_per_clock, basis.multiprocessors, clock_mhz)
    return _peak(rate, tflops, source, verified=False, derived=True)


def _printed_bandwidth(entry: dict) -> dict:
    return {
        "gb_per_s": float(entry["bandwidth_gb_per_s"]),
        "source": _source(entry, "bandwidth_gb_per_s", otherwise="bandwidth"),
        "verified": "bandwidth_gb_per_s" not in entry["unverified"],
        "derived": False,
    }


def _derived_bandwidth(memory_clock_mhz: float | None, bus_width_bits: int | None) -> dict | None:
    # Of a MIG slice CUDA reports the bus width of its share (640 bit of the 5120 of an H100, for 1g.10gb).
    if not memory_clock_mhz or not bus_width_bits:
        return None
    return {
        "gb_per_s": bus_bandwidth_gb_per_s(memory_clock_mhz, bus_width_bits),
        "source": f"bus formula: 2 x {memory_clock_mhz:g} MHz x {bus_width_bits} bit / 8",
        "verified": False,
        "derived": True,
    }


def _source(entry: dict, figure: str, otherwise: str) -> str:
    source = entry["sources"].get(figure, entry["sources"][otherwise])
    return f"{source} (this figure not verified)" if figure in entry["unverified"] else source


# ---------------------------------------------------------------- does the device agree with the card


def _mismatches(
    entry_id: str | None,
    entry: dict | None,
    name: str,
    compute_capability: str,
    multiprocessors: int,
    memory_bytes: int,
    mig: bool,
) -> list[str]:
    """What keeps the printed figures from applying to this device, one phrase each; empty if they apply."""
    if entry is None:
        return [f"the name {name!r} is not in the table"]
    if mig or name != full_card_name(name):
        return [f"a MIG slice, not the whole card of entry {entry_id}"]
    found = []
    if entry["compute_capability"] != compute_capability:
        found.append(f"compute capability {compute_capability}, entry {entry_id} has {entry['compute_capability']}")
    if entry["multiprocessors"] != multiprocessors:
        found.append(f"{multiprocessors} multiprocessors, entry {entry_id} has {entry['multiprocessors']}")
    if not memory_agrees(memory_bytes, entry["memory_gb"]):
        found.append(f"{memory_bytes / 1e9:.1f} GB of memory, entry {entry_id} has {entry['memory_gb']:g}")
    return found


def _reason(entry_id: str | None, mismatches: list[str], basis: _Basis) -> str:
    if not mismatches:
        return f"name, compute capability, multiprocessors and memory size agree with entry {entry_id}"
    parts = list(mismatches)
    if basis.architecture_id is None:
        parts.append(f"no rates are known for compute capability {basis.compute_capability} or its relatives")
    else:
        parts[0] = f"figures by formula: {parts[0]}"
        if entry_id is None:
            parts.append(f"rate class {basis.rate_class} assumed from the name")
        if basis.architecture_id != basis.compute_capability:
            parts.append(f"rates of the nearest known compute capability, {basis.architecture_id}")
    return "; ".join(parts)


# ---------------------------------------------------------------- reading and validating the file


def load(path: str | Path) -> dict:
    """The datasheets as plain data.

    Raises ValueError, one line a fault and all faults at once, for anything that is not as the header of the
    file says: unknown, missing or repeated keys, impossible values, names that lead nowhere. OSError where
    the file cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        datasheets = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    faults = _faults(datasheets)
    if faults:
        raise ValueError("\n".join(f"{path}: {fault}" for fault in faults))
    return datasheets


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys in silence: a card copied and not renamed would vanish."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Kind(NamedTuple):
    """What a value may be: a test, and the words for it in a message."""

    ok: Callable[[Any], bool]
    allowed: str


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_capability(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_whole(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and value > 0


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _texts_of(closed: Iterable[str]) -> _Kind:
    closed = tuple(closed)
    return _Kind(lambda value: _is_texts(value) and set(value) <= set(closed), f"a list out of {', '.join(closed)}")


def _numbers_by(closed: Iterable[str], ok: Callable[[float], bool], allowed: str) -> _Kind:
    closed = tuple(closed)

    def good(value: Any) -> bool:
        return isinstance(value, dict) and all(k in closed and _is_number(v) and ok(v) for k, v in value.items())

    return _Kind(good, f"{allowed} by any of {', '.join(closed)}")


_TEXT = _Kind(_is_text, "text")
_TEXTS = _Kind(_is_texts, "a list of different texts")
_NAMES = _Kind(lambda value: _is_texts(value) and value != [], "a list of different texts, at least one")
_CAPABILITY = _Kind(_is_capability, "'major.minor' in quotes")
_WHOLE = _Kind(_is_whole, "a whole number above 0")
_POSITIVE = _Kind(lambda value: _is_number(value) and value > 0, "a number above 0")
_POSITIVE_OR_NULL = _Kind(lambda value: value is None or _POSITIVE.ok(value), "a number above 0, or null")
_MAPPING = _Kind(lambda value: isinstance(value, dict) and value != {}, "a mapping, not empty")

_TENSOR_DTYPES = ("fp64", *FIRST_CAPABILITY)
_PRINTED = ("fp64_fma", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
_SOURCES = ("names", "device", "peaks", "bandwidth", *_PRINTED)

_TOP = {
    "schema_version": _Kind(lambda value: value == 1, "1"),
    "rate_classes": _Kind(lambda value: _MAPPING.ok(value) and "full" in value, "a mapping with a class 'full'"),
    "architectures": _MAPPING,
    "cards": _MAPPING,
}
_RATE_CLASS = {
    "meaning": _TEXT,
    "name_contains": _TEXTS,
    "factors": _numbers_by(_TENSOR_DTYPES, lambda value: 0 <= value <= 1, "factors from 0 to 1"),
}
_MULTIPROCESSOR = dict.fromkeys(
    (
        "warp_schedulers",
        "max_warps",
        "registers",
        "l1_and_shared_kib",
        "shared_kib",
        "shared_per_block_kib",
        "shared_bytes_per_clock",
        "l1_bytes_per_clock",
    ),
    _WHOLE,
)
_CUDA_CORE_RATES = dict.fromkeys(("fp64_fma", "fp32", "fp16_fma"), _WHOLE)
_ARCHITECTURE = {
    "name": _TEXT,
    "tensor_core": _numbers_by(_TENSOR_DTYPES, _is_whole, "whole numbers above 0"),
    "cuda_core": _MAPPING,
    "tensor_at_boost_clock": _texts_of(_TENSOR_DTYPES),
    "multiprocessor": _MAPPING,
    "l2_bytes_per_clock": _POSITIVE_OR_NULL,
    "unverified": _texts_of((*_TENSOR_DTYPES, *_CUDA_CORE_RATES, *_MULTIPROCESSOR, "l2_bytes_per_clock")),
    "source": _TEXT,
}
_CARD_PROPERTIES = {
    "device_names": _NAMES,
    "multiprocessors": _WHOLE,
    "boost_clock_mhz": _POSITIVE,
    "tensor_clock_mhz": _POSITIVE,
    "memory_type": _TEXT,
    "memory_gb": _POSITIVE,
    "bandwidth_gb_per_s": _POSITIVE,
    "l2_mib": _POSITIVE_OR_NULL,
    "power_limit_w": _POSITIVE,
    "pcie_generation": _WHOLE,
}
_CARD = {
    **_CARD_PROPERTIES,
    "compute_capability": _CAPABILITY,
    "rate_class": _TEXT,
    "peaks_tflops": _numbers_by(_PRINTED, lambda value: value > 0, "numbers above 0"),
    "unverified": _texts_of((*_CARD_PROPERTIES, *_PRINTED)),
    "sources": _MAPPING,
}
_CARD_OPTIONAL = {"from_formula": _texts_of(_PRINTED), "notes": _TEXT}
_CARD_SOURCES = dict.fromkeys(("device", "peaks", "bandwidth"), _TEXT)
_CARD_SOURCES_OPTIONAL = dict.fromkeys(_SOURCES, _TEXT)


def _faults(datasheets: Any) -> list[str]:
    """Every fault of the file's contents, one line each. Values are cross-checked only once each is good."""
    faults = _faults_of("", datasheets, _TOP)
    if faults:
        return faults
    for key, value in datasheets["rate_classes"].items():
        faults += _faults_of(f"rate_classes.{key}", value, _RATE_CLASS)
    for key, value in datasheets["architectures"].items():
        faults += _architecture_faults(f"architectures.{key}", key, value)
    for key, value in datasheets["cards"].items():
        faults += _card_faults(f"cards.{key}", value)
    return faults or _cross_faults(datasheets)


def _faults_of(
    path: str, value: Any, required: dict[str, _Kind], optional: dict[str, _Kind] | None = None
) -> list[str]:
    """The faults of one mapping against the kinds of its keys."""
    if not isinstance(value, dict):
        return [f"{path or 'the file'}: {value!r}, must be a mapping"]
    kinds = {**(optional or {}), **required}
    prefix = f"{path}." if path else ""
    missing = [f"{prefix}{key}: missing" for key in required if key not in value]
    unknown = [f"{prefix}{key}: unknown key, allowed are {', '.join(kinds)}" for key in value if key not in kinds]
    impossible = [
        f"{prefix}{key}: {value[key]!r}, must be {kind.allowed}"
        for key, kind in kinds.items()
        if key in value and not kind.ok(value[key])
    ]
    return missing + unknown + impossible


def _architecture_faults(path: str, key: Any, value: Any) -> list[str]:
    faults = [] if _CAPABILITY.ok(key) else [f"{path}: {key!r}, the key must be {_CAPABILITY.allowed}"]
    faults += _faults_of(path, value, _ARCHITECTURE)
    if not faults:
        faults += _faults_of(f"{path}.cuda_core", value["cuda_core"], _CUDA_CORE_RATES)
        faults += _faults_of(f"{path}.multiprocessor", value["multiprocessor"], _MULTIPROCESSOR)
    return faults


def _card_faults(path: str, value: Any) -> list[str]:
    faults = _faults_of(path, value, _CARD, _CARD_OPTIONAL)
    if not faults:
        faults += _faults_of(f"{path}.sources", value["sources"], _CARD_SOURCES, _CARD_SOURCES_OPTIONAL)
    return faults


def _cross_faults(datasheets: dict) -> list[str]:
    """Faults between values that are each well-formed: references that lead nowhere, and contradictions."""
    faults = []
    seen: dict[str, str] = {}
    for entry_id, entry in datasheets["cards"].items():
        path = f"cards.{entry_id}"
        for name in entry["device_names"]:
            if name in seen:
                faults.append(f"{path}.device_names: {name!r} is already the name of {seen[name]}")
            seen[name] = entry_id
        if entry["rate_class"] not in datasheets["rate_classes"]:
            known = ", ".join(datasheets["rate_classes"])
            faults.append(f"{path}.rate_class: {entry['rate_class']!r}, must be one of {known}")
        if entry["tensor_clock_mhz"] > entry["boost_clock_mhz"]:
            faults.append(f"{path}.tensor_clock_mhz: {entry['tensor_clock_mhz']}, must not exceed the boost clock")
        faults += _peak_faults(path, entry, datasheets["architectures"])
    return faults


def _peak_faults(path: str, entry: dict, architectures: dict) -> list[str]:
    architecture = architectures.get(entry["compute_capability"])
    if architecture is None:
        known = ", ".join(architectures)
        return [f"{path}.compute_capability: {entry['compute_capability']!r}, must be one of {known}"]
    possible = {*architecture["tensor_core"], *architecture["cuda_core"]}
    printed = set(entry["peaks_tflops"])
    unverified = set(entry["unverified"])
    from_formula = set(entry.get("from_formula", []))
    faults = [
        f"{path}.peaks_tflops.{figure}: compute capability {entry['compute_capability']} has no unit for it"
        for figure in sorted(printed - possible)
    ]
    faults += [
        f"{path}.unverified: {figure!r} is no figure of this card"
        for figure in sorted(unverified - printed - set(_CARD_PROPERTIES))
    ]
    faults += [
        f"{path}.from_formula: {figure!r} must be in peaks_tflops and in unverified"
        for figure in sorted(from_formula - (printed & unverified))
    ]
    return faults
