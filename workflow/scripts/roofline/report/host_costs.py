"""What work costs a host, as it was measured before its operators: a table of every block."""

from collections.abc import Iterable

from roofline.analysis.table import HostCostEntry
from roofline.core.formatting import duration, number
from roofline.devices import kind_of
from roofline.operators.constants import meaning
from roofline.report.markdown import Table, filled

COLUMNS = ("device", "cost", "what it is", "cores, threads, rows or arguments", "n", "slowest / fastest", "each")


def table(entries: Iterable[HostCostEntry]) -> Table:
    rows = [
        [
            one.device,
            one.name,
            meaning(one.name, kind_of(one.device)),
            str(one.count),
            str(one.samples),
            number(one.slowest_over_fastest),
            _small(one.each_s),
        ]
        for one in entries
    ]
    return filled(COLUMNS, rows, left=3)


def _small(seconds: float) -> str:
    return duration(seconds) if seconds >= 1e-9 else f"{number(seconds * 1e12)} ps"
