"""The checks of a card, as plain functions of what was found, and its status."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xids import Xid

from roofline.api import counted, number, percent

BUSY, USED = 0.05, 0.05  # of an unused card: an idle H200 reports 0 % utilisation and 0.4 % of its memory in use
CORRECTED_PER_S = 1  # chosen: no source gives a rate, and the H200s measured so far had none
# azurehpc-health-checks fails a machine for these. 94 and 95 are uncorrectable memory errors from Ampere on, by
# NVIDIA's list of Xid errors. Others are, or may be, caused by a program.
HARDWARE_XIDS = {48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 94, 95, 119, 120}
KILLED_XID = 45  # of a program that is killed, as ours are if time runs out
# What CUDA and cuBLAS report, or a wrong result. A full disk or a missing library is not an error of the card.
OF_CARD_ERRORS = ("ArithmeticError", "CUDARuntimeError", "CUDADriverError", "CUBLASError", "cuBLASLtError")

ANOTHER = "ask for another card"
MEASURED = "every measurement went through"
UNUSED = "nobody else uses the GPU"
XIDS = "no Xid errors of the hardware"
CORRECTED = "at most one corrected memory error a second"
REPEATABLE = "the same product gives the same bits every time"
# Checks of the library, by name. The first says less than its check of heat at any moment; the next is of the host.
UNTHROTTLED = "no ceiling measured only under thermal throttling"
QUIET = "no other load during measurements"
READS = "memory reads at 85 % of the vendor's bandwidth or more"
REGISTERS = "register-only kernels at 90 % or more of what their clock allows"
MATMULS = "matrix products within 30 % of the vendor's peak"


class Row(NamedTuple):
    name: str
    result: str  # pass, note, fail or not known
    value: float | None
    limit: float | None
    reason: str
    action: str | None


def row(name: str, result: str, reason: str, value=None, limit=None, action: str | None = None) -> Row:
    return Row(name, result, value, limit, reason, action if result in ("fail", "note") else None)


def measured(failures: Mapping[str, tuple[str, str]], count: int) -> Row:
    """`failures` has why and the name of the exception, by what was to be measured."""
    if not failures:
        return row(MEASURED, "pass", counted(count, "measurement"))
    of_card = any(error in OF_CARD_ERRORS for _, error in failures.values())
    reason = "; ".join(f"{name}: {why}" for name, (why, _) in failures.items())
    return row(MEASURED, "fail" if of_card else "not known", reason, action=f"run again; if it fails again, {ANOTHER}")


def unused(seen: Mapping) -> Row:
    """Before the measurements. NVML does not list a process of another container, but its load and memory show."""
    processes, busy, memory = (seen[key] for key in ("processes", "busy_share", "memory_share"))
    if {processes, busy, memory} == {None}:
        return row(UNUSED, "not known", "not readable: NVML reports neither processes nor utilisation")
    found = [f"{processes} other process{'es' if processes > 1 else ''}"] if processes else []
    found += [f"busy for {percent(busy)} of the time"] if (busy or 0) > BUSY else []
    found += [f"{percent(memory)} of its memory in use"] if (memory or 0) > USED else []
    if not found:
        return row(UNUSED, "pass", "neither a process nor load before the measurements")
    action = "end the other process (nvidia-smi shows none of other containers), or ask for a card of your own"
    return row(UNUSED, "fail", f"before the measurements: {', '.join(found)}", action=action)


def xids(found: Sequence[Xid] | None, earlier: bool) -> Row:
    """An earlier program may have caused those in the kernel log; during the measurements none may occur."""
    if found is None:
        return row(XIDS, "not known", "not readable: NVML takes no listener, and the kernel log may not be read")
    if not found:
        since = "none in two hours and" if earlier else "earlier ones are not readable; none"
        return row(XIDS, "pass", f"{since} during the measurements")
    grave = [one for one in found if one.code in HARDWARE_XIDS or (one.when == "during" and one.code != KILLED_XID)]
    words = []
    for one in grave or found:
        when = "during the measurements" if one.when == "during" else f"{number((one.age_s or 0) / 60)} minutes ago"
        words.append(f"Xid {one.code} {when}" + (f" ({one.text})" if one.text else ""))
    action = f"reset the GPU or restart the machine; if it comes back, {ANOTHER}"
    return row(XIDS, "fail" if grave else "note", "; ".join(words), action=action)


def corrected(repeated: Mapping | None) -> Row:
    """By the rate under load: a count since the driver was loaded depends on when that was."""
    errors = repeated and repeated["corrected_errors"]
    if errors is None:
        return row(CORRECTED, "not known", "NVML does not count corrected errors" if repeated else "not measured")
    rate = errors / repeated["seconds"]
    result = "fail" if rate > CORRECTED_PER_S else "note" if rate else "pass"
    reason = f"{counted(errors, 'corrected error')} in {number(repeated['seconds'])} s of load"
    return row(CORRECTED, result, reason, rate, CORRECTED_PER_S, f"run again; if it stays so, {ANOTHER}")


def repeatable(repeated: Mapping | None) -> Row:
    if repeated is None:
        return row(REPEATABLE, "not known", "not measured")
    wrong, action = repeated["wrong_words"], f"do not compute on this card, its results are wrong; {ANOTHER}"
    memory = number(repeated["memory_bytes"] / 1e9)
    over = f"{repeated['products']:,} {repeated['dtype']} products over {memory} GB of memory"
    if repeated["fault"]:
        return row(REPEATABLE, "fail", f"the first product is wrong: {repeated['fault']}", action=action)
    if wrong:
        differing = f"{counted(wrong, 'word')} differed from the first, in {repeated['wrong_places']} of its copies"
        return row(REPEATABLE, "fail", f"silent corruption in {over}: {differing}", wrong, 0, action)
    return row(REPEATABLE, "pass", f"{over}, no bit differed", 0, 0)


def of_library(checks: Iterable, ranked: Iterable[str]) -> list[Row]:
    """Its checks of the card. The datasheet does not judge a ceiling that known cards judge."""
    left_out = {name for name, key in ((READS, "hbm_read"), (MATMULS, "product")) if key in ranked} | {UNTHROTTLED}
    rows = []
    for one in (one for one in checks if one.check not in left_out):
        result = "note" if (one.check, one.result) == (QUIET, "fail") else one.result.replace("_applicable", " known")
        rows.append(row(one.check, result, one.reason, one.value, one.limit, one.action))
    return rows


def status(rows: Sequence[Row], timed: Iterable[str]) -> str:
    """`timed` are the checks of rates, of which one at least must have been judged."""
    results = {one.name: one.result for one in rows}
    if "fail" in results.values():
        return "not healthy"
    judged = any(results.get(one) == "pass" for one in timed)
    return "healthy" if judged and results[MEASURED] == "pass" else "cannot tell"
