"""The lab's stop conditions, for the settings that were requested: not applicable if these ask for less."""

from roofline.core.dtypes import PRODUCT_DTYPES
from roofline.core.formatting import count_words
from roofline.table.checks.ceilings import datasheet_shares, is_near
from roofline.table.checks.judge import DISTURBED, Evidence, Outcome, Result, register_check

ENOUGH_DTYPES = 3

DTYPES_MEASURED = f"{ENOUGH_DTYPES} or more dtypes near the vendor's peak"
SWEPT = "sizes enough to show a trend"
PLACED = "every operator under measured ceilings in the plot"
QUESTIONS = "the three questions answered"
MEASURE_CEILINGS = "add the missing dtypes to peak_flops.dtypes, and levels to bandwidth.levels"


@register_check(DTYPES_MEASURED)
def check_dtypes(evidence: Evidence) -> Outcome:
    """Check how many dtypes have a burst near the datasheet's peak."""
    near_dtypes = [name for name, share in datasheet_shares(evidence).items() if is_near(share)]
    disturbed = {row.name for row in evidence.of_device(evidence.table.ceilings) if row.doubt in DISTURBED}
    requested = [name for name in PRODUCT_DTYPES if name in (evidence.request.dtypes or PRODUCT_DTYPES)]
    possible = [name for name in requested if name in evidence.device.datasheet.peaks and name not in disturbed]
    if len(near_dtypes) < ENOUGH_DTYPES and len(possible) < ENOUGH_DTYPES:
        return Outcome("not_applicable", f"{len(possible)} were asked for, have a known peak and were not disturbed")
    result: Result = "pass" if len(near_dtypes) >= ENOUGH_DTYPES else "fail"
    return Outcome(result, ", ".join(near_dtypes) or "none", len(near_dtypes), ENOUGH_DTYPES)


@register_check(SWEPT, of_cpus=True)
def check_swept(evidence: Evidence) -> Outcome | None:
    """Check that the first operator whose axis asks for a number of values was measured at as many."""
    for about in evidence.table.operator_info.values():
        axis = about.axis
        if not axis or not axis.at_least:
            continue
        requested = {shape[axis.key] for shape in evidence.request.shapes.get(about.name, [])}
        if about.name in evidence.request.shapes and len(requested) < axis.at_least:
            asked = f"fewer than {axis.at_least} values of {axis.symbol} were asked for"
            return Outcome("not_applicable", f"{about.title}: {asked}")
        cells = [cell for cell in evidence.of_device(evidence.table.operators) if cell.operator == about.name]
        values = sorted({cell.shape[axis.key] for cell in cells})
        if not values:
            return Outcome("not_applicable", f"{about.title} was not measured on {evidence.device.device}")
        words = f"{about.title}: {axis.symbol} = {', '.join(map(str, values))}"
        return Outcome("pass" if len(values) >= axis.at_least else "fail", words, len(values), axis.at_least)
    return None


@register_check(PLACED, of_cpus=True, action=MEASURE_CEILINGS)
def check_placed(evidence: Evidence) -> Outcome:
    """Check that both kinds of ceiling were measured, and the two ceilings of every cell that declares a roof."""
    kinds = [row.kind for row in evidence.of_device(evidence.table.ceilings)]
    compute, memory = kinds.count("compute"), kinds.count("memory")
    cells = [cell for cell in evidence.of_device(evidence.table.operators) if not cell.no_roof_reason]
    roofless = [evidence.table.full_name(cell) for cell in cells if not (cell.compute_ceiling and cell.memory_ceiling)]
    words = f"{compute} compute and {memory} memory ceilings, {count_words(len(cells), 'cell')}"
    words += f", a ceiling is missing for {len(roofless)}, such as {roofless[0]}" if roofless else ""
    return Outcome("pass" if compute and memory and not roofless else "fail", words, len(roofless), 0)


@register_check(QUESTIONS, of_cpus=True)
def check_questions(evidence: Evidence) -> Outcome:
    """Check for what interpretation.md rests on: ceilings, operators under them, and a GPU next to the CPU."""
    lacking = [] if evidence.of_device(evidence.table.ceilings) else ["no ceiling was measured"]
    if not any(cell.fraction_of_roof for cell in evidence.of_device(evidence.table.operators)):
        lacking.append("no operator was placed under a roof")
    if not lacking and len({device.device_kind for device in evidence.table.devices.values()}) < 2:
        return Outcome("not_applicable", "the third needs a GPU and the CPU")
    return Outcome("fail" if lacking else "pass", "; ".join(lacking) or "ceilings, operators, a GPU and the CPU")
