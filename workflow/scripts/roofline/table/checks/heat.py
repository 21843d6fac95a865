"""Check of what a minute of load tells, and two seconds do not: whether the card's cooling keeps up."""

from roofline.core.formatting import percent
from roofline.table.checks.card import ANOTHER
from roofline.table.checks.conditions import peaks
from roofline.table.checks.registry import Evidence, Outcome, check

LONG_S = 30  # of load: of less, a rate and a temperature that still move tell nothing
FALL = 0.03  # of the rate, from the first cycle that counts to the last
MARGIN_C = 5  # below the temperature at which the hardware slows down

HOLDS = f"rate within {percent(FALL)} and temperature below slowdown under {LONG_S} s of load or more"


@check(HOLDS, looks_at="measurements", action=f"look at the host's fans and air; if it stays so, {ANOTHER}")
def holds(known: Evidence) -> Outcome | None:
    loads = {one.dtype: one.peak.sustained for one in peaks(known.records) if one.peak.sustained}
    loads = {dtype: load for dtype, load in loads.items() if load.seconds >= LONG_S and load.drift is not None}
    if not loads:
        return None
    dtype, load = min(loads.items(), key=lambda one: one[1].drift)
    hottest = max((one.temperature_c for one in loads.values() if one.temperature_c is not None), default=None)
    limit = known.record.hardware.get("slowdown_temperature_c")
    words = f"{dtype} ended {percent(abs(load.drift))} {'lower' if load.drift < 0 else 'higher'} than it began"
    words += f" in {load.seconds:.0f} s"
    if hottest is not None:
        words += f", at {hottest:.0f} degrees Celsius at most"
        words += f" of {limit:.0f} at which it slows down" if limit else ""
    hot = bool(limit and hottest is not None and hottest > limit - MARGIN_C)
    result = "fail" if -load.drift > FALL else "note" if hot else "pass"
    return Outcome(result, words, max(0, -load.drift), FALL)
