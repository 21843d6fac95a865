"""Checks of a card beside others of its model: known ones, and the others of its host."""

from roofline.analysis.checks.card import ANOTHER, ANOTHER_HOST
from roofline.analysis.checks.registry import Evidence, Outcome, check
from roofline.analysis.distribution import BANDS, Standing, below, near, sentence

SHARE = f"{100 * BANDS[1]:.0f} %"
OTHERS = f"no figure below other cards of its model by more than {SHARE} or their spread"
ALIKE = f"no figure below the host's other cards of its model by more than {SHARE} or their spread"
NOTHING = "nothing, unless another run shows the same and it matters to you"
RESULTS = ("pass", "note", "fail", "fail")  # of each band


@check(OTHERS, looks_at="device", health=True)
def others(known: Evidence) -> Outcome | None:
    if known.standing is None:
        return None
    return _graded(known.standing, sentence(known.record.name, known.standing))


@check(ALIKE, looks_at="device")
def siblings(known: Evidence) -> Outcome | None:
    if known.siblings is None:
        return None
    those, found = known.siblings
    reason = found.why or below(known.device, those, found) or near(f"{known.device} is", those, found)
    return _graded(found, reason)


def _graded(found: Standing, reason: str) -> Outcome:
    if found.why:
        return Outcome("not_applicable", reason)
    result = RESULTS[found.band]
    of_host = all(one.of_host for one in found.graded if one.band > 1)
    action = NOTHING if result == "note" else ANOTHER_HOST if of_host else ANOTHER
    return Outcome(result, reason, max((one.short for one in found.graded), default=None), BANDS[1], action)
