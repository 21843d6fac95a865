"""interpretation.md: three questions answered from the numbers of this run, each with a verdict and small tables."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from roofline.analysis.distribution import Standing, sentence
from roofline.analysis.score import score
from roofline.analysis.spread import Spreads, with_known_runs
from roofline.analysis.table import ComputeCeiling, MemoryCeiling, Operator, Roofline
from roofline.core import model, statistics
from roofline.core.formatting import (
    counted,
    duration,
    flops_unit,
    listed,
    number,
    percent,
    regime_words,
    starred,
    traffic,
)
from roofline.core.statistics import few, half_width
from roofline.operators.about import About
from roofline.records.compute import PeakFlops, PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.operator import JobRecord, OperatorRecord
from roofline.report import peer_paths
from roofline.report.markdown import Table, filled
from roofline.report.tables import (
    FEW_SAMPLES,
    WIDE,
    fail_lines,
    limited_by,
    main_memory_ceiling,
    measure_again,
    promised,
    span,
    spans_percent,
    told_apart,
    without_roof,
)

NEAR, FAR = 0.10, 0.20  # of a ceiling's limit, or of another block of the same kernel
FALLS = 0.03  # of a burst: less under sustained load is not worth a word
NEARLY_ALL = 0.95  # of a time: what is left of it is not worth a word
LISTED_ONE_BY_ONE = 8  # cells of an operator on a device; more are grouped by implementation
TOLD = 2  # sentences of a kind that may be many; the rest is counted
NAMED = 3  # implementations in a sentence
BEST = 4  # operators
STARRED = re.compile(r"\d( \w+)?\* ")  # a figure of few samples
NOTHING_CONCLUDED = "nothing is concluded, because of the failure above."
TEMPLATES = Path(__file__).parent / "templates"


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
ENVIRONMENT.filters |= {"listed": listed, "percent": percent, "spans_percent": spans_percent}
ENVIRONMENT.filters |= {"number": number, "measure_again": measure_again}
ENVIRONMENT.globals["fewest"] = statistics.FEWEST_SAMPLES


@dataclass(frozen=True)
class Answer:
    """To one of the questions, of one device: sentences, and the tables that they rest on."""

    verdict: str
    caution: str = ""  # why nothing is concluded from the verdict
    remarks: str = ""
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True)
class Interpretation:
    """What is said of a run, before it has a form."""

    fails: list[str]
    disturbed: list[str]  # records to measure again
    devices: dict[str, str]  # names
    others: list[str]  # where each stands among others of its model and of the host, in a sentence
    between: list[str]  # how the host's GPUs reach one another
    plan: dict[str, Answer]  # by device
    landing: dict[str, Answer]  # of those with an operator under a roof
    operations: Table | None  # the user's
    sealed: bool  # whether a prediction was judged
    against: Answer


def interpretation(
    roofline: Roofline,
    devices: dict[str, DeviceRecord],
    records: Iterable[JobRecord],
    spreads: Spreads | None = None,
    standings: Mapping[str, Standing] | None = None,
    beside: Iterable[str] = (),
) -> Interpretation:
    """The three answers; `spreads` are those between runs that are known, `standings` the devices' among others, and
    `beside` says how the host's cards stand beside one another."""
    records = list(records)
    plans = {name: ceilings(device, roofline, records, spreads or {}) for name, device in devices.items()}
    landings = {name: landing(name, found, roofline, records) for name in devices if (found := _placed(name, roofline))}
    return Interpretation(
        fails=fail_lines(roofline.faults),
        disturbed=[path for fault in roofline.faults for path in fault.records],
        devices={name: device.name for name, device in devices.items()},
        others=[
            f"{f'{name}: ' if len(devices) > 2 else ''}{sentence(devices[name].name, one)}."
            for name, one in (standings or {}).items()
            if not one.why
        ]
        + list(beside),
        between=[words for name in devices for words in peer_paths.sentences(roofline, name)],
        plan={name: _answer("plan", it, [it["table"]]) for name, it in plans.items()},
        landing={
            name: _answer("landing", it, it["tables"], f"{name}: {NOTHING_CONCLUDED}" if it["best"] else "")
            for name, it in landings.items()
        },
        operations=_operations(roofline),
        sealed=any(it["judged"] for it in landings.values()),
        against=_against(against(roofline, devices)),
    )


def interpret(*arguments, **keywords) -> str:
    """The same as Markdown."""
    return markdown(interpretation(*arguments, **keywords))


def markdown(said: Interpretation) -> str:
    text = ENVIRONMENT.get_template("interpretation.md.j2").render(vars(said))
    return f"{text}\n\\{FEW_SAMPLES}\n" if STARRED.search(text) else text


def _answer(question: str, it: dict, tables: Iterable[Table | None], caution: str = "") -> Answer:
    sentences = ENVIRONMENT.get_template("answers.j2").module
    verdict, remarks = (getattr(sentences, f"{question}_{part}")(it).strip() for part in ("verdict", "remarks"))
    return Answer(verdict, caution if it["failed"] else "", remarks, list(filter(None, tables)))


def _against(it: dict) -> Answer:
    if "missing" in it:
        return Answer(it["missing"])
    known = any(one["times"] for one in it["compared"])
    return _answer("against", it, [it["table"]], NOTHING_CONCLUDED.capitalize() if known else "")


def _placed(device: str, roofline: Roofline) -> list[tuple[About, list[Operator]]]:
    """Each operator that has a roof on a device, with its cells under it."""
    mine = [(info, _cells(roofline, device, info.name)) for info in roofline.operator_info.values()]
    mine = [(info, [cell for cell in cells if cell.fraction_of_roof]) for info, cells in mine]
    return [(info, cells) for info, cells in mine if cells]


def _cells(roofline: Roofline, device: str, operator: str) -> list[Operator]:
    return [o for o in roofline.operators if (o.device, o.operator) == (device, operator)]


def _named(roofline: Roofline, device: str, kind: type) -> dict[str, ComputeCeiling | MemoryCeiling]:
    return {c.name: c for c in roofline.ceilings if c.device == device and isinstance(c, kind)}


# ---------------------------------------------------------------- 1: the ceilings


def ceilings(device: DeviceRecord, roofline: Roofline, records: list[JobRecord], spreads: Spreads) -> dict:
    """What to plan with, whether the ceilings repeat within the run, and what does not fit."""
    name = device.device
    mine = [record for record in records if isinstance(record, PeakFlopsRecord) and record.device == name]
    peaks = {record.dtype: record.peak for record in mine if record.peak}
    of_few = [dtype for dtype, peak in peaks.items() if few(_samples(peak))]
    judged = {dtype: peak for dtype, peak in peaks.items() if dtype not in of_few}
    apart = {dtype: _apart(peak) for dtype, peak in judged.items()}
    noisy = [dtype for dtype in judged if (apart[dtype] or 0) > NEAR]
    beaten = [
        dtype for dtype, p in judged.items() if (p.reference_tflops or 0) > (1 + NEAR) * p.on_reference_inputs.tflops
    ]
    doubted = list(dict.fromkeys(noisy + beaten))
    sure = {dtype: peak for dtype, peak in judged.items() if dtype not in doubted}
    registers = {dtype: sure.get(f"{dtype}_fma") for dtype in sure} if device.device_kind == "cpu" else {}
    shares = {dtype: share for dtype, p in sure.items() if (share := _share(p, registers.get(dtype)))}
    # Of our own kernels, what is below the limit is the device's: they do nothing but multiply and add.
    short = {dtype: share for dtype, share in shares.items() if share < 1 - FAR and sure[dtype].method == "gemm"}
    left = {dtype: p.sustained_tflops / p.burst_tflops for dtype, p in sure.items() if p.sustained_tflops}
    falls = {dtype: share for dtype, share in left.items() if share < 1 - FALLS}
    reasons = [f"two blocks of the best kernel of {listed(noisy)} differ by more than 10 %"] if noisy else []
    reasons += [f"the reference GEMM of {listed(beaten)} beats the best one found"] if beaten else []
    doubts = [f"{dtype}: {doubt.rstrip('.')}" for dtype, peak in peaks.items() for doubt in peak.doubts]
    above = {found.operator: found.fraction_of_roof for found in roofline.above_roof if found.device == name}
    investigated = [(dtype, p.investigation) for dtype, p in peaks.items() if p.investigation]
    return {
        "device": name,
        "failed": any(fault.device == name for fault in roofline.faults),
        "peaks": peaks,
        "unit": _unit(sure),
        "plan": [f"{dtype} {number(p.sustained_tflops)}" for dtype, p in sure.items() if p.sustained_tflops],
        "bursts": [f"{dtype} {number(p.burst_tflops)}" for dtype, p in sure.items()],
        "few": of_few,
        "doubted": doubted,
        "doubtful": [c.record for c in roofline.ceilings if c.device == name and c.name in doubted],
        "reasons": reasons,
        "limit": "what register-only FMA reaches" if any(registers.values()) else "the limit",
        "short": list(short),
        "short_shares": list(short.values()),
        "libraries": sorted({sure[dtype].burst.product.library for dtype in short}),
        "beyond": [dtype for dtype, share in shares.items() if share > 1 + NEAR],
        "agree": [apart[dtype] for dtype in sure if apart[dtype] is not None],
        "alone": [dtype for dtype in sure if apart[dtype] is None],
        "falls": falls,
        "fall_reasons": sorted({_sustained_limit(p) for dtype, p in peaks.items() if dtype in falls}),
        "memory": _memory(name, roofline, spreads),
        "investigated": investigated[:TOLD],
        "doubts": doubts[:TOLD],
        "in_records": len(investigated[TOLD:]) + len(doubts[TOLD:]),
        "above": list(above.items())[:TOLD],
        "more_above": counted(len(above) - TOLD, "more operator") if len(above) > TOLD else "",
        "promise": promised(device),
        "table": _ceilings(peaks, promised(device)),
    }


def _ceilings(peaks: dict[str, PeakFlops], promise: str) -> Table | None:
    columns = (f"ceiling ({_unit(peaks)})", "burst", "n", "sustained")
    columns += (f"burst: of {promise}", f"sustained: of {promise}")
    columns += ("reference GEMM", "burst on its operands", "difference between two blocks", "of what its clock allows")
    columns += ("limited by",)
    rows = [
        [
            dtype,
            starred(number(peak.burst_tflops), _samples(peak)),
            str(_samples(peak)),
            number(peak.sustained_tflops) if peak.sustained_tflops else "-",
            _of(peak.burst_tflops, peak.vendor_tflops),
            _of(peak.sustained_tflops, peak.vendor_tflops),
            number(peak.reference_tflops) if peak.reference_tflops else "-",
            number(peak.on_reference_inputs.tflops) if peak.on_reference_inputs != peak.burst else "-",
            "-" if _apart(peak) is None else percent(_apart(peak)),
            percent(peak.fraction_of_clock) if peak.fraction_of_clock else "-",
            told_apart(peak.burst_limited_by, peak.sustained_limited_by, peak.limited_by, peak.throttled),
        ]
        for dtype, peak in peaks.items()
    ]
    return filled(columns, rows) if rows else None


def _samples(peak: PeakFlops) -> int:
    return len(peak.burst.latency.samples_s)


def _of(value: float | None, whole: float | None) -> str:
    return percent(value / whole) if value and whole else "-"


def _unit(dtypes: Iterable[str]) -> str:
    return "TFLOPS" + (", int8: TOPS" if any(flops_unit(dtype) == "TOPS" for dtype in dtypes) else "")


def _share(peak: PeakFlops, registers: PeakFlops | None) -> float | None:
    """Of what the hardware could do at the clock that was measured; at the promised clock where none was.

    Of a CPU's product: of what its multiply-adds in registers reached, `registers`, where they were measured. The
    formula's clock is that of an idle moment.
    """
    if registers:
        return peak.burst_tflops / registers.burst_tflops
    return peak.fraction_of_clock or peak.fraction_of_vendor


def _sustained_limit(peak: PeakFlops) -> str:
    told = peak.sustained.limited_by if peak.sustained else peak.limited_by
    return limited_by(told if peak.sustained_limited_by is None else peak.sustained_limited_by, peak.throttled)


def _apart(peak: PeakFlops) -> float | None:
    """How far the burst is from the block by which its kernel was chosen; None where there was no other block.

    On a CPU the burst may be the reference GEMM's own, which was the choosing one too: then its slower one counts.
    """
    if peak.burst_tflops == peak.reference_tflops:
        blocks = (one.tflops for one in peak.slower_remeasurements if one.product == peak.burst.product)
    else:
        blocks = (one.block_tflops for one in peak.candidates if one.product == peak.burst.product)
    other = next(blocks, None)
    return abs(peak.burst_tflops - other) / other if other else None


def _memory(device: str, roofline: Roofline, spreads: Spreads) -> dict | None:
    """The memory ceiling that most operators stand under, and how sure it is."""
    there = _named(roofline, device, MemoryCeiling)
    operators = [operator for operator in roofline.operators if operator.device == device]
    ceiling = main_memory_ceiling(there.values(), operators) or next(iter(there.values()), None)
    if not ceiling:
        return None
    half = half_width(ceiling.gb_per_s, ceiling.ci95) if ceiling.ci95 else None
    return {
        "ceiling": ceiling,
        "few": few(ceiling.samples),
        "half": half,
        "wide": bool(half and half > WIDE),
        "spread": with_known_runs(spreads, device, ceiling.name, "ceiling", ceiling.gb_per_s),
    }


# ---------------------------------------------------------------- 2: the operators


def landing(device: str, found: list[tuple[About, list[Operator]]], roofline: Roofline, records: list) -> dict:
    """Where the operators of a device land under their roofs."""
    all_cells = [cell for _, cells in found for cell in cells]
    judged = [(info, mine) for info, cells in found if (mine := _judged(cells, roofline))]
    every = [cell for _, cells in judged for cell in cells]
    best = sorted(((max(map(_fraction, cells)), info.title) for info, cells in judged), reverse=True)
    regimes = dict.fromkeys(cell.regime for cell in every)
    slow = [cell for cell in every if cell.regime == model.IMPLEMENTATION_BOUND]
    lags = {info.title: lag for info, cells in judged if (lag := max(map(_lag, cells))) > NEAR}
    notes = list(dict.fromkeys(note for info, _ in found for note in _notes(info, device, records)))
    few = [one for one in found if len(one[1]) <= LISTED_ONE_BY_ONE]
    many = [one for one in found if one not in few]
    return {
        "device": device,
        "failed": any(fault.device == device for fault in roofline.faults),
        "best": [f"{title} {'' if i else 'reaches '}{percent(share)}" for i, (share, title) in enumerate(best[:BEST])],
        "more": f"{len(best[BEST:])} more" if best[BEST:] else "",
        "regimes": [
            f"{sum(cell.regime == one for cell in every)} {regime_words(one) if one else 'of no known regime'}"
            for one in regimes
        ],
        "without_ceiling": sum(not (cell.compute_ceiling and cell.memory_ceiling) for cell in all_cells),
        "without_roof": without_roof(roofline, device),
        "count": len(all_cells),
        "few": len(all_cells) - len(every),
        "lags": lags,
        "laggards": _some(lags),
        "slow": len(slow),
        "slow_ways": _some(dict.fromkeys(cell.implementation for cell in slow)),
        "score": score(every),
        "judged": any(cell.predicted.sealed and cell.regime for cell in every),
        "notes": notes[:TOLD],
        "more_notes": len(notes[TOLD:]),
        "tables": [_overview(found, roofline), _one_by_one(few), _by_implementation(many, roofline)],
    }


def _judged(cells: list[Operator], roofline: Roofline) -> list[Operator]:
    """Those whose times and roofs rest on enough samples."""
    return [cell for cell in cells if not few(cell.samples) and not few(_roof(cell, roofline).samples)]


def _roof(cell: Operator, roofline: Roofline) -> ComputeCeiling | MemoryCeiling:
    """The lower of its ceilings."""
    name = cell.memory_ceiling if _lower_ceiling(cell) == "memory" else cell.compute_ceiling
    return next(c for c in roofline.ceilings if (c.device, c.name) == (cell.device, name))


def _some(names: Iterable[str]) -> list[str]:
    """A few names and how many more there are."""
    names = list(names)
    return [*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]


def _fraction(cell: Operator) -> float:
    return cell.fraction_of_roof


def _name(cell: Operator, *more: str | None) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope, *more, cell.label]))


def _preset(cell: Operator, cells: list[Operator]) -> str | None:
    """Where there are several."""
    return cell.preset if len({one.preset for one in cells}) > 1 else None


def _lower_ceiling(cell: Operator) -> str:
    """A share of the compute ceiling below that of the roof says that the memory ceiling is the lower."""
    if not cell.compute_ceiling or not cell.fraction_of_roof:
        return "memory"
    below = cell.fraction_of_compute_peak < 0.9999 * cell.fraction_of_roof  # equal but for rounding
    return "memory" if cell.memory_ceiling and below else "compute"


def _lag(cell: Operator) -> float:
    """By how much the device's time of queued steps is longer than the caller's, which the device's part cannot be."""
    return cell.device_latency_s / cell.latency_s - 1 if cell.device_latency_s else 0.0


def _ridge_point(cell: Operator, roofline: Roofline) -> float | None:
    """Compute ceiling over memory ceiling, in FLOP/byte, of the pair that a cell stands under."""
    compute = _named(roofline, cell.device, ComputeCeiling).get(cell.compute_ceiling)
    memory = _named(roofline, cell.device, MemoryCeiling).get(cell.memory_ceiling)
    return model.ridge_point(compute.tflops * 1e12, memory.gb_per_s * 1e9) if compute and memory else None


def _usual(info: About, cells: list[Operator]) -> str:
    """Memory-bound cells' share of the fp16 peak, beside what is usual."""
    bound = [cell for cell in cells if cell.dtype == cell.compute_ceiling == "fp16" and cell.regime == "memory"]
    if not info.usual_share_of_peak or not bound:
        return "-"
    low, high = info.usual_share_of_peak
    return (
        f"{spans_percent(cell.fraction_of_compute_peak for cell in bound)} (usual: {100 * low:g} to {100 * high:g} %)"
    )


def _notes(info: About, device: str, records: list[JobRecord]) -> list[str]:

    def measured(record: JobRecord) -> bool:
        return any(one.operator == info.name for one in record.measurements)

    mine = [r for r in records if isinstance(r, OperatorRecord) and r.device == device and measured(r)]
    notes = dict.fromkeys(note for record in mine for note in record.notes)
    generated = any(file.generated for record in mine for file in record.data)
    other = [
        f"{r.dtype} {info.title} has other operands than its ceiling: on its own, the ceiling's product gives "
        f"{number(r.peak.on_reference_inputs.tflops)} {flops_unit(r.dtype)}, of which it attains "
        f"{percent(r.peak.reference_tflops / r.peak.on_reference_inputs.tflops)}"
        for r in records
        if isinstance(r, PeakFlopsRecord) and r.device == device and measured(r) and r.peak
        if r.peak.on_reference_inputs != r.peak.burst
    ]
    return [*other, *notes, *(["weights were generated, not trained"] if generated else [])]


def _overview(found: list[tuple[About, list[Operator]]], roofline: Roofline) -> Table:
    """Each operator and dtype: between which shares of which roof its cells lie, and of how many the seal was right."""
    columns = ("operator", "dtype", "cells", "n", "FLOP/byte", "ridge point", "lower ceiling", "of roof")
    columns += ("closest to its roof", "furthest from it", "sealed: right", "memory-bound: of the fp16 peak")
    rows = []
    for info, dtype, mine in ((i, d, [c for c in cells if c.dtype == d]) for i, cells in found for d in _dtypes(cells)):
        sure = _judged(mine, roofline)
        right = score(sure)
        roofs = dict.fromkeys(c.memory_ceiling if _lower_ceiling(c) == "memory" else c.compute_ceiling for c in mine)
        ridges = {ridge for c in mine if (ridge := _ridge_point(c, roofline))}
        rows.append(
            [
                info.title,
                dtype,
                str(len(mine)),
                _counts(mine),
                span(sorted(c.intensity_flops_per_byte for c in mine if c.intensity_flops_per_byte)) or "-",
                span(sorted(ridges)) or "-",
                ", ".join(filter(None, roofs)),
                spans_percent(map(_fraction, mine)),
                *(
                    _name(end(sure, key=_fraction), _preset(sure[0], mine)) if len(sure) > 1 else "-"
                    for end in (max, min)
                ),
                f"{right.both_right} of {right.cells}" if right.cells else "-",
                _usual(info, mine),
            ]
        )
    return filled(columns, rows, left=2)


def _counts(cells: list[Operator]) -> str:
    """How many samples their times rest on."""
    return span(sorted(cell.samples for cell in cells if cell.samples)) or "-"


def _dtypes(cells: list[Operator]) -> Iterable[str]:
    return dict.fromkeys(cell.dtype for cell in cells)


def _one_by_one(found: list[tuple[About, list[Operator]]]) -> Table | None:
    columns = (
        "operator",
        "case",
        "implementation",
        "time",
        "n",
        _unit(d for _, cells in found for d in _dtypes(cells)),
    )
    columns += ("of roof", "GPU time", "regime found")
    rows = [
        [
            info.title,
            " ".join(filter(None, [cell.scope, cell.dtype, cell.label, cell.preset])),
            cell.implementation or "",
            starred(duration(cell.latency_s), cell.samples),
            _counts([cell]),
            number(cell.attained_tflops),
            percent(cell.fraction_of_roof),
            percent(cell.device_fraction_of_roof) if cell.device_fraction_of_roof else "-",
            cell.regime or "-",
        ]
        for info, cells in found
        for cell in cells
    ]
    return filled(columns, rows, left=3) if rows else None


def _operations(roofline: Roofline) -> Table | None:
    """Those of the config, which have no implementations to compare."""
    columns = ("device", "operation", "dtype", "FLOP/byte", "roofline's time", "your time", "of roof", "bound by")
    rows = [
        [
            o.device,
            " ".join(o.name.split()),
            o.dtype,
            "no traffic" if o.no_traffic else number(o.intensity_flops_per_byte),
            duration(o.roofline_time_s) if o.roofline_time_s else "-",
            duration(o.latency_s) if o.latency_s else "-",
            _share_of_roof(o),
            o.regime or "-",
        ]
        for o in roofline.operators
        if o.operator == "operation"
    ]
    return filled(columns, rows, left=3) if rows else None


def _by_implementation(found: list[tuple[About, list[Operator]]], roofline: Roofline) -> Table | None:
    """Each implementation and scope: its shares, its regimes, and the time of its smallest and largest case."""
    columns = ("operator", "implementation", "cells", "n", "of roof", "GPU time", "regimes found")
    columns += ("smallest case", "largest case")
    rows = []
    for info, cells in found:
        groups: dict[tuple, list[Operator]] = {}
        for cell in cells:
            groups.setdefault((cell.implementation, cell.scope, _preset(cell, cells)), []).append(cell)
        for names, mine in groups.items():
            mine.sort(key=lambda cell: cell.bytes)
            regimes = [cell.regime for cell in _judged(mine, roofline) if cell.regime]
            alone = [cell.device_fraction_of_roof for cell in mine if cell.device_fraction_of_roof]
            rows.append(
                [
                    info.title,
                    " ".join(filter(None, names)),
                    str(len(mine)),
                    _counts(mine),
                    spans_percent(map(_fraction, mine)),
                    spans_percent(alone) if alone else "-",
                    ", ".join(f"{regimes.count(one)} {one}" for one in dict.fromkeys(regimes)) or "-",
                    *(
                        f"{starred(duration(cell.latency_s), cell.samples)} ({cell.dtype} {cell.label})"
                        for cell in (mine[0], mine[-1])
                    ),
                ]
            )
    return filled(columns, rows, left=2) if rows else None


# ---------------------------------------------------------------- 3: the GPU against the CPU


def against(roofline: Roofline, devices: dict[str, DeviceRecord]) -> dict:
    """For each operator that both have in fp32: is the GPU faster by as much as its roof is higher?"""
    gpu = next((name for name, record in devices.items() if record.device_kind == "gpu"), None)
    if gpu is None or "cpu" not in devices:
        only = f"{listed(devices)} {'was' if len(devices) == 1 else 'were'} measured"
        return {"missing": f"Only {only}; the comparison needs a GPU and the CPU (`devices: auto`)."}
    found = [_compared(info, gpu, roofline) for info in roofline.operator_info.values()]
    if not any(found):
        return {"missing": f"No operator was measured in fp32 on both {gpu} and cpu."}
    found = [one for one in found if one]
    link = _named(roofline, gpu, MemoryCeiling).get("h2d")
    return {
        "gpu": gpu,
        "failed": any(fault.device in (gpu, "cpu") for fault in roofline.faults),
        "compared": found[:NAMED],
        "more": counted(len(found[NAMED:]), "more operator") if found[NAMED:] else "",
        "ratios": [f"{one['ratio']} in {one['title']}" for one in found[:NAMED] if one["ratio"]],
        "link": link,
        "table": _pairs(found, link),
    }


def _compared(info: About, gpu: str, roofline: Roofline) -> dict | None:
    on_gpu, on_cpu = _fastest(roofline, gpu, info.name), _fastest(roofline, "cpu", info.name)
    pairs = sorted(((on_gpu[key], on_cpu[key]) for key in on_gpu if key in on_cpu), key=lambda pair: pair[0].bytes)
    if not pairs:
        return None
    judged = [pair for pair in pairs if not any(few(cell.samples) for cell in pair)]
    ratios = [(_times(*pair), higher) for pair in judged if (higher := _roofs(*pair, roofline))]
    of_roofs = span(sorted(times / higher for times, higher in ratios)) if ratios else ""
    kinds = {_lower_ceiling(cell) for pair in judged for cell in pair}
    what = f"{kinds.pop()} ceilings" if len(kinds) == 1 else "roofs"
    return {
        "title": info.title,
        "case": judged[0][0].label if len(judged) == 1 else counted(len(judged), "case"),
        "times": span(sorted(_times(*pair) for pair in judged)) if judged else "",
        "ratio": f"{of_roofs} times the ratio of their {what} ({span(sorted(r for _, r in ratios))})" if ratios else "",
        "pairs": pairs,
    }


def _times(fast: Operator, slow: Operator) -> float:
    return slow.latency_s / fast.latency_s


def _roofs(fast: Operator, slow: Operator, roofline: Roofline) -> float | None:
    """By how much the one's roof is higher; None where that rests on few samples."""
    if any(cell.fraction_of_roof and few(_roof(cell, roofline).samples) for cell in (fast, slow)):
        return None
    return _ratio(fast.roof_tflops, slow.roof_tflops) or _ratio(*(_bandwidth(one, roofline) for one in (fast, slow)))


def _fastest(roofline: Roofline, device: str, operator: str) -> dict[tuple, Operator]:
    """The fastest implementation of each fp32 case, of the first scope."""
    found: dict[tuple, Operator] = {}
    cells = [cell for cell in _cells(roofline, device, operator) if cell.dtype == "fp32" and cell.latency_s]
    for cell in cells:
        key = (cell.preset, *sorted(cell.shape.items()))
        if cell.scope == cells[0].scope and (key not in found or cell.latency_s < found[key].latency_s):
            found[key] = cell
    return found


def _bandwidth(cell: Operator, roofline: Roofline) -> float | None:
    """Of its memory ceiling; where it has no FLOPs, that is all its roof."""
    ceiling = _named(roofline, cell.device, MemoryCeiling).get(cell.memory_ceiling)
    return ceiling.gb_per_s if ceiling and not cell.flops else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _pairs(compared: list[dict], link: MemoryCeiling | None) -> Table:
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
            "-" if few(fast.samples) or few(slow.samples) else number(_times(fast, slow)),
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
