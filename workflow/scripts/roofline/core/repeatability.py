"""When a measured figure is not to be relied on: no ratio, verdict or headline uses it then."""

from collections.abc import Sequence
from typing import Literal

from roofline.core.statistics import is_too_few
from roofline.core.terms import DeviceKind

Doubt = Literal["few samples", "throttled", "disturbed", "blocks disagree", "impossible"]
# How far blocks of one measurement may be apart. Caller's times on a shared host wander more than a GPU's own.
MOST_BLOCK_SPREAD: dict[DeviceKind, float] = {"gpu": 0.05, "cpu": 0.20}
MOST_CEILING_SPREAD: dict[DeviceKind, float] = {
    "gpu": 0.02,
    "cpu": 0.20,
}  # of a compute ceiling, whose blocks start alike


def relative_spread(blocks: Sequence[float]) -> float | None:
    """The highest of a measurement's blocks over the lowest, less 1; None of a single block."""
    return max(blocks) / min(blocks) - 1 if len(blocks) > 1 else None


def find_doubt(
    *,
    kind: DeviceKind,
    samples: int | None,
    blocks_apart: float | None = None,
    most_apart: dict[DeviceKind, float] = MOST_BLOCK_SPREAD,
    disturbed: bool = False,
    throttled: bool | None = False,
    impossible: bool = False,
) -> Doubt | None:
    """The first reason that applies; None where the figure may be used.

    `samples` are those of the median (None: not known), `blocks_apart` is their blocks' `spread`. `throttled` says that
    all of them were, `impossible` that the figure exceeds what another measurement allows.
    """
    reasons: dict[Doubt, bool | None] = {
        "few samples": is_too_few(samples),
        "throttled": throttled,
        "disturbed": disturbed,
        "blocks disagree": (blocks_apart or 0.0) > most_apart[kind],
        "impossible": impossible,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
