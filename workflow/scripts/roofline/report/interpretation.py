"""The facts behind the three paragraphs of interpretation.md and the lessons of ROOFLINE.md; templates say them."""

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Literal

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import flops_unit, join_words, number, percent
from roofline.core.grouping import group_by
from roofline.core.levels import FROM_HOST, MAIN_MEMORY
from roofline.core.roofline_model import ridge_point
from roofline.report import rendering
from roofline.report.report_model import (
    DeviceView,
    MeasuredCell,
    OperatorView,
    ReportView,
    reliable_share,
    select_measured,
)
from roofline.report.words import NARROWEST, Headline, find_headline
from roofline.table.quantities import WIDE
from roofline.table.rows import CellRow, Roofline, case_key
from roofline.table.standing import FEWEST_CARDS

MOST_LESSONS = 3
CONFIRMING_SHARE = 0.8  # of the slope of reads, from which a kernel shows that it is not too high


def write_paragraphs(report: ReportView) -> list[str]:
    """Write three paragraphs: on trust in the roofline, on how close kernels get, and on the GPU against the CPU."""
    if report.gpus and report.cpu:
        third = _write("gpu_vs_cpu", _gpu_vs_cpu(report, report.cpu))
    elif report.gpus:
        third = _write("alone", {})
    else:
        third = _write("cores", _cores(report.first_device))
    return [_write("trust", _trust(report)), _write("kernels", _kernels(report)), third]


def _write(macro: str, facts: dict) -> str:
    """The paragraph of a macro: its lines, in order of importance."""
    return " ".join(rendering.render_macro("interpretation.j2", macro, facts))


def _trust(report: ReportView) -> dict:
    device = report.first_device
    sound = [ceiling for ceiling in device.gemms if not ceiling.doubt]
    in_gflops = max((ceiling.burst_tflops for ceiling in sound), default=1) < 1
    scale, unit = (1e3, "GFLOPS") if in_gflops else (1, "TFLOPS")
    loads = [(ceiling, ceiling.sustained_tflops) for ceiling in sound if ceiling.sustained_tflops]
    named = [ceiling for ceiling, _ in loads] or sound
    if not in_gflops and any(flops_unit(ceiling.name) == "TOPS" for ceiling in named):
        unit += ", int8 in TOPS"
    # On a CPU the reference GEMMs are the samples of the ceiling itself.
    records = set() if device.is_cpu else {ceiling.record for ceiling in sound}
    cells = [cell for operator in device.operators for cell in operator.sound_cells]
    reference_gemms = [cell for cell in cells if cell.record in records and cell.lower_ceiling == "compute"]
    reads = device.memory_ceiling("read")
    reads_name = reads.name if reads else None
    under_reads = [cell for cell in cells if cell.shown_regime == "memory" and cell.memory_ceiling == reads_name]
    on_slope = [cell for cell in under_reads if reliable_share(cell) >= CONFIRMING_SHARE]
    slope_exceeded = reads_name in device.exceeded_slopes
    headlines = [find_headline(row) for row in (*named, reads) if row and not row.doubt]
    of_this_card = [row for row in headlines if row.spreads and row.spreads.runs_of == "this card"]
    bursts = [Headline(row.name, row.standing, row.spreads) for row in sound]
    parted = [row.sustained for row, _ in loads if row.sustained]
    ranked = [(row, row.sustained_standing) for row, _ in loads]
    return {
        "report": report,
        "unit": unit,
        "sustained": join_words(f"{number(scale * sustained)} in {ceiling.name}" for ceiling, sustained in loads),
        "half_widths": [max(load.half_width, NARROWEST) for load in parted if load.half_width is not None],
        "parts": [load.part_count for load in parted if load.part_count],
        "bursts": join_words(f"{number(scale * ceiling.burst_tflops)} in {ceiling.name}" for ceiling in sound),
        "fall": max((ceiling.burst_tflops / sustained for ceiling, sustained in loads), default=1) - 1,
        "reasons": throttle_reasons_text(reason for ceiling, _ in loads for reason in ceiling.throttle_reasons),
        "gaps": [1 - reliable_share(cell) for cell in reference_gemms],
        "slope": None if slope_exceeded else max(on_slope, key=reliable_share, default=None),
        "slope_exceeded": slope_exceeded,
        "within_run": max((gemm.repeat_spread for gemm in sound if gemm.repeat_spread is not None), default=None),
        "runs": _widest(of_this_card or headlines, "between_runs"),
        "cards": _widest(_of_enough_cards(headlines), "between_cards"),
        "bursts_of_cards": _widest(_of_enough_cards(bursts if loads else []), "between_cards"),
        "fastest": join_words(row.name for row, standing in ranked if standing and standing.rank_at_worst == 1),
        "above_roof": sum(cell.doubt == "impossible" for operator in device.operators for cell in operator.cells),
    }


def _of_enough_cards(figures: Iterable[Headline]) -> list[Headline]:
    return [figure for figure in figures if figure.spreads and figure.spreads.card_count > FEWEST_CARDS]


def _widest(figures: Iterable[Headline], extent: Literal["between_runs", "between_cards"]) -> Headline | None:
    """The figure that differs most between runs, or between cards; None if none is known to differ."""
    known = [figure for figure in figures if figure.spreads and getattr(figure.spreads, extent) is not None]
    return max(known, key=lambda figure: getattr(figure.spreads, extent), default=None)


def _kernels(report: ReportView) -> dict:
    """The operator whose share of the peak has a usual value, else the memory-bound operator with most cells."""
    device, table = report.first_device, report.table
    fastest_cells = [cell for operator in device.operators for cell in operator.fastest_cells]
    below_slopes = {cell.operator for cell in fastest_cells if cell.lower_ceiling == "memory"}
    memory_bound = [operator for operator in device.operators if operator.about.name in below_slopes]
    usual = [operator for operator in memory_bound if operator.about.usual_share_of_peak]
    main = max(usual or memory_bound, key=lambda operator: len(operator.cells), default=None)
    best_cells = [operator.best_cell for operator in device.operators if operator.best_cell and operator is not main]
    cells = [cell for operator in device.operators for cell in operator.cells]
    measured = [cell for cell in cells if not cell.no_roof_reason]
    below_ridge = [cell for cell in measured if cell.lower_ceiling == "memory"]
    facts = {
        "device": device,
        "table": table,
        "operator": main,
        "measured": len(measured),
        "no_roof_reason": None
        if below_ridge
        else next((one.no_roof_reason for one in cells if one.no_roof_reason), None),
        "below_ridge": len(below_ridge),
        "doubted": sum(bool(cell.doubt or cell.roof_doubt) for cell in measured),
        "others": join_words(f"{table.title_with_scope(cell)} {percent(reliable_share(cell))}" for cell in best_cells),
    }
    return facts | _of_operator(main, device, table) if main else facts


def _of_operator(operator: OperatorView, device: DeviceView, table: Roofline) -> dict:
    cells = [cell for cell in operator.fastest_cells if cell.lower_ceiling == "memory"]
    ridges = _ridge_points(cells, device)
    by_series = group_by(cells, table.series)
    series = [_describe_series(name, of_series, ridges) for name, of_series in by_series.items()]
    return {
        "ridge": min(ridges.values(), default=None),
        "intensities": [cell.intensity_flops_per_byte for cell in cells if cell.intensity_flops_per_byte],
        "series": series,
        "steps": [steps for of_series in by_series.values() if (steps := _steps(of_series[0], operator.cells))],
    }


def _describe_series(name: str, cells: Sequence[MeasuredCell], ridges: Collection[str]) -> dict:
    """What a group of cells reaches, such as those of one batch size: of the memory slope, and of the peak."""
    half_precision = [cell for cell in cells if cell.compute_ceiling == "fp16"] or list(cells)
    peak_cells = [cell for cell in half_precision if cell.compute_ceiling in ridges]
    return {
        "name": name,
        "shares": [cell.reliable_fraction_of_roof for cell in cells if cell.reliable_fraction_of_roof],
        "peak": join_words(dict.fromkeys(f"{cell.compute_ceiling} peak" for cell in peak_cells)),
        "peak_shares": [cell.fraction_of_compute_peak for cell in peak_cells if cell.fraction_of_compute_peak],
        "overheads": [cell.cpu_time_shares.overhead for cell in cells if cell.cpu_time_shares],
        "rests": [cell.cpu_time_shares.rest for cell in cells if cell.cpu_time_shares],
    }


def _steps(cell: MeasuredCell, cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """The implementations of a cell's case from the slowest to the fastest, by CPU time; [] if there is one."""
    case = case_key(cell.device, cell)
    same = [other for other in cells if case_key(other.device, other) == case and not other.doubt]
    return sorted(same, key=lambda other: -other.cpu_time_s) if len(same) > 1 else []


def _ridge_points(cells: Sequence[CellRow], device: DeviceView) -> dict[str, float]:
    """The lowest ridge point (FLOP/byte) of each compute ceiling of the cells, by its name; both ceilings are sound."""
    peaks = {ceiling.name: ceiling.tflops for ceiling in device.compute if not ceiling.doubt}
    rates = {ceiling.name: ceiling.gb_per_s for ceiling in device.memory if not ceiling.doubt}
    ridges: dict[str, float] = {}
    for cell in cells:
        if cell.compute_ceiling in peaks and cell.memory_ceiling in rates:
            ridge = ridge_point(1e12 * peaks[cell.compute_ceiling], 1e9 * rates[cell.memory_ceiling])
            ridges[cell.compute_ceiling] = min(ridge, ridges.get(cell.compute_ceiling, ridge))
    return ridges


def _gpu_vs_cpu(report: ReportView, cpu: DeviceView) -> dict:
    device = report.first_device
    memory_bound = [ratio for ratio in report.ratios if ratio.pairs[-1][0].lower_ceiling == "memory"]
    main = max(memory_bound, key=lambda ratio: len(ratio.pairs), default=None)
    link = next((ceiling for ceiling in device.memory if ceiling.name == FROM_HOST and not ceiling.doubt), None)
    reads = device.memory_ceiling("read"), cpu.memory_ceiling("read")
    return {
        "report": report,
        "memory_bound": main,
        "reads": reads if all(reads) else None,
        "doubted": join_words(f"{row.name} of {row.device} ({row.doubt})" for row in reads if row and row.doubt),
        "cpu_spread": max((row.repeat_spread or 0.0 for row in cpu.gemms if not row.doubt), default=0.0),
        "link_s": main.pairs[-1][0].bytes / (link.gb_per_s * 1e9) if main and link else None,
    }


def _cores(device: DeviceView) -> dict:
    """One core of a machine without a GPU against all."""
    ceilings = [ceiling for ceiling in device.memory if ceiling.level == MAIN_MEMORY["cpu"] and not ceiling.doubt]
    one_core = {ceiling.mix: ceiling for ceiling in ceilings if ceiling.cores == 1}
    all_cores = {ceiling.mix: ceiling for ceiling in ceilings if ceiling.cores is None}
    partial_reads = [ceiling for ceiling in ceilings if ceiling.mix == "read" and (ceiling.cores or 0) > 1]
    pairs = {mix: (one_core[mix], all_cores[mix]) for mix in one_core if mix in all_cores}
    gains = {mix: by_all.gb_per_s / by_one.gb_per_s for mix, (by_one, by_all) in pairs.items()}
    return {
        "device": device,
        "reads": pairs.get("read"),
        "gains": gains,
        "exceeded": bool(device.exceeded_slopes),
        "partial_reads": sorted(partial_reads, key=lambda ceiling: ceiling.cores),
    }


def write_lessons(report: ReportView) -> list[str]:
    """Write the lessons that the figures of this run show, the most general first."""
    sound = [cell for cell in select_measured(report.table.operators) if not cell.doubt]
    compared = [gemm for gemm in report.first_device.gemms if gemm.sustained_fraction_of_datasheet and not gemm.doubt]
    waits = [cell for cell in sound if cell.own_time_s < cell.cpu_time_s / 2]
    steady = [cell for cell in waits if (cell.cpu_time_decile_ratio or 1) <= WIDE]  # whose host kept its pace
    facts = {
        "report": report,
        "sustained": min(compared, key=lambda gemm: gemm.sustained_fraction_of_datasheet or inf, default=None),
        "waiting": len(waits),
        "wait": max(steady or waits, key=lambda cell: cell.cpu_time_s / cell.own_time_s, default=None),
        "with_gpu_time": sum(bool(cell.gpu_time_s) for cell in sound),
        "widest_case": _find_widest_case(sound),
    }
    return rendering.render_macro("sentences.j2", "lessons", facts)[:MOST_LESSONS]


def _find_widest_case(sound: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """The implementations, the fastest first, of the case in which the slowest falls behind most; [] if none has two.

    Graphs are compared with graphs, because launches do not belong to a kernel.
    """
    groups = group_by(sound, lambda cell: (*case_key(cell.device, cell), cell.graph)).values()
    cases = [sorted(group, key=lambda cell: cell.own_time_s) for group in groups if len(group) > 1]
    return max(cases, key=lambda case: case[-1].own_time_s / case[0].own_time_s, default=[])
