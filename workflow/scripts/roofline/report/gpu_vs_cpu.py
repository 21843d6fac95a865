"""The GPU beside the CPU: how many times as fast, and whether by as much as its roof is higher."""

from roofline.core.formatting import counted, duration, listed, number, percent, starred, traffic
from roofline.core.terms import accelerators
from roofline.operators.about import About
from roofline.report.answers import NOTHING_CONCLUDED, Answer, answer
from roofline.report.efficiency import cells_of
from roofline.report.markdown import Table, filled
from roofline.report.tables import span
from roofline.table.rows import Cell, MemoryCeiling, Roofline

NAMED = 3  # operators in a sentence
NEARLY_ALL = 0.95  # of a time: what is left of it is not worth a word


def gpu_vs_cpu(roofline: Roofline) -> Answer:
    """For each operator that both have in fp32: is the GPU faster by as much as its roof is higher?"""
    devices = roofline.devices
    gpu = next(iter(accelerators(devices, lambda name: devices[name].kind)), None)
    if gpu is None or "cpu" not in devices:
        only = f"{listed(devices)} {'was' if len(devices) == 1 else 'were'} measured"
        return Answer(f"Only {only}; the comparison needs a GPU and the CPU (`devices: auto`).")
    compared = [_compared(info, gpu, roofline) for info in roofline.operator_info.values()]
    found = [one for one in compared if one]
    if not found:
        return Answer(f"No operator was measured in fp32 on both {gpu} and cpu.")
    link = roofline.ceiling(gpu, "h2d")
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
    why = dict.fromkeys(cell.doubt for pair in pairs for cell in pair if cell.doubt)
    judged = [pair for pair in pairs if not any(cell.doubt for cell in pair)]
    ratios = [(_times(*pair), higher) for pair in judged if (higher := _roofs(*pair, roofline))]
    of_roofs = span(sorted(times / higher for times, higher in ratios)) if ratios else ""
    kinds = {cell.lower_ceiling for pair in judged for cell in pair}
    what = f"{kinds.pop()} ceilings" if len(kinds) == 1 else "roofs"
    return {
        "title": info.title,
        "case": roofline.label(judged[0][0]) if len(judged) == 1 else counted(len(judged), "case"),
        "times": span(sorted(_times(*pair) for pair in judged)) if judged else "",
        "ratio": f"{of_roofs} times the ratio of their {what} ({span(sorted(r for _, r in ratios))})" if ratios else "",
        "pairs": pairs,
        "no_ratio": listed(why) if not judged else "",
    }


def _times(fast: Cell, slow: Cell) -> float:
    return slow.cpu_time_s / fast.cpu_time_s


def _roofs(fast: Cell, slow: Cell, roofline: Roofline) -> float | None:
    """By how much the one's roof is higher; None where that is not to be relied on."""
    if fast.roof_doubt or slow.roof_doubt:
        return None
    return _ratio(fast.roof_tflops, slow.roof_tflops) or _ratio(*(_bandwidth(one, roofline) for one in (fast, slow)))


def _fastest(roofline: Roofline, device: str, operator: str) -> dict[tuple, Cell]:
    """The fastest implementation of each fp32 case, of the first scope."""
    found: dict[tuple, Cell] = {}
    cells = [cell for cell in cells_of(roofline, device, operator) if cell.dtype == "fp32" and cell.cpu_time_s]
    for cell in cells:
        key = (cell.preset, *sorted(cell.shape.items()))
        if cell.scope == cells[0].scope and (key not in found or cell.cpu_time_s < found[key].cpu_time_s):
            found[key] = cell
    return found


def _bandwidth(cell: Cell, roofline: Roofline) -> float | None:
    """Of its memory ceiling; where it has no FLOPs, that is all its roof."""
    ceiling = roofline.ceiling(cell.device, cell.memory_ceiling)
    return ceiling.gb_per_s if ceiling and not cell.flops else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _pairs(compared: list[dict], link: MemoryCeiling | None, roofline: Roofline) -> Table:
    columns = ("operator", "fp32 case", "bytes", "GPU", "of roof", "launch overhead", "CPU", "of roof")
    columns += ("GPU times as fast", "over PCIe")
    rows = [
        [
            one["title"],
            roofline.label(fast),
            traffic(fast.bytes),
            _timed(fast),
            _share_of_roof(fast),
            percent(launches) if (launches := _launches(fast)) > 1 - NEARLY_ALL else "-",
            _timed(slow),
            _share_of_roof(slow),
            "-" if fast.doubt or slow.doubt else number(_times(fast, slow)),
            duration(fast.bytes / (link.gb_per_s * 1e9)) if link and fast.bytes else "-",
        ]
        for one in compared
        for fast, slow in one["pairs"]
    ]
    return filled(columns, rows, left=2)


def _launches(cell: Cell) -> float:
    """Of the caller's time, what the device's part does not take."""
    return 1 - cell.gpu_time_s / cell.cpu_time_s if cell.gpu_time_s else 0.0


def _share_of_roof(cell: Cell) -> str:
    return percent(cell.share) if cell.share else "-"


def _timed(cell: Cell) -> str:
    n = f"n {cell.samples}, " if cell.samples else ""
    return f"{starred(duration(cell.cpu_time_s), cell.doubt)} ({n}{cell.implementation})"
