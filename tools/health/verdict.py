"""The checks of a card, as plain functions of what was found, and its status."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from xids import Xid

from roofline.api import MATMULS, QUIET, READS, count_words, number, percent

BUSY, USED = 0.05, 0.05  # of an unused card: an idle H200 reports 0 % utilisation and 0.4 % of its memory in use
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
REPEATABLE = "the same GEMM gives the same bits every time"


class HealthRow(NamedTuple):
    name: str
    result: str  # pass, note, fail or not_applicable
    reason: str
    action: str | None = None


def measured(failures: Mapping[str, tuple[str, str]]) -> HealthRow:
    """`failures` has why and the name of the exception, by what was to be measured."""
    if not failures:
        return HealthRow(MEASURED, "pass", "none failed")
    of_card = any(error in OF_CARD_ERRORS for _, error in failures.values())
    reason = f"{', '.join(failures)}: {'; '.join(dict.fromkeys(why for why, _ in failures.values()))}"
    return HealthRow(
        MEASURED, "fail" if of_card else "not_applicable", reason, f"run again; if it fails again, {ANOTHER}"
    )


def unused(processes: int | None, busy: float | None, memory: float | None) -> HealthRow:
    """Before the measurements. NVML does not list a process of another container, but its load and memory show."""
    if {processes, busy, memory} == {None}:
        return HealthRow(UNUSED, "not_applicable", "not readable: NVML reports neither processes nor utilisation")
    found = [f"{processes} other process{'es' if processes > 1 else ''}"] if processes else []
    found += [f"busy for {percent(busy)} of the time"] if (busy or 0) > BUSY else []
    found += [f"{percent(memory)} of its memory in use"] if (memory or 0) > USED else []
    if not found:
        return HealthRow(UNUSED, "pass", "neither a process nor load before the measurements")
    action = "end the other process (nvidia-smi shows none of other containers), or ask for a card of your own"
    return HealthRow(UNUSED, "fail", f"before the measurements: {', '.join(found)}", action)


def xids(found: Sequence[Xid] | None, earlier: bool) -> HealthRow:
    """An earlier program may have caused those in the kernel log; during the measurements none may occur."""
    if found is None:
        return HealthRow(
            XIDS, "not_applicable", "not readable: NVML takes no listener, and the kernel log may not be read"
        )
    if not found:
        since = "none in two hours and" if earlier else "earlier ones are not readable; none"
        return HealthRow(XIDS, "pass", f"{since} during the measurements")
    grave = [one for one in found if one.code in HARDWARE_XIDS or (one.minutes is None and one.code != KILLED_XID)]
    action = f"reset the GPU or restart the machine; if it comes back, {ANOTHER}"
    return HealthRow(XIDS, "fail" if grave else "note", "; ".join(map(str, grave or found)), action)


def repeatable(repeated: Mapping | None) -> HealthRow:
    if repeated is None:
        return HealthRow(REPEATABLE, "not_applicable", "not measured")
    memory, action = number(repeated["memory_bytes"] / 1e9), f"its results are wrong; {ANOTHER}"
    over = f"{repeated['products']:,} {repeated['dtype']} products over {memory} GB of memory"
    if repeated["fault"]:
        return HealthRow(REPEATABLE, "fail", f"the first product is wrong: {repeated['fault']}", action)
    if wrong := repeated["wrong_words"]:
        return HealthRow(
            REPEATABLE, "fail", f"silent corruption in {over}: {count_words(wrong, 'word')} differed", action
        )
    return HealthRow(REPEATABLE, "pass", f"{over}, no bit differed")


def of_library(checks: Iterable, product: str, ranked: Container[str]) -> list[HealthRow]:
    """The datasheet does not judge a ceiling that known cards judge; a busy host is not an error of the card."""
    left_out = {name for name, key in ((READS, "hbm_read"), (MATMULS, product)) if key in ranked}
    return [
        HealthRow(
            one.check, "note" if (one.check, one.result) == (QUIET, "fail") else one.result, one.reason, one.action
        )
        for one in checks
        if one.check not in left_out
    ]


def status(rows: Sequence[HealthRow], rates: Container[str]) -> str:
    """`rates` are names of checks, of which at least one must have been judged."""
    if any(one.result == "fail" for one in rows):
        return "not healthy"
    judged = any(one.name in rates and one.result in ("pass", "note") for one in rows)
    measured = all(one.result == "pass" for one in rows if one.name == MEASURED)
    return "healthy" if judged and measured else "cannot tell"
