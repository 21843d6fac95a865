"""The three paragraphs of interpretation.md, by the sentences of templates/interpretation.j2."""

from collections.abc import Iterator

from roofline.core.formatting import duration, listed, number, percent
from roofline.report import rendering
from roofline.report.model import REPEATS, DeviceView, OperatorView, Report
from roofline.report.words import limits, span, span_percent
from roofline.table.rows import Cell

SHORTEST, LONGEST = 60, 110  # words of a paragraph
OPTIONAL = "~"  # before a sentence that only fills a short paragraph
FAR = 10  # times below the ridge point
RATIOS = 3  # operators by name


def paragraphs(report: Report) -> list[str]:
    """Whether the roofline is to be trusted, how close kernels get, and the GPU against the CPU."""
    if report.gpus and report.cpu:
        third = ("gpu_vs_cpu", _gpu_vs_cpu(report))
    else:
        third = ("alone", {}) if report.gpus else ("cores", _cores(report.main))
    parts = [("trust", _trust(report)), ("kernels", _kernels(report)), third]
    return [_fitted(rendering.macro("interpretation.j2", name, facts)) for name, facts in parts]


def _fitted(lines: list[str]) -> str:
    """Sentences in their order as long as there is room; optional ones only if the rest is too short."""
    chosen: list[str] = []
    for optional in (False, True):
        for line in lines:
            count = len(" ".join([*chosen, line]).split())
            if (
                line.startswith(OPTIONAL) is optional
                and count <= LONGEST
                and not (optional and _words(chosen) >= SHORTEST)
            ):
                chosen.append(line.removeprefix(OPTIONAL).strip())
    return " ".join(chosen)


def _words(lines: list[str]) -> int:
    return len(" ".join(lines).split())


def _trust(report: Report) -> dict:
    main = report.main
    sound = [c for c in main.gemms if not c.doubt]
    scale = 1e3 if max((c.burst_tflops for c in sound), default=1) < 1 else 1
    unit = "GFLOPS" if scale > 1 else "TFLOPS, int8 in TOPS" if any(c.name == "int8" for c in sound) else "TFLOPS"
    held = [c for c in sound if c.sustained_tflops]
    falls = [c.burst_tflops / c.sustained_tflops - 1 for c in held if c.burst_tflops > 1.02 * c.sustained_tflops]
    reasons = dict.fromkeys(words for c in held if (words := limits(c)))
    reads = main.main("read")
    # On a CPU they are the samples of the ceiling itself.
    records = set() if main.is_cpu else {c.record for c in sound}
    products = [cell for cell in _cells(main, "compute") if cell.record in records]
    clock = [c.fraction_of_clock for c in sound if c.fraction_of_clock]
    repeats = [c.repeats_within for c in sound if c.repeats_within is not None]
    unrepeated = [f"{c.name} ({percent(c.repeats_within)})" for c in sound if c in main.unrepeated]
    above = [cell for cell in report.table.operators if cell.device == main.name and cell.above_roof]
    return {
        "name": main.row.name,
        "is_cpu": main.is_cpu,
        "unit": unit,
        "again": bool(report.table.repeatable),
        "faulty": main.faulty,
        "failed": len(main.failed),
        "doubted": listed(c.name for c in main.gemms if c.doubt) if len(sound) < len(main.gemms) else "",
        "held": listed(f"{number(c.sustained_tflops)} in {c.name}" for c in held) if held else "",
        "bursts": listed(f"{number(scale * c.burst_tflops)} in {c.name}" for c in sound) if sound else "",
        "falls": span_percent(falls) if falls else "",
        "reasons": listed(reasons) if reasons else "",
        "reads": None if reads is None or reads.doubt else reads,
        "products": span_percent(cell.share for cell in products) if products else "",
        "clock": span_percent(clock) if clock else "",
        "repeats": percent(max(repeats)) if repeats else "",
        "repeated": len(unrepeated) < len(repeats),
        "unrepeated": listed(unrepeated) if unrepeated else "",
        "within": f"{100 * REPEATS:g} %",
        "above": len(above),
    }


def _cells(device: DeviceView, lower: str) -> Iterator[Cell]:
    for operator in device.operators:
        yield from (cell for cell in operator.cells if cell.share and cell.lower_ceiling == lower)


def _kernels(report: Report) -> dict:
    """Of the operator whose share of the peak has a usual value, else of the memory-bound operator with most cells."""
    main = report.main
    bound = [one for one in main.operators if any(cell.lower_ceiling == "memory" for cell in one.fast)]
    usual = {name for name, about in report.table.operator_info.items() if about.usual_share_of_peak}
    chosen = max(bound, key=lambda one: (one.name in usual, len(one.cells)), default=None)
    best = [one.best for one in main.operators if one.best]
    measured = [cell for one in main.operators for cell in one.cells]
    facts = {
        "name": main.row.name,
        "faulty": main.faulty,
        "operator": chosen,
        "doubtful_cells": 0 if any(cell.share for cell in measured) else len(measured),
    }
    facts["others"] = (
        listed(
            f"{report.table.title(cell.operator)} at best {percent(cell.share)}"
            for cell in best
            if chosen is None or cell.operator != chosen.name
        )
        if len(best) > bool(chosen and chosen.best)
        else ""
    )
    return facts | _of_operator(chosen, report) if chosen else facts


def _of_operator(operator: OperatorView, report: Report) -> dict:
    fast = operator.fast
    bound = [cell for cell in fast if cell.regime == "memory"]
    waiting = [cell for cell in fast if cell.regime == "overhead"]
    slow = [cell for cell in fast if cell.regime == "implementation"]
    peaks = [report.table.ceiling(cell.device, cell.compute_ceiling) for cell in fast]
    memory = [report.table.ceiling(cell.device, cell.memory_ceiling) for cell in fast]
    ridges = [1e3 * p.tflops / m.gb_per_s for p, m in zip(peaks, memory, strict=True) if p and m]
    halves = [cell for cell in bound if cell.compute_ceiling == "fp16"] or bound
    example = next(iter([*waiting, *slow, *bound]), None)
    return {
        "title": operator.title,
        "count": len(fast),
        "intensity": span(cell.intensity_flops_per_byte for cell in fast if cell.intensity_flops_per_byte),
        "ridge": number(min(ridges)) if ridges else "",
        "far": bool(ridges) and max(cell.intensity_flops_per_byte or 0 for cell in fast) < min(ridges) / FAR,
        "ways": listed(dict.fromkeys(cell.implementation for cell in fast)),
        "bound": len(bound),
        "bound_share": span_percent(cell.share for cell in bound),
        "of_peak": span_percent(cell.fraction_of_compute_peak for cell in halves if cell.fraction_of_compute_peak),
        "peak": listed(dict.fromkeys(f"{cell.compute_ceiling} peak" for cell in halves)) if halves else "",
        "waiting": len(waiting),
        "waiting_share": span_percent(cell.share for cell in waiting),
        "waiting_time": _times(waiting),
        "slow": len(slow),
        "slow_share": span_percent(cell.share for cell in slow),
        "remedies": listed(report.table.remedies(example)[:2]) if example and report.table.remedies(example) else "",
        "memory_helps": not waiting and not slow,
        "slowest": number(operator.slowest) if operator.slowest and operator.slowest > 1.5 else "",
    }


def _times(cells: list[Cell]) -> str:
    ordered = sorted(cell.cpu_time_s for cell in cells)
    return " to ".join(dict.fromkeys(map(duration, (ordered[0], ordered[-1])))) if ordered else ""


def _gpu_vs_cpu(report: Report) -> dict:
    gpu, cpu = report.main, report.cpu
    ratios = report.ratios[:RATIOS]
    bound = [one for one in report.ratios if one.pairs[-1][0].lower_ceiling == "memory"]
    link = next((c for c in gpu.memory if c.name == "h2d" and not c.doubt), None)
    facts = {
        "gpu": gpu.row.name,
        "faulty": gpu.faulty or cpu.faulty,
        "ratios": [(one.title, span(one.times)) for one in ratios],
        "ceilings": next(((one.title, number(one.ceilings)) for one in ratios if one.ceilings), None),
        "bandwidths": number(report.bandwidths) if report.bandwidths else "",
        "link": link,
    }
    if bound:
        one = max(bound, key=lambda ratio: len(ratio.pairs))
        (small_gpu, small_cpu), (large_gpu, large_cpu) = one.pairs[0], one.pairs[-1]
        facts |= {
            "title": one.title,
            "largest": report.table.label(large_gpu),
            "smallest": report.table.label(small_gpu) if len(one.pairs) > 1 else "",
            "large": number(large_cpu.cpu_time_s / large_gpu.cpu_time_s),
            "small": number(small_cpu.cpu_time_s / small_gpu.cpu_time_s),
            "large_shares": [percent(cell.share) if cell.share else "" for cell in (large_gpu, large_cpu)],
            "small_shares": [percent(cell.share) if cell.share else "" for cell in (small_gpu, small_cpu)],
            "cpu_time": duration(large_cpu.cpu_time_s),
            "link_time": duration(large_gpu.bytes / (link.gb_per_s * 1e9)) if link else "",
            "link_loses": bool(link) and large_gpu.bytes / (link.gb_per_s * 1e9) > large_cpu.cpu_time_s,
        }
    return facts


def _cores(device: DeviceView) -> dict:
    """One core of a machine without a GPU against all."""
    mixes = {}
    for mix in ("read", "copy"):
        alone = next((c for c in device.memory if c.level == "dram" and c.mix == mix and c.cores == 1), None)
        every = device.main(mix)
        if alone and every and not (alone.doubt or every.doubt):
            mixes[mix] = (alone, every, number(every.gb_per_s / alone.gb_per_s))
    cores = device.row.hardware.get("cores_usable")
    half = [c for c in device.memory if c.level == "dram" and c.mix == "read" and (c.cores or 0) > 1 and not c.doubt]
    return {
        "name": device.row.name,
        "cores": cores,
        "reads": mixes.get("read"),
        "copies": mixes.get("copy"),
        "some": [f"{number(c.gb_per_s)} GB/s by {c.cores}" for c in sorted(half, key=lambda c: c.cores)],
        "saturated": bool(mixes.get("read") and cores)
        and mixes["read"][1].gb_per_s < 0.8 * cores * mixes["read"][0].gb_per_s,
    }
