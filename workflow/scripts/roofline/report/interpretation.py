"""The facts behind the three paragraphs of interpretation.md and the lessons of ROOFLINE.md; templates say them."""

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import join_words, number, percent
from roofline.report import rendering
from roofline.report.report_model import DeviceView, OperatorView, ReportView, find_widest_pair
from roofline.report.words import CAUSES
from roofline.table.quantities import WIDE
from roofline.table.rows import Roofline

SHORTEST, LONGEST = 60, 110  # words of a paragraph
WARNING, OPTIONAL = "!", "~"  # before a sentence that is never dropped, and one that only fills a short paragraph
FAR = 10  # times below the ridge point
APART = 0.05  # between repeats of a GEMM, beyond which no word of trust is said
RATIOS = 3  # operators by name
LESSONS = 3


def write_paragraphs(report: ReportView) -> list[str]:
    """Whether the roofline is to be trusted, how close kernels get, and the GPU against the CPU."""
    if report.gpus and report.cpu:
        third = ("gpu_vs_cpu", _gpu_vs_cpu(report))
    else:
        third = ("alone", {}) if report.gpus else ("cores", _cores(report.main))
    parts = [("trust", _trust(report)), ("kernels", _kernels(report)), third]
    return [fit_sentences(rendering.render_macro("interpretation.j2", name, facts)) for name, facts in parts]


def fit_sentences(lines: list[str]) -> str:
    """As many sentences as fit: the first and warnings, then the others, then what fills a short one."""
    order = {WARNING: 0, OPTIONAL: 2}
    chosen: dict[int, str] = {}
    for place in sorted(range(len(lines)), key=lambda place: order.get(lines[place][0], 1) if place else 0):
        words = lines[place].lstrip(WARNING + OPTIONAL + " ")
        have = len(" ".join(chosen.values()).split())
        if have + len(words.split()) <= LONGEST and not (lines[place][0] == OPTIONAL and have >= SHORTEST):
            chosen[place] = words
    return " ".join(chosen[place] for place in sorted(chosen))


def _trust(report: ReportView) -> dict:
    main = report.main
    sound = [c for c in main.gemms if not c.doubt]
    scale = 1e3 if max((c.burst_tflops for c in sound), default=1) < 1 else 1
    unit = "GFLOPS" if scale > 1 else "TFLOPS, int8 in TOPS" if any(c.name == "int8" for c in sound) else "TFLOPS"
    held = [c for c in sound if c.sustained_tflops]
    # On a CPU they are the samples of the ceiling itself.
    records = set() if main.is_cpu else {c.record for c in sound}
    reliable = [c for one in main.operators for c in one.cells if c.reliable_fraction_of_roof]
    gemms = [c for c in reliable if c.lower_ceiling == "compute"]
    clock = [c.fraction_of_clock for c in sound if c.fraction_of_clock]
    repeats = [c.repeat_spread for c in sound if c.repeat_spread is not None]
    return {
        "main": main,
        "unit": unit,
        "again": bool(report.table.records_to_repeat),
        "doubted": join_words(c.name for c in main.gemms if c.doubt),
        "held": join_words(f"{number(c.sustained_tflops)} in {c.name}" for c in held),
        "bursts": join_words(f"{number(scale * c.burst_tflops)} in {c.name}" for c in sound),
        "falls": [c.burst_tflops / c.sustained_tflops - 1 for c in held if c.burst_tflops > 1.02 * c.sustained_tflops],
        "reasons": throttle_reasons_text(reason for c in held for reason in c.throttle_reasons),
        "gemms": [cell.reliable_fraction_of_roof for cell in gemms if cell.record in records],
        "clock": clock,
        "repeats": percent(max(repeats)) if repeats else "",
        "apart": max(repeats, default=0.0) > APART,
        "above": sum(one.device == main.name and one.doubt == "impossible" for one in report.table.operators),
    }


def _kernels(report: ReportView) -> dict:
    """Of the operator whose share of the peak has a usual value, else of the memory-bound operator with most cells."""
    main, table = report.main, report.table
    bound = [one for one in main.operators if any(cell.lower_ceiling == "memory" for cell in one.fast)]
    usual = {name for name, about in table.operator_info.items() if about.usual_share_of_peak}
    chosen = max(bound, key=lambda one: (one.name in usual, len(one.cells)), default=None)
    best = [one.best for one in main.operators if one.best and (chosen is None or one.name != chosen.name)]
    measured = [cell for one in main.operators for cell in one.cells]
    facts = {
        "main": main,
        "operator": chosen,
        "doubtful_cells": 0 if any(cell.reliable_fraction_of_roof for cell in measured) else len(measured),
        "others": join_words(
            f"{table.title(cell.operator)} at best {percent(cell.reliable_fraction_of_roof)}" for cell in best
        ),
    }
    return facts | _of_operator(chosen, table) if chosen else facts


def _of_operator(operator: OperatorView, table: Roofline) -> dict:
    fast = operator.fast
    bound, waiting, slow = ([c for c in fast if c.regime == one] for one in ("memory", "overhead", "implementation"))
    roofs = [[table.ceiling(c.device, name) for name in (c.compute_ceiling, c.memory_ceiling)] for c in fast]
    sound = [(peak, memory) for peak, memory in roofs if peak and memory and not (peak.doubt or memory.doubt)]
    ridges = [1e3 * peak.tflops / memory.gb_per_s for peak, memory in sound]
    halves = [cell for cell in bound if cell.compute_ceiling == "fp16"] or bound
    peaks = {peak.name for peak, _ in sound}
    intensities = [cell.intensity_flops_per_byte for cell in fast if cell.intensity_flops_per_byte]
    example = next(iter([*waiting, *slow, *bound]), None)
    return {
        "count": len(fast),
        "scope": fast[0].scope if fast else None,
        "intensities": intensities,
        "ridge": number(min(ridges)) if ridges else "",
        "far": bool(ridges) and max(intensities, default=0) < min(ridges) / FAR,
        "ways": join_words(dict.fromkeys(cell.implementation for cell in fast)),
        "bound": bound,
        "of_peak": [cell.fraction_of_compute_peak for cell in halves if cell.compute_ceiling in peaks],
        "peak": join_words(dict.fromkeys(f"{cell.compute_ceiling} peak" for cell in halves)),
        "waiting": sorted(waiting, key=lambda cell: cell.cpu_time_s),
        "slow": slow,
        "remedies": join_words(table.remedies(example)[:2]) if example else "",
    }


def _gpu_vs_cpu(report: ReportView) -> dict:
    bound = [one for one in report.ratios if one.pairs[-1][0].lower_ceiling == "memory"]
    chosen = max(bound, key=lambda one: len(one.pairs), default=None)
    link = next((c for c in report.main.memory if c.name == "h2d" and not c.doubt), None)
    return {
        "gpu": report.main.row.name,
        "faulty": report.main.faulty or report.cpu.faulty,
        "ratios": report.ratios[:RATIOS],
        "ceilings": next((one for one in report.ratios if one.ceilings), None),
        "bandwidths": report.bandwidths,
        "bound": chosen,
        "table": report.table,
        "link_s": chosen.pairs[-1][0].bytes / (link.gb_per_s * 1e9) if chosen and link else None,
    }


def _cores(device: DeviceView) -> dict:
    """One core of a machine without a GPU against all."""
    cores, sound = device.row.hardware.get("cores_usable"), [c for c in device.memory if not c.doubt]
    alone, every = ({c.mix: c for c in sound if c.level == "dram" and c.cores == cores} for cores in (1, None))
    some = [c for c in sound if c.level == "dram" and c.mix == "read" and (c.cores or 0) > 1]
    pairs = {mix: (alone[mix], every[mix]) for mix in alone if mix in every}
    times = {mix: one.gb_per_s / core.gb_per_s for mix, (core, one) in pairs.items()}
    return {
        "name": device.row.name,
        "cores": cores,
        "reads": pairs.get("read"),
        "times": times,
        "some": [f"{number(c.gb_per_s)} GB/s by {c.cores}" for c in sorted(some, key=lambda c: c.cores)],
        "saturated": bool(cores) and times.get("read", cores) < 0.8 * cores,
    }


def write_lessons(report: ReportView) -> list[str]:
    """Those that the figures of this run show, the most general first."""
    table, main = report.table, report.main
    sound = [c for c in table.operators if c.cpu_time_s and not c.doubt]
    promised = [c for c in main.gemms if c.sustained_tflops and c.datasheet_tflops and not c.doubt]
    with_gpu_time = [c for c in sound if c.gpu_time_s]
    waits = [c for c in with_gpu_time if c.gpu_time_s < c.cpu_time_s / 2]
    steady = [c for c in waits if (c.cpu_time_decile_ratio or 1) <= WIDE]  # whose host kept its pace
    fastest, slowest = find_widest_pair(sound) or (None, None)
    facts = {
        "table": table,
        "sustained": min(promised, key=lambda one: one.sustained_tflops / one.datasheet_tflops, default=None),
        "waiting": len(waits),
        "waits": max(steady or waits, key=lambda one: one.cpu_time_s / one.gpu_time_s, default=None),
        "with_gpu_time": len(with_gpu_time),
        "fastest": fastest,
        "slowest": slowest,
        "worst": report.worst[0] if report.worst else None,
        "causes": CAUSES,
        "reads": main.main("read"),
        "copies": main.main("copy"),
    }
    return rendering.render_macro("sentences.j2", "lessons", facts)[:LESSONS]
