"""What the terminal shows after a run: the ceilings, the operators under them, the checklist."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofline.core.formatting import duration, number, percent, starred
from roofline.core.statistics import half_width
from roofline.core.terms import KINDS
from roofline.report import peer_paths
from roofline.report.predictions import score_words
from roofline.report.tables import (
    DOUBTFUL,
    Row,
    above_roof,
    compute_rows,
    level_rows,
    memory_rows,
    rank_words,
    remarks,
    within_run,
    without_roof,
)
from roofline.table.rows import Cell, CheckResult, Roofline, passed
from roofline.table.scores import score

WIDTH = 100  # columns
ABREAST = 4
LONGEST_NAME = 37  # of an operator listed one by one
BOUND_BY = {"overhead": "o", "memory": "m", "compute": "c", "implementation": "i"}
MEASURED_AGAIN = "To measure again what was disturbed, on an idle machine"
LIMITS = ", ".join(f"{regime} ({letter})" for regime, letter in BOUND_BY.items())


def summary(roofline: Roofline, arguments: str = "") -> str:
    """`arguments`, the run's ARGS, are for the next one too."""
    lines = [""]
    for name, device in roofline.devices.items():
        told = [*_ceilings(name, roofline), *_operators(name, roofline)]
        told += [part for line in without_roof(roofline, name) for part in _wrapped(f"  {line}", 4)]
        told += [f"  {DOUBTFUL}"] if any("*" in line for line in told) else []
        lines += [f"{name}: {device.name}", *told, *_above_roof(name, roofline), *_predictions(name, roofline), ""]
    lines += [passed(roofline.checks), *_checks(roofline.checks), ""]
    if roofline.repeatable:  # not wrapped: it is to be pasted
        lines += [f"{MEASURED_AGAIN}:", f"  {make_again(arguments)}", ""]
    return "\n".join(lines)


def make_again(arguments: str) -> str:
    """The command that measures a run's disturbed records again, with its ARGS."""
    return shlex.join(["make", "AGAIN=1", *([f"ARGS={arguments.replace('$', '$$')}"] if arguments else [])])


def _ceilings(device: str, roofline: Roofline) -> list[str]:
    compute, memory = compute_rows(roofline, device), memory_rows(roofline, device)
    promise = KINDS[roofline.devices[device].kind].peaks_by
    lines = _table("TFLOPS", promise, compute) + _table("GB/s", "vendor", memory) + _levels(device, roofline)
    lines += [part for words in peer_paths.sentences(roofline, device) for part in _wrapped(f"  {words}", 4)]
    lines += [part for part in _wrapped(f"  {rank_words(roofline, device)}", 4) if part.strip()]
    return lines + _skipped(device, roofline)


def _skipped(device: str, roofline: Roofline) -> list[str]:
    """What was asked for and the device lacks, each reason once."""
    reasons: dict[str, list[str]] = {}
    for skip in roofline.skipped:
        if skip.device == device:
            asked = skip.what != "operation" and skip.dtype  # else the reason names what an operation lacks
            reason = skip.reason.replace(f" {asked} ", " such ") if asked else skip.reason
            reasons.setdefault(reason, []).append(skip.name or skip.dtype)
    return [
        line for reason, names in reasons.items() for line in _wrapped(f"  skipped: {', '.join(names)} ({reason})", 4)
    ]


class _Column(NamedTuple):
    """Of a table of ceilings: a field of its rows, and two lines of its head."""

    field: str
    head: tuple[str, str]


COLUMNS = (
    _Column("measured", ("", "burst")),
    _Column("samples", ("", "n")),
    _Column("interval", ("within-run", "95 %")),
    _Column("sustained", ("", "sustained")),
    _Column("vendor", ("", "vendor")),  # or what stands for it
    _Column("of_vendor", ("of", "vendor")),
    _Column("of_clock", ("of", "clock")),
)


def _table(unit: str, promise: str, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    if unit == "TFLOPS":
        names = [f"{row.name}, TOPS" if row.unit == "TOPS" else row.name for row in rows]
    else:
        names = [row.name for row in rows]
    named = {"vendor": promise, "burst": "burst" if unit == "TFLOPS" else "measured"}
    columns = [("", unit), *((first, named.get(last, last)) for first, last in (c.head for c in COLUMNS))]
    cells = [[name, *(getattr(row, c.field) for c in COLUMNS)] for name, row in zip(names, rows, strict=True)]
    # Columns in which a device has nothing are left out.
    shown = [place for place in range(len(columns)) if any(row[place] for row in cells)]
    widths = [max(len(line[place]) for line in [*cells, *zip(*columns, strict=True)]) for place in shown]

    def line(texts: Sequence[str], last: str) -> str:
        first, *others = (f"{texts[p]:>{w}}" for p, w in zip(shown, widths, strict=True))
        return "  ".join(["", first.strip().ljust(widths[0]), *others, last])

    heads = [list(head) for head in zip(*columns, strict=True)]
    lines = [line(heads[0], "").rstrip(), line(heads[1], "limited by")]
    indent = len(lines[1]) - len("limited by")
    limits = [row.limited_by.replace("sustained: ", "load: ") for row in rows]  # or they would not fit
    return lines + [
        part for limit, texts in zip(limits, cells, strict=True) for part in _wrapped(line(texts, limit), indent)
    ]


def _levels(device: str, roofline: Roofline) -> list[str]:
    rows = level_rows(roofline, device)
    head = f"  {'found by the sweep':<18} {'GB/s':>8} {'knee':>14} {'reported':>9}  series"
    lines = [
        f"  {row.name:<18} {row.gb_per_s:>8} {row.knee or 'none seen':>14} {row.reported or '-':>9}  {row.series}"
        for row in rows
    ]
    return [head, *(part for line in lines for part in _wrapped(line, 55))] if rows else []


def _predictions(device: str, roofline: Roofline) -> list[str]:
    found = score(operator for operator in roofline.operators if operator.device == device)
    return _wrapped(f"  Predictions: {score_words(found)}", 4) if found.cells else []


def _above_roof(device: str, roofline: Roofline) -> list[str]:
    """Which operators are above their roofs, and what is wrong."""
    above = [cell for cell in roofline.operators if cell.device == device and cell.above_roof]
    return [line for cell in above for line in _wrapped(f"  Above its roof: {above_roof(cell, roofline)}", 4)]


def _wrapped(line: str, indent: int) -> list[str]:
    """The line within WIDTH columns; what is over stands below, indented as far as its first so many columns."""
    first, *others = textwrap.wrap(line[indent:], WIDTH - indent) or [""]
    return [(line[:indent] + first).rstrip(), *(" " * indent + other for other in others)]


def _operators(device: str, roofline: Roofline) -> list[str]:
    """One by one where each cell has one implementation and a name that fits; else a table for each operator and
    preset."""
    found = [operator for operator in roofline.operators if operator.device == device]
    tables: dict[tuple, list[Cell]] = {}
    for operator in found:
        tables.setdefault((operator.operator, operator.preset), []).append(operator)
    single = [
        cells
        for cells in tables.values()
        if len(cells) == len({_cell(cell, roofline) for cell in cells})
        and max(len(roofline.full_name(one)) for one in cells) <= LONGEST_NAME
    ]
    lines = []
    if single:
        lines = [f"  {'':{LONGEST_NAME}} {'':>30}  within-run"]
        lines += [
            f"  {'operator':{LONGEST_NAME}} {'latency':>9} {'TFLOPS':>7} {'of roof':>8} {'n':>4} {'95 %':>10}  bound by"
        ]
        lines += [_operator_line(cell, roofline.full_name(cell)) for cells in single for cell in cells]
        ceilings = [ceiling for ceiling in roofline.ceilings if ceiling.device == device]
        lines += [line for words in remarks(ceilings) for line in _wrapped(f"  {words}", 4)]
    for (operator, preset), cells in tables.items():
        if cells not in single:
            lines += _table_of(", ".join(filter(None, [roofline.title(operator), preset])), cells, roofline)
    return lines


def _cell(cell: Cell, roofline: Roofline) -> tuple[str, str]:
    return cell.dtype, roofline.label(cell) or roofline.full_name(cell)


def _table_of(title: str, cells: list[Cell], roofline: Roofline) -> list[str]:
    """A row per dtype and case, a column per implementation and scope, as many abreast as have room."""
    ways = list(dict.fromkeys(_way(cell) for cell in cells))
    rows: dict[tuple, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(_cell(cell, roofline), {})[_way(cell)] = cell
    width = max(len(f"{dtype} {label}") for dtype, label in rows)
    lines = _wrapped(f"  {title}: end-to-end time, of roof, limited by {LIMITS}; {within_run(cells)}", 4)
    abreast = max(1, min(ABREAST, (WIDTH - width - 2) // 19))
    dtypes = list(dict.fromkeys(cell.dtype for cell in cells))
    order = sorted(rows, key=lambda row: (dtypes.index(row[0]), min(cell.bytes for cell in rows[row].values())))
    for first in range(0, len(ways), abreast):
        shown = ways[first : first + abreast]
        lines.append(f"  {'':<{width}}" + "".join(f" {way:>18}" for way in shown))
        for dtype, label in order:
            figures = "".join(f" {_figures(rows[dtype, label].get(way)):>18}" for way in shown)
            lines.append(f"  {f'{dtype} {label}':<{width}}{figures}")
    return [line.rstrip() for line in lines]


def _way(cell: Cell) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope if cell.scope != "core" else None]))


def _figures(cell: Cell | None) -> str:
    if cell is None or not cell.cpu_time_s:
        return "-"
    share = percent(cell.share) if cell.share is not None else "-"
    return f"{starred(duration(cell.cpu_time_s), cell.doubt)} {share:>7} {BOUND_BY.get(cell.regime, '-')}"


def _operator_line(o: Cell, name: str) -> str:
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    latency = starred(duration(o.cpu_time_s), o.doubt) if o.cpu_time_s else "-"
    interval = f"± {percent(half_width(o.cpu_time_s, o.cpu_time_ci95_s))}" if o.cpu_time_ci95_s else "none"
    attained = number(o.attained_tflops) if o.attained_tflops is not None else "-"
    share = percent(o.share) if o.share is not None else "-"
    figures = f"{latency:>9} {attained:>7} {share:>8} {o.samples or '-':>4} {interval:>10}"
    return f"  {name:{LONGEST_NAME}} {figures}  {o.regime or '-'}"


def _checks(checks: Iterable[CheckResult]) -> list[str]:
    """Those that failed, and notes, with the reason."""
    words = {"note": "note", "fail": "FAIL"}
    told = [f"  {words[c.result]}  {c.device}: {c.check} ({c.reason})" for c in checks if c.result in words]
    return [line for one in told for line in _wrapped(one, 8)]
