"""interpretation.md: three questions answered from the numbers of this run, each with a verdict and small tables."""

from collections.abc import Iterable
from pathlib import Path

import jinja2

from roofline.core import model
from roofline.core.formatting import capacity, duration, listed, number, percent
from roofline.records.compute import PeakFlops, PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.operator import JobRecord, OperatorInfo, OperatorRecord
from roofline.records.roofline import MemoryCeiling, Operator, Roofline
from roofline.report.markdown import table
from roofline.report.tables import limited_by

NEAR, FAR = 0.10, 0.20  # of a ceiling's limit, or of another block of the same product
NEARLY_ALL = 0.95  # of a time: what is left of it is not worth a word
WIDE = 0.10  # an interval of the memory slope that asks for caution
TEMPLATES = Path(__file__).parent / "templates"


def interpret(roofline: Roofline, devices: dict[str, DeviceRecord], records: Iterable[JobRecord]) -> str:
    """The three answers as Markdown."""
    records = list(records)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return environment.get_template("interpretation.md.j2").render(
        devices=devices,
        trust=[trust(device, roofline, records) for device in devices.values()],
        operators=[
            landing(info, device, roofline, records)
            for info in roofline.operator_info.values()
            for device in devices
            if any(o.fraction_of_roof for o in _cells(roofline, device, info.name))
        ],
        against=against(roofline, devices),
    )


def _cells(roofline: Roofline, device: str, operator: str) -> list[Operator]:
    return [o for o in roofline.operators if (o.device, o.operator) == (device, operator)]


# ---------------------------------------------------------------- 1: trust


def trust(device: DeviceRecord, roofline: Roofline, records: list[JobRecord]) -> dict:
    """Whether a device's ceilings repeat, lie where their limits say, and stay above their operators."""
    name = device.device
    mine = [record for record in records if isinstance(record, PeakFlopsRecord) and record.device == name]
    peaks = {record.dtype: record.peak for record in mine if record.peak}
    products = {dtype: peak for dtype, peak in peaks.items() if peak.method == "gemm"}
    noisy = [dtype for dtype, peak in products.items() if (_apart(peak) or 0) > NEAR]
    beaten = [dtype for dtype, peak in products.items() if peak.reference_tflops > (1 + NEAR) * peak.burst_tflops]
    short = [dtype for dtype, peak in products.items() if _share(peak) and _share(peak) < 1 - FAR]
    doubted = list(dict.fromkeys(noisy + beaten))
    reasons = [f"two blocks of the best product of {listed(noisy)} differ by more than 10 %"] if noisy else []
    reasons += [f"the reference product of {listed(beaten)} beats the best product"] if beaten else []
    return {
        "device": name,
        "products": list(products),
        "trusted": [dtype for dtype in products if dtype not in doubted],
        "doubted": doubted,
        "reasons": reasons,
        "short": [dtype for dtype in short if dtype not in doubted],
        "agree": max((_apart(peak) or 0.0 for peak in products.values()), default=None),
        "slope": _slope(name, roofline),
        "investigated": [(dtype, p.investigation) for dtype, p in peaks.items() if p.investigation],
        "doubts": [f"{dtype}: {doubt.rstrip('.')}" for dtype, peak in peaks.items() for doubt in peak.doubts],
        "above": [found for found in roofline.above_roof if found.device == name],
        "table": _ceilings(peaks),
        "percent": percent,
        "listed": listed,
    }


def _ceilings(peaks: dict[str, PeakFlops]) -> str:
    columns = (
        "ceiling",
        "burst",
        "sustained",
        "reference product",
        "two blocks differ by",
        "of its limit",
        "limited by",
    )
    rows = [
        [
            dtype,
            number(peak.burst_tflops),
            number(peak.sustained_tflops) if peak.sustained_tflops else "-",
            number(peak.reference_tflops) if peak.reference_tflops else "-",
            "-" if _apart(peak) is None else percent(_apart(peak)),
            f"{percent(_share(peak))} of {_limit(peak)}" if _share(peak) else "-",
            limited_by(peak.limited_by, peak.throttled),
        ]
        for dtype, peak in peaks.items()
    ]
    return table(columns, rows) if rows else ""


def _share(peak: PeakFlops) -> float | None:
    """Of what the hardware could do at the clock that was measured; at the promised clock where none was."""
    return peak.fraction_of_clock or peak.fraction_of_vendor


def _limit(peak: PeakFlops) -> str:
    if peak.clock_tflops:
        return f"{number(peak.clock_tflops)} at {peak.clock_mhz:.0f} MHz"
    return f"{number(peak.vendor_tflops)} promised"


def _apart(peak: PeakFlops) -> float | None:
    """How far the burst is from the block by which its product was chosen; None where it was the only one."""
    blocks = (one.block_tflops for one in peak.candidates if one.product == peak.burst.product)
    before = next(blocks, None)
    return abs(peak.burst_tflops - before) / before if before else None


def _slope(device: str, roofline: Roofline) -> dict | None:
    """The memory ceiling that most operators stand under, and how sure it is."""
    there = {c.name: c for c in roofline.ceilings if c.device == device and isinstance(c, MemoryCeiling)}
    named = [o.memory_ceiling for o in roofline.operators if o.device == device and o.memory_ceiling in there]
    if not there:
        return None
    ceiling = there[max(named, key=named.count)] if named else next(iter(there.values()))
    wide = bool(ceiling.ci95) and (ceiling.ci95[1] - ceiling.ci95[0]) / ceiling.gb_per_s > WIDE
    vendor = f", {percent(ceiling.fraction_of_vendor)} of the vendor's" if ceiling.fraction_of_vendor else ""
    return {
        "name": ceiling.name,
        "text": f"{number(ceiling.gb_per_s)} GB/s{vendor}",
        "wide": wide,
        "ci95": ceiling.ci95,
    }


# ---------------------------------------------------------------- 2: the operators


def landing(info: OperatorInfo, device: str, roofline: Roofline, records: list[JobRecord]) -> dict:
    """Where an operator lands under its roofs on a device."""
    cells = [cell for cell in _cells(roofline, device, info.name) if cell.fraction_of_roof]
    first = [cell for cell in cells if cell.scope == cells[0].scope]  # a core, where there is more than one scope
    best, worst = max(first, key=_fraction), min(first, key=_fraction)
    regimes = {regime: sum(cell.regime == regime for cell in cells) for regime in ("memory", "compute", "overhead")}
    judged = [cell for cell in cells if cell.predicted.sealed and cell.regime]
    return {
        "title": info.title,
        "device": device,
        "best": best,
        "worst": worst,
        "best_name": _name(best),
        "worst_name": _name(worst),
        "regimes": [f"{count} {regime}-bound" for regime, count in regimes.items() if count],
        "count": len(cells),
        "intensities": _span([f"{cell.intensity_flops_per_byte:.3g}" for cell in _by_intensity(first)]),
        "ridges": _span([number(ridge) for ridge in sorted(_ridge_points(device, roofline, first))]),
        "right": sum(cell.predicted.sealed.regime == cell.regime for cell in judged),
        "judged": len(judged),
        "usual": _usual(info, first),
        "notes": _notes(info, device, records),
        "table": _implementations(cells),
        "percent": percent,
        "duration": duration,
        "listed": listed,
    }


def _fraction(cell: Operator) -> float:
    return cell.fraction_of_roof


def _name(cell: Operator) -> str:
    return ", ".join(filter(None, [cell.implementation, cell.preset, cell.dtype, cell.label]))


def _by_intensity(cells: list[Operator]) -> list[Operator]:
    found = [cell for cell in cells if cell.intensity_flops_per_byte]
    return sorted(found, key=lambda cell: cell.intensity_flops_per_byte)


def _span(values: list[str]) -> str:
    return values[0] if len(set(values)) == 1 else f"{values[0]} to {values[-1]}" if values else ""


def _ridge_points(device: str, roofline: Roofline, cells: list[Operator]) -> set[float]:
    """Compute ceiling over memory ceiling, in FLOP/byte, of each pair that a cell stands under."""
    ceilings = {c.name: c for c in roofline.ceilings if c.device == device}
    pairs = {(cell.compute_ceiling, cell.memory_ceiling) for cell in cells}
    return {
        model.ridge_point(ceilings[compute].tflops * 1e12, ceilings[memory].gb_per_s * 1e9)
        for compute, memory in pairs
        if compute in ceilings and memory in ceilings
    }


def _usual(info: OperatorInfo, cells: list[Operator]) -> str:
    """Of the compute peak in the narrowest dtype, beside what is usual."""
    if not info.usual_share_of_peak:
        return ""
    halves = [cell for cell in cells if cell.dtype == "fp16" and cell.compute_ceiling == "fp16"]
    shares = sorted(cell.fraction_of_compute_peak for cell in halves if cell.fraction_of_compute_peak)
    if not shares:
        return ""
    low, high = info.usual_share_of_peak
    inside = sum(low <= share <= high for share in shares)
    return (
        f"In fp16 it reaches {_span([percent(shares[0]), percent(shares[-1])])} of the measured peak; "
        f"{percent(low).removesuffix(' %')}-{percent(high)} is usual when memory-bound, "
        f"and {inside} of {len(shares)} cells lie inside."
    )


def _notes(info: OperatorInfo, device: str, records: list[JobRecord]) -> list[str]:
    mine = [r for r in records if isinstance(r, OperatorRecord) and r.device == device and r.info.name == info.name]
    notes = dict.fromkeys(note for record in mine for note in record.notes)
    generated = any(file.generated for record in mine for file in record.data)
    return [*notes, *(["its weights were generated, not those of a trained model"] if generated else [])]


def _implementations(cells: list[Operator]) -> str:
    """Each implementation and scope: its shares, its regimes, and the time of its smallest and largest cell."""
    columns = ("implementation", "cells", "of roof", "device alone", "regimes found", "smallest cell", "largest cell")
    groups: dict[tuple, list[Operator]] = {}
    for cell in cells:
        groups.setdefault((cell.implementation, cell.scope), []).append(cell)
    rows = []
    for (implementation, scope), mine in groups.items():
        mine.sort(key=lambda cell: cell.bytes)
        shares = sorted(_fraction(cell) for cell in mine)
        alone = sorted(cell.device_fraction_of_roof for cell in mine if cell.device_fraction_of_roof)
        regimes = dict.fromkeys(cell.regime for cell in mine if cell.regime)
        rows.append(
            [
                " ".join(filter(None, [implementation, scope])),
                str(len(mine)),
                _span([percent(shares[0]), percent(shares[-1])]),
                _span([percent(alone[0]), percent(alone[-1])]) if alone else "-",
                ", ".join(f"{sum(cell.regime == one for cell in mine)} {one}" for one in regimes) or "-",
                f"{duration(mine[0].latency_s)} ({mine[0].dtype} {mine[0].label})",
                f"{duration(mine[-1].latency_s)} ({mine[-1].dtype} {mine[-1].label})",
            ]
        )
    return table(columns, rows)


# ---------------------------------------------------------------- 3: the GPU against the CPU


def against(roofline: Roofline, devices: dict[str, DeviceRecord]) -> dict:
    """For each operator that both have in fp32: is the ratio of attained TFLOPS that of the memory bandwidths?"""
    gpu = next((name for name, record in devices.items() if record.device_kind == "gpu"), None)
    if gpu is None or "cpu" not in devices:
        return {
            "missing": f"Only {', '.join(devices)} was measured; the question needs a GPU and the CPU (devices: auto)."
        }
    compared = [
        found
        for info in roofline.operator_info.values()
        if (found := _compared(info, gpu, roofline)) and found["largest"].regime != model.COMPUTE_BOUND
    ]
    if not compared:
        return {"missing": f"No memory-bound fp32 operator was measured on both {gpu} and cpu."}
    return {"gpu": gpu, "compared": compared, "percent": percent, "number": number, "duration": duration}


def _compared(info: OperatorInfo, gpu: str, roofline: Roofline) -> dict | None:
    on_gpu, on_cpu = _fastest(roofline, gpu, info.name), _fastest(roofline, "cpu", info.name)
    pairs = [(on_gpu[key], on_cpu[key]) for key in on_gpu if key in on_cpu]
    if not pairs:
        return None
    pairs.sort(key=lambda pair: pair[0].bytes)
    speeds = {(c.device, c.name): c.gb_per_s for c in roofline.ceilings if isinstance(c, MemoryCeiling)}
    fast, slow = pairs[-1]
    memory = _ratio(speeds.get((gpu, fast.memory_ceiling)), speeds.get(("cpu", slow.memory_ceiling)))
    attained = fast.attained_tflops / slow.attained_tflops
    return {
        "title": info.title,
        "largest": fast,
        "label": fast.label,
        "attained": attained,
        "memory": memory,
        "verdict": _verdict(attained, memory),
        "reasons": _reasons(fast, slow, gpu, speeds),
        "table": _pairs(pairs),
    }


def _fastest(roofline: Roofline, device: str, operator: str) -> dict[tuple, Operator]:
    """The fastest implementation of each fp32 case, of the first scope."""
    found: dict[tuple, Operator] = {}
    cells = [cell for cell in _cells(roofline, device, operator) if cell.dtype == "fp32" and cell.latency_s]
    for cell in cells:
        key = (cell.preset, *sorted(cell.shape.items()))
        if cell.scope == cells[0].scope and (key not in found or cell.latency_s < found[key].latency_s):
            found[key] = cell
    return found


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _verdict(attained: float, memory: float | None) -> str:
    if memory is None:
        return "the ratio of the memory bandwidths is not known"
    if attained > (1 + NEAR) * memory:
        return f"more than the {number(memory)} times that the memories differ by"
    if attained >= (1 - NEAR) * memory:
        return f"the {number(memory)} times that the memories differ by, within 10 %"
    return f"less than the {number(memory)} times that the memories differ by"


def _reasons(fast: Operator, slow: Operator, gpu: str, speeds: dict) -> list[str]:
    """What took the difference: each side's share of its own memory bandwidth, launches, the host link."""
    shares = [
        f"{name} moves its bytes at {percent(cell.bytes / cell.latency_s / 1e9 / own)} of its {cell.memory_ceiling}"
        for name, cell, own in (
            (f"{gpu} ({fast.implementation})", fast, speeds.get((gpu, fast.memory_ceiling))),
            (f"the CPU ({slow.implementation})", slow, speeds.get(("cpu", slow.memory_ceiling))),
        )
        if own
    ]
    if fast.device_latency_s and fast.device_latency_s < NEARLY_ALL * fast.latency_s:
        gap = percent(1 - fast.device_latency_s / fast.latency_s)
        shares.append(f"{gap} of the GPU's time is launch overhead")
    elif fast.device_latency_s:
        shares.append("launches cost the GPU next to nothing here")
    h2d = speeds.get((gpu, "h2d"))
    if h2d:
        fetching_s = fast.bytes / (h2d * 1e9)
        shares.append(
            "PCIe takes no part, since the operands live on the device: to fetch them each time at the measured "
            f"{number(h2d)} GB/s would take {duration(fetching_s)}, {number(fetching_s / fast.latency_s)} times the step"
        )
    return shares


def _pairs(pairs: list[tuple[Operator, Operator]]) -> str:
    columns = ("fp32 case", "bytes", "GPU", "CPU", "GPU times as fast")
    rows = [
        [
            fast.label or "",
            capacity(fast.bytes),
            f"{duration(fast.latency_s)} ({fast.implementation})",
            f"{duration(slow.latency_s)} ({slow.implementation})",
            number(slow.latency_s / fast.latency_s),
        ]
        for fast, slow in pairs
    ]
    return table(columns, rows)
