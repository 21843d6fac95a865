"""The GPU beside the CPU: how many times as fast, and whether by as much as its roof is higher."""

from collections.abc import Mapping

from roofline.analysis.table import MemoryCeiling, Operator, Roofline
from roofline.core.formatting import counted, duration, listed, number, percent, starred, traffic
from roofline.core.statistics import few
from roofline.core.terms import accelerators
from roofline.operators.about import About
from roofline.records.device import DeviceRecord
from roofline.report.answers import NOTHING_CONCLUDED, Answer, answer
from roofline.report.efficiency import cells_of, no_ratio_of, roof_of
from roofline.report.markdown import Table, filled
from roofline.report.tables import span

NAMED = 3  # operators in a sentence
NEARLY_ALL = 0.95  # of a time: what is left of it is not worth a word


def gpu_vs_cpu(roofline: Roofline, devices: Mapping[str, DeviceRecord]) -> Answer:
    """For each operator that both have in fp32: is the GPU faster by as much as its roof is higher?"""
    gpu = next(iter(accelerators(devices, lambda name: devices[name].device_kind)), None)
    if gpu is None or "cpu" not in devices:
        only = f"{listed(devices)} {'was' if len(devices) == 1 else 'were'} measured"
        return Answer(f"Only {only}; the comparison needs a GPU and the CPU (`devices: auto`).")
    compared = [_compared(info, gpu, roofline) for info in roofline.operator_info.values()]
    found = [one for one in compared if one]
    if not found:
        return Answer(f"No operator was measured in fp32 on both {gpu} and cpu.")
    link = next((c for c in roofline.ceilings if (c.device, c.name) == (gpu, "h2d")), None)
    facts = {
        "gpu": gpu,
        "failed": any(map(roofline.all_doubtful, (gpu, "cpu"))),
        "compared": found[:NAMED],
        "more": counted(len(found[NAMED:]), "more operator") if found[NAMED:] else "",
        "ratios": [f"{one['ratio']} in {one['title']}" for one in found[:NAMED] if one["ratio"]],
        "link": link,
    }
    caution = NOTHING_CONCLUDED.capitalize() if any(one["times"] for one in found) else ""
    return answer("gpu_vs_cpu", facts, [_pairs(found, link, roofline)], caution)


def _compared(info: About, gpu: str, roofline: Roofline) -> dict | None:
    on_gpu, on_cpu = _fastest(roofline, gpu, info.name), _fastest(roofline, "cpu", info.name)
    pairs = sorted(((on_gpu[key], on_cpu[key]) for key in on_gpu if key in on_cpu), key=lambda pair: pair[0].bytes)
    if not pairs:
        return None
    why = {reason: None for pair in pairs for cell in pair if (reason := no_ratio_of(cell, roofline))}
    sure = [pair for pair in pairs if not any(no_ratio_of(cell, roofline) for cell in pair)]
    judged = [pair for pair in sure if not any(few(c.samples) or c.record in roofline.disturbed for c in pair)]
    ratios = [(_times(*pair), higher) for pair in judged if (higher := _roofs(*pair, roofline))]
    of_roofs = span(sorted(times / higher for times, higher in ratios)) if ratios else ""
    kinds = {cell.lower_ceiling for pair in judged for cell in pair}
    what = f"{kinds.pop()} ceilings" if len(kinds) == 1 else "roofs"
    return {
        "title": info.title,
        "case": judged[0][0].label if len(judged) == 1 else counted(len(judged), "case"),
        "times": span(sorted(_times(*pair) for pair in judged)) if judged else "",
        "ratio": f"{of_roofs} times the ratio of their {what} ({span(sorted(r for _, r in ratios))})" if ratios else "",
        "pairs": pairs,
        "no_ratio": listed(why) if why else "",
    }


def _times(fast: Operator, slow: Operator) -> float:
    return slow.latency_s / fast.latency_s


def _roofs(fast: Operator, slow: Operator, roofline: Roofline) -> float | None:
    """By how much the one's roof is higher; None where that rests on few samples."""
    if any(cell.fraction_of_roof and few(roof_of(cell, roofline).samples) for cell in (fast, slow)):
        return None
    return _ratio(fast.roof_tflops, slow.roof_tflops) or _ratio(*(_bandwidth(one, roofline) for one in (fast, slow)))


def _fastest(roofline: Roofline, device: str, operator: str) -> dict[tuple, Operator]:
    """The fastest implementation of each fp32 case, of the first scope."""
    found: dict[tuple, Operator] = {}
    cells = [cell for cell in cells_of(roofline, device, operator) if cell.dtype == "fp32" and cell.latency_s]
    for cell in cells:
        key = (cell.preset, *sorted(cell.shape.items()))
        if cell.scope == cells[0].scope and (key not in found or cell.latency_s < found[key].latency_s):
            found[key] = cell
    return found


def _bandwidth(cell: Operator, roofline: Roofline) -> float | None:
    """Of its memory ceiling; where it has no FLOPs, that is all its roof."""
    ceiling = next((c for c in roofline.ceilings if (c.device, c.name) == (cell.device, cell.memory_ceiling)), None)
    return ceiling.gb_per_s if ceiling and not cell.flops else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _pairs(compared: list[dict], link: MemoryCeiling | None, roofline: Roofline) -> Table:
    columns = ("operator", "fp32 case", "bytes", "GPU", "of roof", "launch overhead", "CPU", "of roof")
    columns += ("GPU times as fast", "over PCIe")
    rows = [
        [
            one["title"],
            fast.label or "",
            traffic(fast.bytes),
            _timed(fast),
            _share_of_roof(fast),
            percent(launches) if (launches := _launches(fast)) > 1 - NEARLY_ALL else "-",
            _timed(slow),
            _share_of_roof(slow),
            "-"
            if any(few(c.samples) or no_ratio_of(c, roofline) for c in (fast, slow))
            else number(_times(fast, slow)),
            duration(fast.bytes / (link.gb_per_s * 1e9)) if link and fast.bytes else "-",
        ]
        for one in compared
        for fast, slow in one["pairs"]
    ]
    return filled(columns, rows, left=2)


def _launches(cell: Operator) -> float:
    """Of the caller's time, what the device's part does not take."""
    return 1 - cell.device_latency_s / cell.latency_s if cell.device_latency_s else 0.0


def _share_of_roof(cell: Operator) -> str:
    return percent(cell.fraction_of_roof) if cell.fraction_of_roof else "-"


def _timed(cell: Operator) -> str:
    n = f"n {cell.samples}, " if cell.samples else ""
    return f"{starred(duration(cell.latency_s), cell.samples)} ({n}{cell.implementation})"
