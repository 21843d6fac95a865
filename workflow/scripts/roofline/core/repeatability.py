"""When a measured figure is not to be relied on: no ratio, verdict or headline uses it then."""

from collections.abc import Sequence
from typing import Literal

from roofline.core.statistics import is_too_few
from roofline.core.terms import DEVICE_TRAITS, DeviceKind

Doubt = Literal["few samples", "throttled", "disturbed", "blocks disagree", "impossible"]


def relative_spread(blocks: Sequence[float]) -> float | None:
    """Return the highest of a measurement's blocks over the lowest, less 1; None for a single block."""
    return max(blocks) / min(blocks) - 1 if len(blocks) > 1 else None


def find_doubt(
    *,
    kind: DeviceKind,
    samples: int | None,
    block_spread: float | None = None,
    most_spread: float | None = None,
    disturbed: bool = False,
    throttled: bool | None = False,
    impossible: bool = False,
) -> Doubt | None:
    """Return the first reason not to rely on a figure; None if there is none.

    `samples` is the number of samples of its median (None: not known), `block_spread` the `relative_spread` of its
    blocks, `most_spread` the largest allowed (None: `most_block_spread` of the kind). `throttled`: every sample was.
    `impossible`: the figure exceeds what another measurement allows.
    """
    if most_spread is None:
        most_spread = DEVICE_TRAITS[kind].most_block_spread
    reasons: dict[Doubt, bool | None] = {
        "few samples": is_too_few(samples),
        "throttled": throttled,
        "disturbed": disturbed,
        "blocks disagree": (block_spread or 0.0) > most_spread,
        "impossible": impossible,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
