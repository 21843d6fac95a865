"""Checks of a card beside others of its model: known ones, and the others of its host."""

from roofline.analysis.checks.card import ANOTHER, ANOTHER_HOST
from roofline.analysis.checks.registry import Evidence, Outcome, check
from roofline.analysis.standing import FAIL, Standing, below, near, sentence

SHARE = f"{100 * FAIL.share:.0f} %, or {FAIL.deviations} standard deviations where that is more"
OTHERS = f"no figure below other cards of its model by more than {SHARE}"
ALIKE = f"no figure below the host's other cards of its model by more than {SHARE}"
NOTHING = "nothing, unless another run shows the same and it matters to you"


@check(OTHERS, looks_at="device", health=True)
def others(known: Evidence) -> Outcome | None:
    if known.standing is None:
        return None
    return _judged(known.standing, sentence(known.record.name, known.standing))


@check(ALIKE, looks_at="device")
def siblings(known: Evidence) -> Outcome | None:
    if known.siblings is None:
        return None
    those, found = known.siblings
    reason = found.why or below(known.device, those, found) or near(f"{known.device} is", those, found)
    return _judged(found, reason)


def _judged(found: Standing, reason: str) -> Outcome:
    if found.why:
        return Outcome("not_applicable", reason)
    failed = [one for one in found.graded if one.result == "fail"]
    action = ANOTHER if any(not one.of_host for one in failed) else ANOTHER_HOST if failed else NOTHING
    lowest = max(found.graded, key=lambda one: one.short)
    return Outcome(found.result, reason, lowest.short, lowest.fail, action)
