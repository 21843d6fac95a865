"""Predictors of times without the model, next to the sealed model on the same cells.

A known run is one of reference/cards, of like measuring method and effort; `earlier` ones were before this run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import NamedTuple

from roofline.core.formatting import count_words, join_words
from roofline.core.grouping import group_by
from roofline.records.cards import CardRun, OtherModel
from roofline.records.seal_records import CellPrediction
from roofline.table.quantities import cell_key
from roofline.table.rows import TIMES, Baseline, CellRow, Predictor, Time
from roofline.table.run_records import Results
from roofline.table.scores import promised_roof_s, score_times, select_judged
from roofline.table.standing import select_comparable_runs

FEWEST_FIT_CELLS = 3  # of an implementation: two constants meet two times exactly
US = 1e-6  # of the times in known runs, in seconds
Seconds = Mapping[str, float]  # times by their keys in known runs


class DeviceRuns(NamedTuple):
    """The known runs that the times of a device are compared with."""

    earlier: Sequence[CardRun]  # of its model of card
    known: Sequence[CardRun]  # the same and later ones
    other_model: OtherModel | None  # with earlier runs alone


def select_runs(results: Results, effort: str | None) -> dict[str, DeviceRuns]:
    """Return the known runs that each device of a run of this effort is compared with."""
    runs = {}
    for name, device in results.devices.items():
        cards, other = results.known_cards.devices.get(name), results.known_cards.other_models.get(name)
        comparable = select_comparable_runs(device, cards.runs if cards else [], effort)
        known = sorted([*comparable.of_this_card, *comparable.of_others], key=lambda run: run.queried_at)
        earlier = [run for run in known if run.queried_at < device.queried_at]
        if other:
            alike = [run for run in other.runs if run.effort == effort and run.queried_at < device.queried_at]
            other = other.model_copy(update={"runs": alike})
        runs[name] = DeviceRuns(earlier, known, other)
    return runs


def compare_with_baselines(cells: Iterable[CellRow], runs: Mapping[str, DeviceRuns]) -> list[Baseline]:
    """Return a row for each time and predictor of each device, over those of the judged cells that it predicts.

    `runs` has the known runs of each device.
    """
    by_device = group_by(select_judged(cells), lambda cell: cell.device)
    times = [(device, judged, time) for device, judged in by_device.items() for time in TIMES]
    return [row for device, judged, time in times for row in _compare(device, judged, time, runs[device])]


def _compare(device: str, judged: Iterable[CellRow], time: Time, runs: DeviceRuns) -> Iterator[Baseline]:
    cells = {f"{cell_key(cell)}/{time}": cell for cell in judged}
    measured, sealed = _seconds(cells, time), _seconds({key: cell.sealed for key, cell in cells.items()}, time)
    by_roof = _seconds({key: cell.baseline_prediction for key, cell in cells.items()}, time)
    predictions: list[tuple[Predictor, str | None, Seconds, Seconds]] = [
        ("roof", None, by_roof, measured),
        ("fit", None, _fit(cells, measured), measured),
        ("earlier_runs", _count_runs(runs.earlier, cells), _medians(runs.earlier), measured),
    ]
    if other := runs.other_model:
        words = f"{_count_runs(other.runs, cells)} of {other.name}"
        predictions.append(("other_model", words, _shift(cells, other), measured))
    if pair := _find_pair(runs.known, cells):
        card_ids = dict.fromkeys(run.card_id[:6] for run in pair)
        words = f"2 runs of {count_words(len(card_ids), 'card')}, {join_words(card_ids)}"
        predictions.append(("repeat", words, _medians(pair[:1]), _medians(pair[1:])))
    for predictor, basis, predicted, actual in predictions:
        keys = sealed.keys() & measured.keys() & predicted.keys() & actual.keys()
        if keys:
            error, close = score_times([(predicted[key], actual[key]) for key in keys])
            model_error, model_close = score_times([(sealed[key], measured[key]) for key in keys])
            yield Baseline(
                device=device,
                time=time,
                predictor=predictor,
                runs=basis,
                cell_count=len(keys),
                median_error=error,
                times_close=close,
                model_median_error=model_error,
                model_times_close=model_close,
            )


def _seconds(cells: Mapping[str, CellRow | CellPrediction | None], time: Time) -> Seconds:
    """The times that are known, by the same keys."""
    times = {key: getattr(cell, f"{time}_s", None) for key, cell in cells.items()}
    return {key: seconds for key, seconds in times.items() if seconds}


def _fit(cells: Mapping[str, CellRow], measured: Seconds) -> Seconds:
    """Times by a + b x promised roof; a and b of each implementation by least squares of the relative errors."""
    fitted: dict[str, float] = {}
    roofs = {key: cells[key].promised_roof_s for key in measured}
    known = [(key, roof_s) for key, roof_s in roofs.items() if roof_s is not None]
    for points in group_by(known, lambda point: (cells[point[0]].operator, cells[point[0]].implementation)).values():
        if len(points) >= FEWEST_FIT_CELLS:
            weights = [measured[key] ** -2 for key, _ in points]
            mean_roof_s = fmean([roof_s for _, roof_s in points], weights)
            mean_time_s = fmean([measured[key] for key, _ in points], weights)
            covariance = fmean([(roof_s - mean_roof_s) * measured[key] for key, roof_s in points], weights)
            variance = fmean([(roof_s - mean_roof_s) ** 2 for _, roof_s in points], weights)
            slope = covariance / variance if variance else 0.0
            fitted |= {key: mean_time_s + slope * (roof_s - mean_roof_s) for key, roof_s in points}
    return fitted


def _medians(runs: Iterable[CardRun]) -> Seconds:
    """The median of each time over the runs that have it."""
    values: dict[str, list[float]] = {}
    for run in runs:
        for key, value in run.values.items():
            values.setdefault(key, []).append(US * value)
    return {key: median(seconds) for key, seconds in values.items()}


def _shift(cells: Mapping[str, CellRow], other: OtherModel) -> Seconds:
    """The times of another model, plus the promised roofs here less those there."""
    times, shifted = _medians(other.runs), {}
    for key, cell in cells.items():
        tflops = other.promised_tflops.get(cell.compute_ceiling or "")
        if key in times and tflops and cell.promised_roof_s is not None:
            roof_there_s = promised_roof_s(cell.flops, cell.bytes, (tflops, other.promised_gb_per_s))
            shifted[key] = times[key] + cell.promised_roof_s - roof_there_s
    return shifted


def _find_pair(runs: Iterable[CardRun], cells: Mapping[str, CellRow]) -> Sequence[CardRun]:
    """The two runs that share most cells: of one card, or if no card has two, of two cards; else none.

    Of several such pairs it is the middle one by the number of times that agree.
    """

    def count_shared(pair: Sequence[CardRun]) -> int:
        return len(cells.keys() & pair[0].values.keys() & pair[1].values.keys())

    def count_close(pair: Sequence[CardRun]) -> int:
        first, second = _medians(pair[:1]), _medians(pair[1:])
        return score_times([(first[key], second[key]) for key in cells.keys() & first.keys() & second.keys()])[1]

    pairs = [pair for pair in combinations(runs, 2) if count_shared(pair)]
    candidates = [pair for pair in pairs if pair[0].card_id == pair[1].card_id] or pairs
    most_shared = max(map(count_shared, candidates), default=0)
    alike = [pair for pair in candidates if count_shared(pair) == most_shared]
    return sorted(alike, key=count_close)[len(alike) // 2] if alike else ()


def _count_runs(runs: Iterable[CardRun], cells: Mapping[str, CellRow]) -> str:
    """The number of runs that have any of these times, in words."""
    return count_words(sum(not cells.keys().isdisjoint(run.values) for run in runs), "run")
