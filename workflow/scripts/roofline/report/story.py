"""What a run has to tell, as plain data: the page and ROOFLINE.md are two renderings of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofline.analysis import host_cards
from roofline.analysis.distribution import Standing
from roofline.analysis.results import Results
from roofline.analysis.score import score
from roofline.analysis.spread import Spreads, with_known_runs
from roofline.analysis.table import ComputeCeiling, MemoryCeiling, Operator, Roofline, SpeedUp
from roofline.core.formatting import (
    capacity,
    counted,
    duration,
    flops_rate,
    flops_unit,
    level_name,
    listed,
    number,
    percent,
    regime_words,
    starred,
)
from roofline.core.statistics import few
from roofline.core.throttling import limiting_words
from roofline.operators.about import About
from roofline.records.check import CheckResult
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.report.charts import (
    instruction_chart,
    load_chart,
    operator_chart,
    prediction_chart,
    roofline_chart,
    symbols_of,
)
from roofline.report.counter_words import counter_words, telling
from roofline.report.instruction_words import paragraph, walls
from roofline.report.interpretation import Interpretation, interpretation
from roofline.report.markdown import Table, filled
from roofline.report.screen import above_roof_words
from roofline.report.tables import (
    compute_rows,
    level_rows,
    main_memory_ceiling,
    measure_again,
    memory_doubt,
    memory_rows,
    promised,
    span,
    spans_percent,
)
from roofline.report.verification_page import cell_name, counted_table, score_words, signed

WORST = 5  # predictions by name
HEADLINE = ("fp16", "bf16", "fp32")  # the dtype whose ceiling stands at the top
OPERANDS = 4  # of a multiply-add: three registers read, one written
PER_MULTIPLY_ADD = 2 / OPERANDS / 4  # FLOPs over the bytes of fp32 operands
ALL_CORES = "all_cores"


@dataclass(frozen=True)
class Figure:
    """One number at the top."""

    value: str
    unit: str
    words: str


@dataclass(frozen=True)
class Layer:
    """One level of a device's memory."""

    name: str
    size: str
    bandwidth: str
    share: float  # of the pyramid's height so far, 0 at the top: how wide it is drawn
    source: str


@dataclass(frozen=True)
class Part:
    """One operator."""

    title: str
    anchor: str
    picture: str | None
    words: list[str]  # on each device what limits it
    missed: list[str]  # and the worst prediction, where one was missed
    cells: Table
    overview: Table
    chart: dict | None
    dtypes: list[str]


@dataclass(frozen=True)
class Instructions:
    """One GPU's instruction roofline."""

    device: str
    anchor: str
    words: list[str]
    chart: dict | None


@dataclass(frozen=True)
class Lesson:
    title: str
    words: str
    again: bool = False  # of what stands above it too


@dataclass(frozen=True)
class Miss:
    """One prediction that was far off."""

    cell: str
    predicted: str
    measured: str
    error: str
    why: str


@dataclass(frozen=True)
class Story:
    card: str
    facts: list[tuple[str, str]]
    verdict: list[tuple[str, str]]  # a caution, or none, and a sentence
    figures: list[Figure]
    passed: int
    failed: list[CheckResult]
    checks: list[CheckResult]
    disturbed: str  # the command that measures again what was disturbed
    said: Interpretation
    devices: dict[str, str]  # names
    twins: list[str]  # devices of a model of which another comes first: ROOFLINE.md has that one's tables alone
    ceilings: dict[str, list[Table]]
    skipped: dict[str, list[str]]
    pyramids: dict[str, list[Layer]]
    score: str
    worst: list[Miss]
    operators: list[Part]
    spread: Table
    spread_words: str
    lessons: list[Lesson]
    cell: str  # one to reproduce
    hashes: list[tuple[str, str]]
    roofline_chart: dict | None
    prediction_chart: dict | None
    load_chart: dict | None
    filters: dict[str, list[str]]
    colours: list[str]  # dtypes
    symbols: dict[str, str]  # of the operators
    starred: bool  # whether a figure is of few samples
    counters: list[str]  # what was counted and what was not; empty where nothing was tried
    counted: Table  # declared and counted, of every profiled cell
    counted_most: Table  # of each implementation the cell that tells most
    instructions: list[Instructions]


def story(
    found: Results,
    roofline: Roofline,
    spreads: Spreads,
    sha256: Mapping[str, str],
    standings: Mapping[str, Standing] | None = None,
) -> Story:
    """`spreads` are those between runs that are known, `sha256` is of the records' files, by their paths; `standings`
    are the devices' among others of their models."""
    records = [record for _, record in found.measured]
    devices = _gpus_first(found.device_records())
    main = next(iter(devices))
    beside = host_cards.sentences(host_cards.groups(found, roofline))
    said = interpretation(roofline, devices, records, spreads, standings, beside)
    twins = _twins(devices)
    worst = _worst(roofline.entries)
    peaks = [record for record in records if isinstance(record, PeakFlopsRecord)]
    cells = [cell for cell in roofline.operators if cell.fraction_of_roof is not None or cell.latency_s]
    spread = _spread(roofline, spreads)
    of_counters = [f"{device}/profiler.json" for device in found.profilers] + [path for path, _ in found.counters]
    measured = [path for path, _ in [*found.devices.values(), *found.measured]]
    paths = sorted({*measured, *found.seals, *of_counters})
    symbols, chart = symbols_of(cell.operator for cell in roofline.operators), roofline_chart(roofline)
    kinds = {trace["meta"]["kind"] for trace in chart["data"] if trace["x"]} if chart else set()
    answers = [said.plan[main], *([said.landing[main]] if main in said.landing else []), said.against]
    return Story(
        card=devices[main].name,
        facts=_facts(devices[main], main),
        verdict=[(answer.caution, answer.verdict) for answer in answers],
        figures=_figures(roofline, devices[main]),
        passed=sum(one.result == "pass" for one in roofline.checks),
        failed=[one for one in roofline.checks if one.result == "fail"],
        checks=roofline.checks,
        disturbed=measure_again(said.disturbed) if said.disturbed else "",
        said=said,
        devices={name: device.name for name, device in devices.items()},
        twins=twins,
        ceilings={name: _ceilings(roofline, device, spreads) for name, device in devices.items()},
        skipped={name: _skipped(roofline, name) for name in devices},
        pyramids={name: made for name, device in devices.items() if (made := pyramid(device, roofline))},
        score=score_words(roofline.score) if roofline.score.cells else "",
        worst=[_miss(entry, roofline.titles) for entry in worst],
        operators=[part for info in roofline.operator_info.values() if (part := _part(info, roofline, twins))],
        spread=spread,
        spread_words=_spread_words(spread),
        lessons=_lessons(roofline, devices, peaks),
        cell=_one_cell(found, main),
        hashes=[(path, sha256[path]) for path in paths if path in sha256],
        roofline_chart=chart,
        prediction_chart=prediction_chart(roofline.entries, worst, symbols),
        load_chart=load_chart(peaks),
        filters={
            "device": list(devices),
            "operator": list(dict.fromkeys(cell.operator for cell in cells)),
            "dtype": list(dict.fromkeys([*(cell.dtype for cell in cells), *_dtypes(roofline)])),
            "also": [kind for kind in ("sustained", "predicted") if kind in kinds],
        },
        colours=list(dict.fromkeys(cell.dtype for cell in cells)),
        counters=counter_words(found, roofline),
        counted=counted_table(roofline.counted, roofline.titles),
        counted_most=counted_table(telling(roofline.counted), roofline.titles),
        instructions=[
            Instructions(
                device=one.device,
                anchor=f"instructions-{one.device}",
                words=[words for words in (paragraph(one), walls(one)) if words],
                chart=instruction_chart(one),
            )
            for one in roofline.instructions
        ],
        symbols=symbols,
        starred=any(few(one.samples) for one in [*roofline.ceilings, *cells]),
    )


def _dtypes(roofline: Roofline) -> list[str]:
    """Of the compute ceilings."""
    return [c.name.partition("_fma")[0] for c in roofline.ceilings if c.kind == "compute"]


def _skipped(roofline: Roofline, device: str) -> list[str]:
    return [f"{one.name or one.dtype}: {one.reason}" for one in roofline.skipped if one.device == device]


def _gpus_first(devices: Mapping[str, DeviceRecord]) -> dict[str, DeviceRecord]:
    return dict(sorted(devices.items(), key=lambda item: item[1].device_kind != "gpu"))


def _twins(devices: Mapping[str, DeviceRecord]) -> list[str]:
    models = [device.name for device in devices.values()]
    return [name for place, name in enumerate(devices) if models[place] in models[:place]]


# ---------------------------------------------------------------- the top


def _facts(device: DeviceRecord, name: str) -> list[tuple[str, str]]:
    software, hardware = device.software, device.hardware
    known = {
        "device": name,
        "measured": device.queried_at[:10],
        "driver": software.get("driver"),
        "CUDA": software.get("cuda_runtime"),
        "memory": capacity(device.memory_total_bytes),
        "multiprocessors": hardware.get("multiprocessors"),
        "power limit": f"{number(limit)} W" if (limit := hardware.get("power_limit_w")) else None,
        "host": device.host.get("cpu"),
    }
    return [(key, str(value)) for key, value in known.items() if value]


def _figures(roofline: Roofline, device: DeviceRecord) -> list[Figure]:
    name, promise = device.device, f"the {promised(device)}'s"
    mine = [c for c in roofline.ceilings if c.device == name]
    compute = {c.name: c for c in mine if c.kind == "compute"}
    ceiling = next((compute[name] for name in HEADLINE if name in compute), None)
    memory = main_memory_ceiling(mine, ())  # the same one whatever operators ran
    figures = []
    if ceiling:
        burst = ceiling.burst_tflops or ceiling.tflops
        words = [f"{ceiling.name} burst"]
        words += [f"{percent(burst / ceiling.vendor_tflops)} of {promise}"] if ceiling.vendor_tflops else []
        words += [f"{number(ceiling.sustained_tflops)} sustained"] if ceiling.sustained_tflops else []
        value = starred(number(burst), ceiling.samples)
        figures.append(Figure(value, flops_unit(ceiling.name), " · ".join(words)))
    if memory:
        words = [memory.name]
        words += [f"{percent(memory.fraction_of_vendor)} of {promise}"] if memory.fraction_of_vendor else []
        words += [f"do not rely on it: {doubt}"] if (doubt := memory_doubt(memory)) else []
        figures.append(Figure(starred(number(memory.gb_per_s), memory.samples), "GB/s", " · ".join(words)))
    right = score(cell for cell in roofline.operators if cell.device == name)
    if right.cells:
        words = f"cells on {name} predicted before they were timed: regime right, time within a factor of two"
        figures.append(Figure(str(right.both_right), f"of {right.cells}", words))
    judged = [one.result for one in roofline.checks if one.result != "not_applicable"]
    if judged:
        figures.append(Figure(str(judged.count("pass")), f"of {len(judged)}", "checks passed"))
    return figures


# ---------------------------------------------------------------- ceilings


def _ceilings(roofline: Roofline, record: DeviceRecord, spreads: Spreads) -> list[Table]:
    """Compute, memory, and the levels that the sweep found."""
    device, promise = record.device, promised(record)
    shared = ("n", "95 %, within this run", "between runs")
    compute = [
        [
            f"{r.name}, TOPS" if r.unit == "TOPS" else r.name,
            *(r.measured, r.sustained, r.vendor, r.of_vendor, r.of_clock),
            *(r.samples, r.interval, r.between, r.limited_by),
        ]
        for r in compute_rows(roofline, device, spreads)
    ]
    memory = [
        [r.name, r.measured, r.vendor, r.of_vendor, r.samples, r.interval, r.between, r.limited_by]
        for r in memory_rows(roofline, device, spreads)
    ]
    found = [[r.name, r.gb_per_s, r.knee or "none seen", r.reported, r.series] for r in level_rows(roofline, device)]
    of_compute = ("compute, TFLOPS", "burst", "sustained", promise, f"of {promise}: burst, sustained", "of its clock")
    tables = [
        filled([*of_compute, *shared, "limited by"], compute),
        filled(["memory, GB/s", "measured", promise, f"of {promise}", *shared, "limited by"], memory),
        filled(["found by the sweep", "GB/s", "knee", "reported", "series"], found),
    ]
    return [one for one in tables if one.rows]


def pyramid(device: DeviceRecord, roofline: Roofline) -> list[Layer]:
    """The levels of a device's memory from the registers out: what each holds, and what was measured of it."""
    ceilings = {c.name: c for c in roofline.ceilings if c.device == device.device}
    gpu = device.device_kind == "gpu"
    levels = _levels_of_gpu(device, ceilings) if gpu else _levels_of_cpu(device, ceilings, roofline)
    known = [level for level in levels if level[2]]  # of which something was measured
    return [
        Layer(name, size, rate, (place + 1) / len(known), source)
        for place, (name, size, rate, source) in enumerate(known)
    ]


def _levels_of_gpu(device: DeviceRecord, ceilings: Mapping[str, ComputeCeiling | MemoryCeiling]) -> list[tuple]:
    hardware, count = device.hardware, device.hardware.get("multiprocessors") or 0
    fma, shared = ceilings.get("fp32_fma"), hardware.get("shared_memory_per_multiprocessor_bytes")
    memory = [ceilings[name] for name in ("hbm_read", "d2d") if name in ceilings]
    registers = f"what fp32_fma takes, {OPERANDS} operands of 4 bytes per multiply-add"
    return [
        (
            "registers",
            _held(count * 4 * (hardware.get("registers_per_multiprocessor") or 0)),
            f"≥ {_rate(1e3 * fma.tflops / PER_MULTIPLY_ADD)} from fp32_fma" if fma else "",
            registers,
        ),
        ("L1 and shared memory", _held(count * (shared or 0)), *_measured(ceilings, "l1", "shared")),
        ("L2", _held(hardware.get("l2_bytes")), *_measured(ceilings, "l2")),
        ("device memory", _held(device.memory_total_bytes), *_measured(ceilings, *(c.name for c in memory[:1]))),
        ("other GPUs", "", *_peers(ceilings)),
        ("host link", "", *_measured(ceilings, "h2d", "d2h")),
    ]


def _peers(ceilings: Mapping[str, ComputeCeiling | MemoryCeiling]) -> tuple[str, str]:
    """The slowest and the fastest copies to other GPUs, one way."""
    copies = [c for c in ceilings.values() if c.kind == "memory" and c.level == "p2p" and c.name.count("_") == 1]
    rates = sorted(c.gb_per_s for c in copies)
    return (f"{span(rates)} GB/s", ", ".join(c.name for c in copies)) if copies else ("", "")


def _levels_of_cpu(device: DeviceRecord, ceilings: Mapping, roofline: Roofline) -> list[tuple]:
    """Caches as all cores saw them in the sweep, each core with a working set of its own."""
    cores, whole = device.hardware.get("cores_usable"), device.hardware.get("caches_bytes") or {}
    swept = [one for one in roofline.levels if (one.device, one.series) == (device.device, ALL_CORES) and one.name]
    caches = [
        (
            level_name(one.name, one.knee_bytes),
            _cache(whole.get(one.name), one.reported_bytes),
            f"{_rate(one.gb_per_s)} by {counted(cores, 'core') if cores else 'all cores'}",
            "the sweep, all cores",
        )
        for one in swept
    ]
    return [*caches, ("memory", _held(device.memory_total_bytes), *_measured(ceilings, "dram_read"))]


def _cache(whole: int | None, share: int | None) -> str:
    """A cache of which each core has a share: the whole, and by how many it is shared."""
    if not share or not whole or share >= whole:
        return f"{capacity(share)} per core" if share else ""
    return f"{capacity(whole)}, shared by {round(whole / share)} cores"


def _held(size: int | None) -> str:
    return capacity(size) if size else ""


def _measured(ceilings: Mapping, *names: str) -> tuple[str, str]:
    """The rates of those that were measured, and their names."""
    there = [ceilings[name] for name in names if name in ceilings]
    rates = dict.fromkeys(starred(_rate(c.gb_per_s), c.samples) for c in there)
    return " / ".join(rates), " / ".join(c.name for c in there)


def _rate(gb_per_s: float) -> str:
    return f"{number(gb_per_s / 1e3)} TB/s" if gb_per_s >= 1e3 else f"{number(gb_per_s)} GB/s"


# ---------------------------------------------------------------- predictions


def _factor(entry: Operator) -> float:
    """By which the sealed time was missed, whichever way."""
    known = entry.sealed and entry.sealed.latency_s and entry.latency_s
    return math.exp(abs(math.log(entry.sealed.latency_s / entry.latency_s))) if known else 0.0


def _worst(entries: Iterable[Operator]) -> list[Operator]:
    return sorted((entry for entry in entries if _factor(entry)), key=_factor, reverse=True)[:WORST]


def _miss(entry: Operator, titles: Mapping[str, str]) -> Miss:
    what = f"{titles.get(entry.operator, entry.operator)}, {entry.implementation}, {cell_name(entry)} on {entry.device}"
    error = signed(entry.sealed_error)
    return Miss(what, duration(entry.sealed.latency_s), duration(entry.latency_s), error, entry.explanation)


# ---------------------------------------------------------------- operators


def _part(info: About, roofline: Roofline, twins: Sequence[str] = ()) -> Part | None:
    cells = [cell for cell in roofline.operators if cell.operator == info.name and cell.latency_s]
    if not cells:
        return None
    by_device = [[cell for cell in cells if cell.device == device] for device in dict.fromkeys(c.device for c in cells)]
    entries = [entry for entry in roofline.entries if entry.operator == info.name]
    return Part(
        title=info.title,
        anchor=f"operator-{info.name}".replace("_", "-"),
        picture=f"{info.picture}.png",
        words=[_limits(mine, [e for e in entries if e.device == mine[0].device]) for mine in by_device],
        missed=[_missed([e for e in entries if e.device == mine[0].device]) for mine in by_device],
        cells=_cells(info, cells),
        overview=_overview([cell for cell in cells if cell.device not in twins]),
        chart=operator_chart(cells, info),
        dtypes=list(dict.fromkeys(cell.dtype for cell in cells)),
    )


def _limits(cells: Sequence[Operator], entries: Sequence[Operator]) -> str:
    """What limits an operator on a device, and what helps."""
    regimes = [cell.regime for cell in cells if cell.regime]
    counts = [f"{regimes.count(one)} {regime_words(one)}" for one in dict.fromkeys(regimes)]
    told = [f"On {cells[0].device}, of {counted(len(cells), 'cell')}: {listed(counts)}."] if counts else []
    ranked = sorted((c for c in cells if c.fraction_of_roof and not few(c.samples)), key=lambda c: c.fraction_of_roof)
    if len(ranked) > 1:
        told.append(
            f"Closest to its roof is {_name(ranked[-1], cells)} at {percent(ranked[-1].fraction_of_roof)}, furthest "
            f"{_name(ranked[0], cells)} at {percent(ranked[0].fraction_of_roof)}."
        )
    return " ".join([*told, *_helps(entries)])


def _missed(entries: Sequence[Operator]) -> str:
    worst = next(iter(_worst(entries)), None)
    if worst is None or worst.cause == "close":
        return ""
    name = " ".join(filter(None, [worst.implementation, cell_name(worst)]))
    return f"The seal missed most in {name} ({signed(worst.sealed_error)}): {worst.explanation}."


def _helps(entries: Iterable[Operator]) -> Iterable[str]:
    """A sentence for each regime found: the remedies, and which implementations or dtypes each is for, unless all."""
    by_regime: dict[str, list[Operator]] = {}
    for entry in entries:
        if entry.regime and entry.remedies:
            by_regime.setdefault(entry.regime, []).append(entry)
    for regime, mine in by_regime.items():
        remedies = dict.fromkeys(remedy for entry in mine for remedy in entry.remedies)
        told = [f"{remedy}{_for(remedy, mine)}" for remedy in remedies]
        yield f"What helps where {regime_words(regime)}: {'; '.join(told)}."


def _for(remedy: str, entries: Sequence[Operator]) -> str:
    for of in ("implementation", "dtype"):
        every, helped = (
            list(dict.fromkeys(getattr(entry, of) for entry in some))
            for some in (entries, [entry for entry in entries if remedy in entry.remedies])
        )
        if len(helped) < len(every):
            return f" ({listed(helped)})"
    return ""


def _name(cell: Operator, cells: Sequence[Operator]) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope, cell.dtype, cell.label, _preset(cell, cells)]))


def _preset(cell: Operator, cells: Sequence[Operator]) -> str | None:
    """Where there are several."""
    return cell.preset if len({one.preset for one in cells}) > 1 else None


def _cells(info: About, cells: Sequence[Operator]) -> Table:
    """Every cell; rates by the caller's time."""
    columns = ["device", "implementation", "dtype", "case", "measured", "n", "GPU time", "predicted", "error"]
    columns += ["GB/s", "attained", "of roof", "FLOP/byte", "limited by"]
    named = [name for name in info.baselines if any(name in cell.speed_up for cell in cells)]
    columns += [f"times as fast as {name} (end-to-end / GPU)" for name in named]
    rows = [
        [
            cell.device,
            " ".join(filter(None, [cell.implementation, cell.scope])),
            cell.dtype,
            " ".join(filter(None, [cell.label, _preset(cell, cells)])),
            starred(duration(cell.latency_s), cell.samples),
            str(cell.samples or "-"),
            duration(cell.device_latency_s) if cell.device_latency_s else "-",
            duration(cell.sealed.latency_s) if cell.sealed and cell.sealed.latency_s else "-",
            signed(cell.sealed.latency_s / cell.latency_s - 1) if cell.sealed and cell.sealed.latency_s else "-",
            number(cell.bytes / cell.latency_s / 1e9),
            flops_rate(cell.attained_tflops) if cell.attained_tflops else "-",
            percent(cell.fraction_of_roof) if cell.fraction_of_roof else "-",
            number(cell.intensity_flops_per_byte) if cell.intensity_flops_per_byte else "-",
            cell.regime or "-",
            *(_faster(cell.speed_up[name]) if name in cell.speed_up else "-" for name in named),
        ]
        for cell in cells
    ]
    return filled(columns, rows, left=4)


def _faster(times: SpeedUp) -> str:
    return " / ".join(number(value) for value in (times.latency, times.device_latency) if value)


def _overview(cells: Sequence[Operator]) -> Table:
    """A row per device, implementation and scope: between which shares of the roof its cells lie."""
    groups: dict[tuple, list[Operator]] = {}
    for cell in cells:
        if cell.fraction_of_roof:
            groups.setdefault((cell.device, cell.implementation, cell.scope), []).append(cell)
    rows = []
    for (device, *way), mine in groups.items():
        regimes = [cell.regime for cell in mine if cell.regime]
        rows.append(
            [
                device,
                " ".join(filter(None, way)),
                str(len(mine)),
                spans_percent(cell.fraction_of_roof for cell in mine),
                ", ".join(f"{regimes.count(one)} {one}" for one in dict.fromkeys(regimes)) or "-",
            ]
        )
    return filled(["device", "implementation", "cells", "of roof", "regimes found"], rows, left=2)


# ---------------------------------------------------------------- spread


def _spread(roofline: Roofline, spreads: Spreads) -> Table:
    """Each ceiling of this run beside the known runs of such a card, the widest spread first."""
    rows = []
    for c in roofline.ceilings:
        value, figure = (c.burst_tflops or c.tflops, "burst") if c.kind == "compute" else (c.gb_per_s, "ceiling")
        known = spreads.get((c.device, c.name, figure), [])
        spread = with_known_runs(spreads, c.device, c.name, figure, value)
        if spread is not None and known:
            unit = flops_unit(c.name) if c.kind == "compute" else "GB/s"
            rows.append((spread, [f"{c.device} {c.name}", unit, number(value), ", ".join(map(number, known))]))
    rows.sort(key=lambda row: -row[0])
    columns = ["ceiling", "unit", "this run", "earlier runs", "spread"]
    return Table(columns, [[*words, percent(spread)] for spread, words in rows], 2)


def _spread_words(spread: Table) -> str:
    if not spread.rows:
        return "How far other runs of such a card lie is not known: `make spread` measures it."
    first, middle = spread.rows[0], spread.rows[len(spread.rows) // 2]
    return (
        f"Half of the ceilings differ by {middle[-1]} or less between this and earlier runs of such a card; "
        f"{first[0]} differs most, by {first[-1]}."
    )


# ---------------------------------------------------------------- lessons


def _lessons(
    roofline: Roofline,
    devices: Mapping[str, DeviceRecord],
    peaks: Sequence[PeakFlopsRecord],
) -> list[Lesson]:
    """What the run contradicts, and why, from the figures alone."""
    found = [
        _vendor(roofline, devices),
        _rule_of_thumb(roofline),
        _implementations(roofline),
        _waiting(roofline),
        _level(roofline),
        _prediction(roofline),
        _above(roofline),
        _doubts(peaks),
        _failed(roofline),
    ]
    return [lesson for lesson in found if lesson]


def _vendor(roofline: Roofline, devices: Mapping[str, DeviceRecord]) -> Lesson | None:
    known = [c for c in roofline.ceilings if c.kind == "compute" and c.sustained_tflops and c.vendor_tflops]
    if not known:
        return None
    c = min(known, key=lambda c: c.sustained_tflops / c.vendor_tflops)
    limits = limiting_words(c.sustained_limited_by or c.limited_by)
    why, promise = f", limited by: {limits}" if limits else "", promised(devices[c.device])
    burst = percent((c.burst_tflops or c.tflops) / c.vendor_tflops)
    words = (
        f"{c.name} sustains {number(c.sustained_tflops)} {flops_unit(c.name)}, "
        f"{percent(c.sustained_tflops / c.vendor_tflops)} of the {promise}'s {number(c.vendor_tflops)}{why}. "
        f"Its burst reaches {burst}."
    )
    return Lesson(f"The {'datasheet' if promise == 'vendor' else promise} is not what a long job gets", words)


def _rule_of_thumb(roofline: Roofline) -> Lesson | None:
    wrong = [e for e in roofline.entries if e.regime and e.textbook_regime and e.textbook_regime != e.regime]
    if not wrong:
        return None
    pairs: dict[tuple[str, str], list[Operator]] = {}
    for entry in wrong:
        pairs.setdefault((entry.textbook_regime, entry.regime), []).append(entry)
    told = [
        f"{counted(len(mine), 'cell')} that it calls {regime_words(named)} {'was' if len(mine) == 1 else 'were'} "
        f"{regime_words(regime)} ({listed(dict.fromkeys(e.implementation or e.operator for e in mine))} on "
        f"{listed(dict.fromkeys(e.device for e in mine))})"
        for (named, regime), mine in sorted(pairs.items(), key=lambda item: -len(item[1]))
    ]
    s = roofline.score
    words = (
        f"The rule of thumb names {s.textbook_regimes_right} of {s.textbook_cells} regimes, the sealed model "
        f"{s.regimes_right} of {s.cells}: {'; '.join(told)}."
    )
    return Lesson("Intensity alone does not name the bottleneck", words)


def _implementations(roofline: Roofline) -> Lesson | None:
    """The same case on the same device: how many times as long the slowest implementation takes."""
    groups: dict[tuple, list[Operator]] = {}
    for cell in roofline.operators:
        if cell.latency_s and not few(cell.samples):
            key = cell.device, cell.operator, cell.scope, cell.dtype, cell.preset, *sorted(cell.shape.items())
            groups.setdefault(key, []).append(cell)
    pairs = [
        (min(mine, key=lambda c: c.latency_s), max(mine, key=lambda c: c.latency_s))
        for mine in groups.values()
        if len(mine) > 1
    ]
    if not pairs:
        return None
    fast, slow = max(pairs, key=lambda pair: pair[1].latency_s / pair[0].latency_s)
    what = " ".join(filter(None, [fast.title or fast.operator, fast.scope, fast.dtype, fast.label]))
    words = (
        f"{what} on {fast.device} takes {duration(fast.latency_s)} by {fast.implementation} and "
        f"{duration(slow.latency_s)} by {slow.implementation}, of the same FLOPs and the same declared bytes."
    )
    return Lesson(f"The same work takes up to {number(slow.latency_s / fast.latency_s)} times as long", words)


def _waiting(roofline: Roofline) -> Lesson | None:
    """Where the caller waits longest for what the device does in little time."""
    known = [c for c in roofline.operators if c.device_latency_s and c.latency_s]
    waiting = [c for c in known if c.device_latency_s < c.latency_s / 2]
    if not waiting:
        return None
    c = max(waiting, key=lambda c: c.latency_s / c.device_latency_s)
    words = (
        f"In {len(waiting)} of {counted(len(known), 'cell')} on GPUs the device works for less than half of the time "
        f"that its caller waits. {c.full_name} on {c.device} takes its caller "
        f"{duration(c.latency_s)}, of which the device works {duration(c.device_latency_s)}: faster memory would not "
        f"help{f'; {listed(c.remedies)} would' if c.remedies else ''}."
    )
    return Lesson("Small work waits for its launches", words)


def _level(roofline: Roofline) -> Lesson | None:
    """A cache that ends before the capacity that the device reports."""
    known = [one for one in roofline.levels if one.knee_bytes and one.reported_bytes and one.name]
    short = [one for one in known if one.knee_bytes < 0.95 * one.reported_bytes]
    if not short:
        return None
    one = min(short, key=lambda level: level.knee_bytes / level.reported_bytes)
    words = (
        f"{level_name(one.name, one.knee_bytes)} of {one.device} is reported as {capacity(one.reported_bytes)}; its "
        f"bandwidth falls from {capacity(one.knee_bytes)} on, {percent(one.knee_bytes / one.reported_bytes)} of that."
    )
    return Lesson("A cache ends before its capacity", words)


def _prediction(roofline: Roofline) -> Lesson | None:
    worst = _worst(roofline.entries)[:1]
    if not worst or worst[0].cause == "close":
        return None
    miss = _miss(worst[0], roofline.titles)
    words = f"{miss.cell}: predicted {miss.predicted}, measured {miss.measured} ({miss.error}), since {miss.why}."
    return Lesson("Where the model was most wrong", words, again=True)


def _above(roofline: Roofline) -> Lesson | None:
    words = " ".join(above_roof_words(one) for one in roofline.above_roof)
    return Lesson("Above its roof", words) if words else None


def _doubts(peaks: Iterable[PeakFlopsRecord]) -> Lesson | None:
    told = [f"{r.device} {r.dtype}: {doubt.rstrip('.')}." for r in peaks if r.peak for doubt in r.peak.doubts]
    return Lesson("What does not fit", " ".join(told)) if told else None


def _failed(roofline: Roofline) -> Lesson | None:
    told = [
        f"{one.device or 'all devices'}: {one.reason}. Check: {one.check}."
        for one in roofline.checks
        if one.result == "fail"
    ]
    return Lesson("What the run itself fails", " ".join(told), again=True) if told else None


# ---------------------------------------------------------------- reproduce


def _one_cell(found: Results, device: str) -> str:
    """The record of an operator as `make cell` names it; empty where none was measured."""
    paths = [path for path, record in found.measured if record.kind == "operator"]
    mine = [path for path in paths if path.startswith(f"{device}/")] or paths
    return mine[-1].removesuffix(".json") if mine else ""
