"""The check of a card beside known cards of its model."""

from roofline.analysis.checks.card import ANOTHER, ANOTHER_HOST
from roofline.analysis.checks.registry import Evidence, Outcome, check
from roofline.analysis.standing import FAIL, sentence

SHARE = f"{100 * FAIL.share:.0f} %, or {FAIL.deviations} standard deviations where that is more"
OTHERS = f"no figure below other cards of its model by more than {SHARE}"
NOTHING = "nothing, unless another run shows the same and it matters to you"


@check(OTHERS, looks_at="device")
def others(known: Evidence) -> Outcome | None:
    found = known.standing
    if found is None:
        return None
    reason = sentence(known.record.name, found)
    if found.why:
        return Outcome("not_applicable", reason)
    failed = [one for one in found.graded if one.result == "fail"]
    action = ANOTHER if any(not one.of_host for one in failed) else ANOTHER_HOST if failed else NOTHING
    lowest = max(found.graded, key=lambda one: one.short)
    return Outcome(found.result, reason, lowest.short, lowest.fail, action)
