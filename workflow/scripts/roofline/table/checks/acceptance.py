"""The lab's stop conditions, for the settings that were asked for: not applicable if these ask for less."""

from roofline.devices.datasheets import DTYPES
from roofline.table.checks.ceilings import datasheet_shares, is_near
from roofline.table.checks.judge import DISTURBED, Evidence, Outcome, register_check

ENOUGH_DTYPES = 3

DTYPES_MEASURED = f"{ENOUGH_DTYPES} or more dtypes near the vendor's peak"
SWEPT = "sizes enough to show a trend"
PLACED = "every operator under measured ceilings in the plot"
QUESTIONS = "the three questions answered"


@register_check(DTYPES_MEASURED)
def check_dtypes(known: Evidence) -> Outcome:
    near = [name for name, share in datasheet_shares(known).items() if is_near(share)]
    disturbed = {one.name for one in known.mine(known.table.ceilings) if one.doubt in DISTURBED}
    asked = [name for name in DTYPES if name in known.device.datasheet.peaks and name in (known.dtypes or DTYPES)]
    possible = [name for name in asked if name not in disturbed]
    if len(near) < ENOUGH_DTYPES and len(possible) < ENOUGH_DTYPES:
        return Outcome("not_applicable", f"{len(possible)} were asked for, have a known peak and were not disturbed")
    result = "pass" if len(near) >= ENOUGH_DTYPES else "fail"
    return Outcome(result, ", ".join(near) or "none", len(near), ENOUGH_DTYPES)


@register_check(SWEPT, of_cpus=True)
def check_swept(known: Evidence) -> Outcome | None:
    """Of operators that name a least number of values of their axis."""
    for about in known.table.operator_info.values():
        if not about.axis or not about.axis.at_least:
            continue
        key, symbol, least = about.axis
        asked = {shape[key] for shape in known.shapes.get(about.name, [])}
        if about.name in known.shapes and len(asked) < least:
            return Outcome("not_applicable", f"{about.title}: {len(asked)} values of {symbol} were asked for")
        found = sorted({one.shape[key] for one in known.mine(known.table.operators) if one.operator == about.name})
        if not found:
            return Outcome("not_applicable", f"{about.title} was not measured on {known.device.device}")
        words = f"{about.title}: {symbol} = {', '.join(map(str, found))}"
        return Outcome("pass" if len(found) >= least else "fail", words, len(found), least)
    return None


@register_check(PLACED, of_cpus=True)
def check_placed(known: Evidence) -> Outcome:
    """Both kinds of ceiling were measured, and so was the roof declared for each operator."""
    ceilings = [one.kind for one in known.mine(known.table.ceilings)]
    compute, memory = ceilings.count("compute"), ceilings.count("memory")
    operators = [one for one in known.mine(known.table.operators) if not one.no_roof_reason]
    lost = [known.table.full_name(one) for one in operators if not (one.compute_ceiling and one.memory_ceiling)]
    words = f"{compute} compute and {memory} memory ceilings, {len(operators)} operators"
    words += f", a ceiling is missing for {len(lost)}, such as {lost[0]}" if lost else ""
    return Outcome("pass" if compute and memory and not lost else "fail", words, len(lost), 0)


@register_check(QUESTIONS, of_cpus=True)
def check_questions(known: Evidence) -> Outcome:
    """What interpretation.md rests on: ceilings, operators under them, and a GPU next to the CPU."""
    lacking = [] if known.mine(known.table.ceilings) else ["no ceiling was measured"]
    if not any(one.fraction_of_roof for one in known.mine(known.table.operators)):
        lacking.append("no operator was placed under a roof")
    if not lacking and len({one.device_kind for one in known.table.devices.values()}) < 2:
        return Outcome("not_applicable", "the third needs a GPU and the CPU")
    return Outcome("fail" if lacking else "pass", "; ".join(lacking) or "ceilings, operators, a GPU and the CPU")
