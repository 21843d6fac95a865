"""What a run's report says, in which order, from which rows of the table. Every page is a template of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from roofline.core.formatting import capacity, flops_unit, number, percent, starred
from roofline.core.terms import KINDS, in_order
from roofline.report import counters, peer_paths, predictions
from roofline.report.answers import Answer
from roofline.report.charts import (
    instruction_chart,
    load_chart,
    prediction_chart,
    roofline_chart,
    symbols_of,
)
from roofline.report.efficiency import efficiency, operations
from roofline.report.findings import Finding, findings
from roofline.report.gpu_vs_cpu import gpu_vs_cpu
from roofline.report.instruction_words import paragraph, walls
from roofline.report.markdown import Table
from roofline.report.operator_parts import OperatorPart, operator_part
from roofline.report.predictions import Miss, Section, miss, score_words, worst
from roofline.report.pyramid import Layer, pyramid
from roofline.report.tables import fail_lines, main_memory_ceiling, promised, rank_words
from roofline.report.throughput import ceiling_tables, throughput
from roofline.table.rows import CheckResult, Device, NotCounted, Roofline, passed
from roofline.table.scores import score

HEADLINE = ("fp16", "bf16", "fp32")  # the dtype whose ceiling stands at the top


@dataclass(frozen=True)
class Figure:
    """One number at the top."""

    value: str
    unit: str
    words: str


@dataclass(frozen=True)
class Instructions:
    """One GPU's instruction roofline."""

    device: str
    anchor: str
    words: list[str]
    chart: dict | None


@dataclass(frozen=True)
class DeviceReport:
    """One device: its verdict first."""

    name: str
    model: str
    is_cpu: bool
    facts: list[tuple[str, str]]
    checks: list[CheckResult]
    again: bool  # whether `make AGAIN=1` would measure any of its records
    throughput: Answer
    efficiency: Answer | None
    figures: list[Figure]
    ceilings: list[Table]
    skipped: list[str]
    pyramid: list[Layer]

    @property
    def failed(self) -> list[CheckResult]:
        return [one for one in self.checks if one.result == "fail"]

    @property
    def passed(self) -> str:
        return passed(self.checks)

    @property
    def verdict(self) -> list[Answer]:
        return [one for one in (self.throughput, self.efficiency) if one]


@dataclass(frozen=True)
class Report:
    devices: list[DeviceReport]  # GPUs first
    duplicates: list[str]  # devices of a model of which another comes first: ROOFLINE.md has that one's tables alone
    checks: list[CheckResult]
    passed: str
    fails: list[str]  # what makes figures doubtful, a line each
    others: list[str]  # where each stands among others of its model and of the host, in a sentence
    between: list[str]  # how the host's GPUs reach one another
    gpu_vs_cpu: Answer
    operations: Table  # the user's
    score: str
    worst: list[Miss]
    predictors: Table
    predictions: list[Section]
    seals: dict[str, Device]
    operators: list[OperatorPart]
    findings: list[Finding]
    cell: str  # one to reproduce
    hashes: list[tuple[str, str]]
    counters: list[str]  # what was counted and what was not; empty where nothing was tried
    counted: Table  # declared and counted, of every profiled cell
    counted_most: Table  # of each implementation the cell that tells most
    not_counted: list[NotCounted]
    instructions: list[Instructions]
    charts: dict[str, dict]  # by the id of the element that each is drawn in
    filters: dict[str, list[str]]
    colours: list[str]  # dtypes
    symbols: dict[str, str]  # of the operators
    starred: bool  # whether a figure is not to be relied on

    @property
    def main(self) -> DeviceReport:
        return self.devices[0]

    @property
    def gpus(self) -> list[DeviceReport]:
        """All but a CPU; the CPU where there is nothing else."""
        return [one for one in self.devices if not one.is_cpu] or self.devices

    @property
    def cpu(self) -> DeviceReport | None:
        """Where it has a part of its own."""
        return next((one for one in self.devices if one not in self.gpus), None)


def report(table: Roofline, sha256: Mapping[str, str]) -> Report:
    """`sha256` is of the run's files, by their paths below results/."""
    devices = dict(in_order(table.devices.items(), lambda item: item[1].kind))
    models = [device.name for device in devices.values()]
    duplicates = [name for place, name in enumerate(devices) if models[place] in models[:place]]
    missed = worst(table.entries)
    cells = [cell for cell in table.operators if cell.fraction_of_roof is not None or cell.cpu_time_s]
    symbols = symbols_of(cell.operator for cell in table.operators)
    chart = roofline_chart(table)
    operators = [part for info in table.operator_info.values() if (part := operator_part(info, table, duplicates))]
    instructions = [
        Instructions(
            device=one.device,
            anchor=f"instructions-{one.device}",
            words=[words for words in (paragraph(one), walls(one)) if words],
            chart=instruction_chart(one, table),
        )
        for one in table.instructions
    ]
    charts = {
        "roofline": chart,
        "predictions": prediction_chart(table, missed, symbols),
        "load": load_chart(table),
        **{f"{part.anchor}-chart": part.chart for part in operators},
        **{one.anchor: one.chart for one in instructions},
    }
    return Report(
        devices=[_device(name, table) for name in devices],
        duplicates=duplicates,
        checks=table.checks,
        passed=passed(table.checks),
        fails=fail_lines(table.faults),
        others=[words for name in devices if (words := rank_words(table, name))],
        between=[words for name in devices for words in peer_paths.sentences(table, name)],
        gpu_vs_cpu=gpu_vs_cpu(table),
        operations=operations(table),
        score=score_words(table.score) if table.score.cells else "",
        worst=[miss(entry, table) for entry in missed],
        predictors=predictions.predictors(table.score),
        predictions=predictions.sections(table),
        seals=table.devices,
        operators=operators,
        findings=findings(table),
        cell=_one_cell(table, next(iter(devices))),
        hashes=[one for one in sorted(sha256.items()) if "/" in one[0] and one[0].endswith(".json")],
        counters=counters.sentences(table),
        counted=counters.table_of(table.counted, table),
        counted_most=counters.table_of(counters.telling(table.counted), table),
        not_counted=table.not_counted,
        instructions=instructions,
        charts={name: one for name, one in charts.items() if one},
        filters=_filters(list(devices), cells, table, chart),
        colours=list(dict.fromkeys(cell.dtype for cell in cells)),
        symbols=symbols,
        starred=any(one.doubt for one in [*table.ceilings, *cells]),
    )


def _device(name: str, table: Roofline) -> DeviceReport:
    device = table.devices[name]
    return DeviceReport(
        name=name,
        model=device.name,
        is_cpu=not KINDS[device.kind].accelerator,
        facts=_facts(name, device),
        checks=[one for one in table.checks if one.device == name],
        again=any(record.startswith(f"{name}/") for record in table.repeatable),
        throughput=throughput(name, table),
        efficiency=efficiency(name, table),
        figures=_figures(table, name),
        ceilings=ceiling_tables(table, name),
        skipped=[f"{one.name or one.dtype}: {one.reason}" for one in table.skipped if one.device == name],
        pyramid=pyramid(name, table),
    )


def _facts(name: str, device: Device) -> list[tuple[str, str]]:
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


def _figures(table: Roofline, name: str) -> list[Figure]:
    promise = f"the {promised(table.devices[name])}'s"
    mine = [c for c in table.ceilings if c.device == name]
    compute = {c.name: c for c in mine if c.kind == "compute"}
    ceiling = next((compute[name] for name in HEADLINE if name in compute), None)
    memory = main_memory_ceiling(mine, ())  # the same one whatever operators ran
    figures = []
    if ceiling:
        words = [f"{ceiling.name} burst"]
        if ceiling.datasheet_tflops and not ceiling.doubt:
            least = "at most " if ceiling.datasheet_at_least else ""
            words.append(f"{least}{percent(ceiling.burst_tflops / ceiling.datasheet_tflops)} of {promise}")
        words += [f"{number(ceiling.sustained_tflops)} sustained"] if ceiling.sustained_tflops else []
        value = starred(number(ceiling.burst_tflops), ceiling.doubt)
        figures.append(Figure(value, flops_unit(ceiling.name), " · ".join(words)))
    if memory:
        words = [memory.name]
        words += (
            [f"{percent(memory.fraction_of_datasheet)} of {promise}"]
            if memory.fraction_of_datasheet and not memory.doubt
            else []
        )
        words += [f"do not rely on it: {memory.doubt}"] if memory.doubt else []
        figures.append(Figure(starred(number(memory.gb_per_s), memory.doubt), "GB/s", " · ".join(words)))
    right = score(cell for cell in table.operators if cell.device == name)
    if right.cells:
        words = f"cells on {name} predicted before they were timed: regime right, time within a factor of two"
        figures.append(Figure(str(right.both_right), f"of {right.cells}", words))
    return figures


def _filters(devices: list[str], cells: list, table: Roofline, chart: dict | None) -> dict[str, list[str]]:
    kinds = {trace["meta"]["kind"] for trace in chart["data"] if trace["x"]} if chart else set()
    of_ceilings = [c.dtype or c.name for c in table.ceilings if c.kind == "compute"]
    return {
        "device": devices,
        "operator": list(dict.fromkeys(cell.operator for cell in cells)),
        "dtype": list(dict.fromkeys([*(cell.dtype for cell in cells), *of_ceilings])),
        "also": [kind for kind in ("sustained", "predicted") if kind in kinds],
    }


def _one_cell(table: Roofline, device: str) -> str:
    """The record of an operator as `make cell` names it; empty where none was measured."""
    of_ceilings = {one.record for one in table.ceilings}
    paths = [cell.record for cell in table.entries if cell.record not in of_ceilings]
    mine = [path for path in paths if path.startswith(f"{device}/")] or paths
    return mine[-1].removesuffix(".json") if mine else ""
