"""How far the ceilings of several runs lie apart, beside what each run thinks of its own precision."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from roofline.analysis import distribution
from roofline.core.formatting import flops_unit
from roofline.core.statistics import half_width, median
from roofline.records.base import CorruptRecord, Interval, NotNegative, Positive, Record, read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.distribution import Distribution
from roofline.records.memory import BandwidthRecord

Spreads = Mapping[tuple[str, str, str], list[float]]  # what known runs found, by device, name and figure


class CeilingSpread(Record):
    """One figure of a ceiling over the runs."""

    device: str
    name: str
    figure: Literal["ceiling", "burst", "sustained"] = Field(description="ceiling: what roofline.json has")
    unit: Literal["TFLOPS", "TOPS", "GB/s"]
    runs: list[Positive | None] = Field(
        description="in the order of the runs; null where a run did not find it, or was disturbed"
    )
    median: Positive
    spread: NotNegative | None = Field(description="(max - min) / median; null where fewer than two runs found it")
    ci95_relative: NotNegative | None = Field(
        description="how far a run's own 95 % interval reaches, over its figure; the widest, null where none has one"
    )


class SpreadRecord(Record):
    """results/spread.json: the ceilings of several runs, each in processes of its own."""

    schema_version: Literal[1] = 1
    kind: Literal["spread"] = "spread"
    started_at: str
    ended_at: str
    devices: dict[str, str] = Field(default={}, description="the name of each device")
    commit: str | None = Field(default=None, description="of this project; null if not known")
    left_out: list[str] = Field(default=[], description="records of which a check failed: a busy host, say")
    ceilings: list[CeilingSpread]


class Figure(NamedTuple):
    """One figure of a ceiling as one run found it."""

    device: str
    name: str
    figure: str
    unit: str
    value: float
    ci95: Interval | None


def figures(records: Iterable[PeakFlopsRecord | BandwidthRecord]) -> list[Figure]:
    """Every figure of the ceilings that one run measured; what a device lacks has none."""
    found = []
    for record in records:
        if isinstance(record, BandwidthRecord):
            found += [Figure(record.device, b.name, "ceiling", "GB/s", b.gb_per_s, b.ci95) for b in record.bandwidths]
        elif record.peak:
            peak, key, unit = record.peak, (record.device, record.dtype), flops_unit(record.dtype)
            found.append(Figure(*key, "ceiling", unit, peak.tflops, peak.ci95))
            found.append(Figure(*key, "burst", unit, peak.burst_tflops, peak.burst.ci95))
            if peak.sustained_tflops:
                ci95 = peak.sustained.ci95 if peak.sustained else None
                found.append(Figure(*key, "sustained", unit, peak.sustained_tflops, ci95))
    return found


def compare(runs: Sequence[Sequence[Figure]]) -> list[CeilingSpread]:
    """The figures of the runs side by side, in the order in which they first occur."""
    by_key = [{figure[:4]: figure for figure in run} for run in runs]
    compared = []
    for key in dict.fromkeys(key for run in by_key for key in run):
        found = [run.get(key) for run in by_key]
        known = [figure for figure in found if figure]
        values = [figure.value for figure in known]
        widths = [half_width(figure.value, figure.ci95) for figure in known if figure.ci95]
        device, name, figure, unit = key
        compared.append(
            CeilingSpread(
                device=device,
                name=name,
                figure=figure,
                unit=unit,
                runs=[figure and figure.value for figure in found],
                median=median(values),
                spread=relative_spread(values),
                ci95_relative=max(widths, default=None),
            )
        )
    return compared


def between_runs(
    devices: Mapping[str, str], distributions: Mapping[str, Distribution], own: Path | None = None
) -> Spreads:
    """What known runs found for each ceiling of these devices (names by key). What is not known is missing.

    By a spread.json of one's own, where that is of a device of the same name, else by the runs of one card among those
    that were known of its model when the run was made.
    """
    known, record = {}, _spread_record(own)
    for device, name in devices.items():
        there = [key for key, other in record.devices.items() if other == name] if record else []
        if there:
            mine = [one for one in record.ceilings if one.device == there[0] and one.spread is not None]
            known |= {(device, one.name, one.figure): [run for run in one.runs if run] for one in mine}
        elif others := distributions.get(device):
            known |= {(device, *of): runs for of, runs in _runs_of_one_card(others).items()}
    return known


def _runs_of_one_card(found: Distribution) -> dict[tuple[str, str], list[float]]:
    """By a ceiling's name and figure, what the runs of the card with the most of them gave."""
    figures = {"burst": "burst", "sustained": "sustained"}
    runs = {
        (one.key.partition("/")[0], figures.get(one.kind, "ceiling")): max(
            distribution.by_card(found.runs, one.key), key=len
        )
        for one in found.quantities
        if one.kind in distribution.OF_CARD
    }
    return {of: values for of, values in runs.items() if len(values) > 1}


def known_spread(known: Spreads, device: str, name: str, figure: str) -> float | None:
    """Of one card's runs. This run is not among them: it may be of another card. None where none is known."""
    return relative_spread(known.get((device, name, figure), []))


def _spread_record(path: Path | None) -> SpreadRecord | None:
    try:
        return read(SpreadRecord, path) if path else None
    except (OSError, CorruptRecord):
        return None


def relative_spread(values: Sequence[float]) -> float | None:
    """(max - min) / median of positive values; None for fewer than two."""
    return (max(values) - min(values)) / median(values) if len(values) > 1 else None


def widest(ceilings: Iterable[CeilingSpread]) -> CeilingSpread | None:
    """The figure that spreads most; None where no two runs found the same one."""
    known = [ceiling for ceiling in ceilings if ceiling.spread is not None]
    return max(known, key=lambda ceiling: ceiling.spread, default=None)
