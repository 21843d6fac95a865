"""How far known runs of one card lie apart in each ceiling."""

from collections.abc import Mapping, Sequence

from roofline.analysis import distribution
from roofline.core.statistics import median
from roofline.records.distribution import Distribution

Spreads = Mapping[tuple[str, str, str], list[float]]  # what known runs found, by device, name and figure


def between_runs(distributions: Mapping[str, Distribution]) -> Spreads:
    """What known runs found for each ceiling of these devices, by the runs of one card among those that were known of
    its model when the run was made. What is not known is missing."""
    return {
        (device, *of): runs for device, known in distributions.items() for of, runs in _runs_of_one_card(known).items()
    }


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


def relative_spread(values: Sequence[float]) -> float | None:
    """(max - min) / median of positive values; None for fewer than two."""
    return (max(values) - min(values)) / median(values) if len(values) > 1 else None
