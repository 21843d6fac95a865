"""Figures of the table in a few words, the same on the screen and on every page."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import (
    capacity,
    count_words,
    duration,
    join_words,
    mark_doubtful,
    number,
    percent,
    percent_digits,
    picojoules,
    regime_key,
)
from roofline.core.grouping import group_by
from roofline.core.levels import main_memory_ceiling
from roofline.core.units import KIB
from roofline.table import rows
from roofline.table.scores import score_predictions

SHOWN_SHARE = 0.005  # of a time, from which a part of it is named
DOUBTS = "disturbed, throttled, too few samples, or contradicted"  # what * means
NOT_COMPARED = "nothing measured to compare with"
FEWEST_OTHERS = 2  # known cards that a median is shown of
SMALL_ALL_REDUCE, CLOSE_SHARE = 16 * KIB, 0.15
NARROWEST = 1e-4  # an interval that is shown; narrower ones are rounded up to it
SHOWN_AS_FACTOR = 9.995  # errors from here on
RANKED_MEMORY = tuple(main_memory_ceiling("gpu", mix) for mix in ("read", "copy"))  # next to the GEMMs


def format_percent_span(shares: Iterable[float], between: str = " to ") -> str:
    """Return the least and the largest share, 87 to 96 %; 87 % if they are alike, "-" without shares."""
    return format_span(shares, percent_digits, " %", between)


def format_span(
    values: Iterable[float], digits: Callable[[float], str] = number, unit: str = "", between: str = " to "
) -> str:
    """Return the least and the largest value, 12 to 172; 12 if they are alike, "-" without values."""
    ordered = sorted(values)
    if not ordered:
        return "-"
    low, high = digits(ordered[0]), digits(ordered[-1])
    return f"{high}{unit}" if low == high else f"{low}{between}{high}{unit}"


def format_shares(ceiling: rows.ComputeCeiling) -> str:
    """Return sustained and burst rate over the datasheet, 69/81 %; empty if the ceiling is doubtful."""
    shares = [ceiling.sustained_fraction_of_datasheet, ceiling.burst_fraction_of_datasheet]
    digits = [percent_digits(share) for share in shares if share]
    return f"{'/'.join(digits)} %" if digits and not ceiling.doubt else ""


def format_sustained(ceiling: rows.ComputeCeiling, scale: float = 1) -> str:
    """Return the sustained rate with its 95 % interval, 690 ± 0.42 %; empty if it was not measured."""
    if not ceiling.sustained_tflops:
        return ""
    return f"{number(scale * ceiling.sustained_tflops)}{format_interval(ceiling.sustained)}"


def format_interval(load: rows.LoadRow | None) -> str:
    """Return half of the 95 % interval of a load's rate, " ± 0.42 %"; empty if it is not known."""
    return f" ± {percent(max(load.half_width, NARROWEST))}" if load and load.half_width is not None else ""


def find_loss(ceiling: rows.ComputeCeiling) -> float | None:
    """Return the share of the burst that is lost under load; None if it is within the interval of the rate."""
    if not ceiling.sustained_tflops:
        return None
    lost = 1 - ceiling.sustained_tflops / ceiling.burst_tflops
    uncertain = (ceiling.sustained and ceiling.sustained.half_width) or 0.0
    return lost if lost > uncertain else None


def format_limits(ceiling: rows.ComputeCeiling | rows.MemoryCeiling) -> str:
    """Return NVML's throttle reasons under load, with what the load lost against the burst: power cap (-16 %); empty if
    there are none."""
    words = throttle_reasons_text(ceiling.throttle_reasons)
    if words and ceiling.kind == "compute" and ceiling.sustained_tflops and not ceiling.doubt:
        lost = find_loss(ceiling)
        words += f" (-{percent(lost)})" if lost else " (no loss shown)"
    return f"{words}, throughout" if ceiling.all_throttled and words else words


def describe_standing(roofline: rows.Roofline, device: str) -> str:
    """Return the ranks of a device among known cards of its model; empty if there are none.

    Of a GEMM under load it is the sustained rate that is ranked. Where fewer cards have GEMMs that are measured as
    these are, their number is given too.
    Other known H200s, same effort (11): fp16 sustained 3rd–5th of 12, median 676 (663–703).
    """
    gemms = [find_headline(row) for row in roofline.compute_ceilings(device) if row.workload == "gemm"]
    memory = [find_headline(row) for row in roofline.memory_ceilings(device) if row.name in RANKED_MEMORY]
    ranked = [(name, standing) for name, standing, _ in gemms + memory if standing]
    if not ranked:
        return ""
    ranks = "; ".join(f"{name} {format_rank(standing)}" for name, standing in ranked)
    cards = max(standing.others for _, standing in ranked)
    by_method = max((headline.standing.others for headline in gemms if headline.standing), default=0)
    fewer = f"the GEMMs of {by_method or 'none'} by the present method"
    counted = f"{cards}; {fewer}" if gemms and by_method < cards else cards
    return f"Other known {roofline.devices[device].name.removeprefix('NVIDIA ')}s, same effort ({counted}): {ranks}."


def describe_formula(roofline: rows.Roofline, device: str) -> str:
    """Return why a CPU's peaks by formula may be wrong; empty for other devices."""
    row = roofline.devices[device]
    words, compute = [], roofline.compute_ceilings(device)
    if any(ceiling.datasheet_at_least and (ceiling.burst_fraction_of_datasheet or 0) > 1 for ceiling in compute):
        words.append(f"The formula takes the clock that {device} reports when idle. A core that boosts exceeds it.")
    if row.hardware.get("cores_may_be_threads"):
        cores = row.hardware.get("cores_usable")
        words.append(f"The virtual machine does not say whether its {cores} cores are threads, two to a core.")
        words.append("If they are, the peak by the formula is twice what it should be.")
    return " ".join(words)


class Headline(NamedTuple):
    """The figure by which a ceiling is ranked: its sustained rate if it has one, else its burst or bandwidth."""

    name: str  # fp16 sustained, hbm_read
    standing: rows.Standing | None
    spreads: rows.Spreads | None


def find_headline(ceiling: rows.Ceiling) -> Headline:
    """Return the figure by which a ceiling is ranked; without its standing among fewer than FEWEST_OTHERS cards."""
    name, standing, spreads = ceiling.name, ceiling.standing, ceiling.spreads
    if ceiling.kind == "compute" and ceiling.sustained_tflops:
        name, standing, spreads = f"{name} sustained", ceiling.sustained_standing, ceiling.sustained_spreads
    return Headline(name, standing if standing and standing.others >= FEWEST_OTHERS else None, spreads)


def describe_runs(ceilings: Iterable[rows.Ceiling]) -> str:
    """Return whose runs are compared: runs of this card, or of other cards where it has one run alone."""
    spreads = [found for ceiling in ceilings if (found := find_headline(ceiling).spreads)]
    return f"runs of {next((found.runs_of for found in spreads if found.runs_of), 'this card')}"


def describe_loads(roofline: rows.Roofline, device: str) -> str:
    """Return for how long GEMMs were under load, and how far they drifted: 3 to 5 s of load (drift up to 0.4 %)."""
    loads = [row.sustained for row in roofline.compute_ceilings(device)]
    seconds = format_span({load.duration_s for load in loads if load})
    drift = max((abs(load.drift) for load in loads if load and load.drift is not None), default=None)
    drifted = f" (drift up to {percent(drift)})" if drift is not None else ""
    return f"{seconds} s of load{drifted}"


def format_rank(standing: rows.Standing) -> str:
    """Return the rank of a figure among known cards, 3rd–5th of 12, median 776 (763–803).

    The place is left out where few other cards are known, or where it could be that of more than half of them.
    """
    ranks = [rank for rank in (standing.rank, standing.rank_at_worst) if rank]
    says_much = ranks and ranks[-1] - ranks[0] <= standing.others / 2
    places = dict.fromkeys(map(_ordinal, ranks)) if says_much else {}
    place = f"{'–'.join(places)} of {standing.others + 1}, " if places else ""
    return f"{place}median {number(standing.median)} ({number(standing.lowest)}–{number(standing.highest)})"


def _ordinal(place: int) -> str:
    suffix = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def format_picojoules(ceiling: rows.ComputeCeiling | rows.MemoryCeiling) -> str:
    """Return the pJ per FLOP or byte under sustained load, idle power included; empty if unknown."""
    joules = ceiling.energy and (ceiling.energy.joules_per_flop or ceiling.energy.joules_per_byte)
    return picojoules(joules) if joules else ""


def describe_energy(roofline: rows.Roofline, device: str) -> str:
    """Return what the figures of energy include, and why some are missing; empty without sustained load."""
    energies = [(row.name, row.energy) for row in roofline.ceilings if row.device == device and row.energy]
    measured = [energy for _, energy in energies if not energy.reason]
    reasons = [(name, energy.reason) for name, energy in energies if energy.reason]
    words, row = [], roofline.devices[device]
    if measured:
        celsius = format_span(energy.temperature_c for energy in measured if energy.temperature_c)
        subject = f"{row.name.removeprefix('NVIDIA ')} {measured[0].counter_scope}"
        words.append(f"of the whole {subject} under sustained load, idle power included")
        words.append(f"{celsius} °C")
    if row.idle_power_w:
        clock = f" at {number(row.idle_sm_clock_mhz)} MHz" if row.idle_sm_clock_mhz else ""
        words.append(f"idle {number(row.idle_power_w)} W{clock}")
    words += [f"no figure of {line}" for line in _join_by_reason(reasons)]
    return f"Energy: {'; '.join(words)}." if words else ""


def describe_limit(cell: rows.CellRow) -> str:
    """Return what sets a cell's time: memory: hbm; mixed: 48 % at the rate of hbm, 31 % not explained; - if unknown."""
    if not cell.regime:
        return "-"
    shares = cell.gpu_time_shares or cell.cpu_time_shares
    if cell.shown_regime == cell.regime or not shares:
        return regime_key(cell.regime, cell.regime_level)
    level = f"at the rate of {cell.regime_level or cell.regime}"
    overhead = "launch and start" if cell.gpu_time_shares else "calls"
    parts = {level: shares.roof, overhead: shares.overhead, "not explained": shares.rest}
    by_share = sorted(parts.items(), key=lambda part: -part[1])
    named = ", ".join(f"{percent(share)} {name}" for name, share in by_share if share >= SHOWN_SHARE)
    return f"{cell.shown_regime}: {named}"


def describe_longer_gpu_times(roofline: rows.Roofline) -> str:
    """Return how many GPU times are above the CPU times that contain them, and why; empty if none is."""
    timed = [(cell.gpu_time_s, cell.cpu_time_s, cell) for cell in roofline.operators if not cell.doubt]
    pairs = [(gpu_s, cpu_s, cell) for gpu_s, cpu_s, cell in timed if gpu_s and cpu_s]
    longer = [(gpu_s / cpu_s - 1, cell) for gpu_s, cpu_s, cell in pairs if gpu_s > cpu_s]
    if not longer:
        return ""
    intervals = [(cell.gpu_time_ci95_s, cell.cpu_time_ci95_s) for _, cell in longer]
    apart = [gpu[0] > cpu[1] for gpu, cpu in intervals if gpu and cpu]
    beyond = f", beyond both intervals in {sum(apart)} of the {len(apart)} that have them" if apart else ""
    most = percent(max(share for share, _ in longer))
    in_graphs = sum(cell.graph for _, cell in longer)
    above = (
        f"{len(longer)} of {len(pairs)} GPU times exceed the CPU time that contains them, {in_graphs} of them in graphs"
    )
    return f"{above}, by at most {most}{beyond}; the two are of different blocks, and why is not explained."


def describe_libraries(roofline: rows.Roofline, device: str) -> str:
    """Return whose products the compute ceilings of a GPU are; empty without GEMMs.

    GEMM ceilings of gpu0 by cuBLASLt. GEMM ceilings of gpu0 fp64 and fp32 by cuBLASLt; fp16 by tensor_matmul (787
    TFLOPS by the vendor's library).
    """
    gemms = [row for row in roofline.compute_ceilings(device) if row.workload == "gemm"]
    of_gpu = [row for row in gemms if row.compute_unit != "cpu"]  # a CPU has NumPy's alone
    by_library = group_by(of_gpu, lambda row: row.product.library)
    parts = []
    for library, ceilings in by_library.items():
        names = f"{join_words(row.name for row in ceilings)} " if len(by_library) > 1 else ""
        others = [row.library_tflops for row in ceilings if row.library_tflops not in (None, row.burst_tflops)]
        reached = f" ({join_words(map(number, others))} TFLOPS by the vendor's library)" if others else ""
        parts.append(f"{names}by {library}{reached}")
    return f"GEMM ceilings of {device} {'; '.join(parts)}." if parts else ""


def format_rate(gb_per_s: float) -> str:
    """Return a bandwidth with its unit: 4.69 TB/s, 512 GB/s."""
    return f"{number(gb_per_s / 1e3)} TB/s" if gb_per_s >= 1e3 else f"{number(gb_per_s)} GB/s"


def format_bandwidth(ceiling: rows.MemoryCeiling) -> str:
    """Return GB/s and, where it may be relied on, the share of the datasheet: 4692 (98 %)."""
    share = ceiling.fraction_of_datasheet
    words = f" ({percent(share)})" if share and not ceiling.doubt else ""
    return f"{mark_doubtful(number(ceiling.gb_per_s), ceiling.doubt)}{words}"


def describe_all_reduces(roofline: rows.Roofline, device: str) -> list[str]:
    """Return the lines of each pair whose record is the device's: times next to NCCL's, then what was predicted."""
    lines = []
    for row in roofline.all_reduces:
        if row.device == device:
            small = next((size for size in row.sizes if size.size_bytes == SMALL_ALL_REDUCE), row.sizes[0])
            large = row.sizes[-1]
            nccl = [duration(small.nccl_graph_time_s)] if small.nccl_graph_time_s else []
            nccl += [f"eager {duration(small.nccl_eager_time_s)}"] if small.nccl_eager_time_s else []
            words = f"{capacity(small.size_bytes)} {mark_doubtful(duration(small.time_s), small.doubt)}"
            words += f" (NCCL {', '.join(nccl)})" if nccl else ""
            words += f", {capacity(large.size_bytes)} {mark_doubtful(number(large.gb_per_s), large.doubt)} GB/s"
            share = None if large.doubt else large.fraction_of_bound
            shares = [f"{percent(share)} of the link"] if share else []
            if large.nccl_graph_time_s:
                shares.append(f"NCCL {number(large.size_bytes / large.nccl_graph_time_s / 1e9)}")
            words += f" ({', '.join(shares)})" if shares else ""
            lines.append(f"all-reduce with {row.peer}, bf16: {words}")
            lines += [f"  {details}"] if (details := _describe_all_reduce_details(row)) else []
    return lines


def _describe_all_reduce_details(row: rows.AllReduceRow) -> str:
    """What was predicted, how long an all-reduce after a product takes, and why NCCL is missing."""
    parts = []
    if row.median_sealed_error is not None:
        judged = [size for size in row.sizes if size.sealed_time_error is not None and not size.doubt]
        close = [size for size in judged if abs(size.sealed_time_error or 0.0) <= CLOSE_SHARE]
        within = f"{len(close)} of {len(judged)} within {percent(CLOSE_SHARE)}"
        parts.append(f"predicted before: median error {percent(row.median_sealed_error)}, {within}")
    if after := row.after_product:
        added_s = max(0.0, after.together_time_s - after.product_time_s)
        skew = f", entry skew {duration(after.entry_skew_s)}" if after.entry_skew_s is not None else ""
        parts.append(f"after a product {capacity(after.size_bytes)} adds {duration(added_s)}{skew}")
    parts += [row.nccl_skipped_reason] if row.nccl_skipped_reason else []
    return "; ".join(parts)


def format_error(share: float | None) -> str:
    """Return an error in percent with its sign, or as a factor if it is large; "-" if it is None."""
    if share is None:
        return "-"
    size = f"{abs(share):.0f} times" if abs(share) >= SHOWN_AS_FACTOR else percent(abs(share))
    return f"{'-' if share < 0 else '+'}{size}"


def format_times(predicted_s: float, measured_s: float) -> str:
    """Return two times, 2.54/2.36 us; each with its unit where these differ."""
    predicted, measured = duration(predicted_s), duration(measured_s)
    value, _, unit = predicted.partition(" ")
    return f"{value}/{measured}" if measured.endswith(f" {unit}") else f"{predicted}/{measured}"


def describe_score(score: rows.Score) -> str:
    """Return how near predictions came to measured times, next to those of the baseline."""
    words = f"median error {_describe_tally(score)} within 1.25x"
    baseline = score.baseline_tally
    return f"{words} (baseline: {_describe_tally(baseline)})" if baseline else words


def describe_drawn(roofline: rows.Roofline, device: str) -> str:
    """Return how near the predictions of a device's drawn shapes came; empty where none were measured.

    On 22 cells of 6 shapes drawn after sealing: median error 9 %, 20 of 22 within 1.25x (...).
    """
    drawn = [cell for cell in roofline.drawn if cell.device == device]
    score = score_predictions(drawn)
    if not score.cell_count:
        return ""
    shapes = {(cell.operator, cell.preset, cell.dtype, *cell.shape.items()) for cell in drawn}
    return f"On {count_words(len(shapes), 'shape')} drawn after sealing: {describe_score(score)}"


def _describe_tally(tally: rows.Tally) -> str:
    assert tally.median_cpu_time_error is not None  # a tally of no cell is not described
    return f"{percent(tally.median_cpu_time_error)}, {tally.times_close} of {tally.cell_count}"


def describe_own_score(score: rows.OwnScore) -> str:
    """Return in how many cells the user was right, each next to the model for the same cells."""
    own, model = score.own, score.model
    parts = [
        ("regime right", own.regimes_right, score.regime_count, model.regimes_right),
        ("time within 2x", own.times_right, score.time_count, model.times_right),
        ("share of peak within 2x", own.shares_right, score.share_count, model.shares_right),
    ]
    words = [f"{what} in {right} of {count} (model: {by_model})" for what, right, count, by_model in parts if count]
    if own.median_cpu_time_error is not None and model.median_cpu_time_error is not None:
        model_error = percent(model.median_cpu_time_error)
        words.append(f"median error {percent(own.median_cpu_time_error)} (model: {model_error})")
    words += [f"{score.not_scored_count} not scored (reasons: verification.md)"] if score.not_scored_count else []
    return ", ".join(words) or NOT_COMPARED


def format_cell_figures(regime: str | None, level: str | None, cpu_time_s: float | None, share: float | None) -> str:
    """Return what is predicted or measured of a cell: memory: hbm, 30 us, 0.5 % of peak."""
    words = [regime_key(regime, level)] if regime else []
    words += [duration(cpu_time_s)] if cpu_time_s else []
    words += [f"{percent(share)} of peak"] if share else []
    return ", ".join(words) or "-"


def format_prediction_errors(errors: rows.PredictionErrors | None) -> str:
    """Return the verdict on a regime, and the errors of a time and a share: regime right, time +20 %, share -17 %."""
    if errors is None:
        return "-"
    words = [] if errors.regime_right is None else [f"regime {'right' if errors.regime_right else 'wrong'}"]
    shares = (("time", errors.cpu_time_error), ("share", errors.fraction_of_compute_peak_error))
    words += [f"{what} {format_error(share)}" for what, share in shares if share is not None]
    return ", ".join(words) or NOT_COMPARED


def format_failures(failed: Iterable[rows.CheckResult]) -> list[str]:
    """Return a line for each failed check, as pictures and commands show it."""
    return [f"FAIL, {check.device}: {check.check} ({check.reason})" for check in failed]


def describe_skipped(roofline: rows.Roofline, device: str) -> list[str]:
    """Return what the run asked for and a device lacks, a line for each reason."""
    reasons = []
    for row in roofline.skipped:
        if row.device == device:
            reason = row.reason.replace(f" {row.name} ", " such ") if row.kind == "peak_flops" else row.reason
            reasons.append((row.name, reason))
    return _join_by_reason(reasons)


def _join_by_reason(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason, with the names that it concerns before it; the pairs are name and reason."""
    groups = group_by(reasons, lambda pair: pair[1])
    return [f"{join_words(name for name, _ in pairs)}: {reason}" for reason, pairs in groups.items()]
