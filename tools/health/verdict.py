"""The checks of a card, as plain functions of what was measured and read, and its status."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from xids import Xid

from roofline.api import MAIN_MEMORY, MATMULS, QUIET, READS, CheckResult, count_words, number, percent

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
    """A check of a card: its result, the reason, and what to do if it did not pass."""

    name: str
    result: str  # pass, note, fail or not_applicable
    reason: str
    action: str | None = None


def check_measured(failures: Mapping[str, tuple[str, str]]) -> HealthRow:
    """Return the check that everything was measured.

    `failures` has the reason and the name of the exception by the name of the measurement.
    """
    if not failures:
        return HealthRow(MEASURED, "pass", "none failed")
    of_card = any(error in OF_CARD_ERRORS for _, error in failures.values())
    reason = f"{', '.join(failures)}: {'; '.join(dict.fromkeys(text for text, _ in failures.values()))}"
    action = f"run again; if it fails again, {ANOTHER}"
    return HealthRow(MEASURED, "fail" if of_card else "not_applicable", reason, action)


def check_unused(processes: int | None, busy: float | None, memory: float | None) -> HealthRow:
    """Return the check that nobody used the card before the measurements; `busy` and `memory` are shares.

    NVML does not list a process of another container, but its load and memory show.
    """
    if {processes, busy, memory} == {None}:
        return HealthRow(UNUSED, "not_applicable", "not readable: NVML reports neither processes nor utilisation")
    signs = [f"{processes} other process{'es' if processes > 1 else ''}"] if processes else []
    if (busy or 0) > BUSY:
        signs.append(f"busy for {percent(busy)} of the time")
    if (memory or 0) > USED:
        signs.append(f"{percent(memory)} of its memory in use")
    if not signs:
        return HealthRow(UNUSED, "pass", "neither a process nor load before the measurements")
    action = "end the other process (nvidia-smi shows none of other containers), or ask for a card of your own"
    return HealthRow(UNUSED, "fail", f"before the measurements: {', '.join(signs)}", action)


def check_xids(errors: Sequence[Xid] | None, reads_log: bool) -> HealthRow:
    """Return the check of the driver's errors, which are None if they cannot be read.

    An earlier program may have caused those in the kernel log; during the measurements none may occur.
    """
    if errors is None:
        reason = "not readable: NVML takes no listener, and the kernel log may not be read"
        return HealthRow(XIDS, "not_applicable", reason)
    if not errors:
        since = "none in two hours and" if reads_log else "earlier ones are not readable; none"
        return HealthRow(XIDS, "pass", f"{since} during the measurements")
    grave = [xid for xid in errors if xid.code in HARDWARE_XIDS or (xid.minutes is None and xid.code != KILLED_XID)]
    action = f"reset the GPU or restart the machine; if it comes back, {ANOTHER}"
    return HealthRow(XIDS, "fail" if grave else "note", "; ".join(map(str, grave or errors)), action)


def check_repeatable(repeated: Mapping | None) -> HealthRow:
    """Return the check that a repeated GEMM always gave the same bits, from the output of repeat.py."""
    if repeated is None:
        return HealthRow(REPEATABLE, "not_applicable", "not measured")
    memory, action = number(repeated["memory_bytes"] / 1e9), f"its results are wrong; {ANOTHER}"
    over = f"{repeated['products']:,} {repeated['dtype']} products over {memory} GB of memory"
    if repeated["fault"]:
        return HealthRow(REPEATABLE, "fail", f"the first product is wrong: {repeated['fault']}", action)
    if wrong := repeated["wrong_words"]:
        reason = f"silent corruption in {over}: {count_words(wrong, 'word')} differed"
        return HealthRow(REPEATABLE, "fail", reason, action)
    return HealthRow(REPEATABLE, "pass", f"{over}, no bit differed")


def library_rows(checks: Iterable[CheckResult], product: str, ranked: Container[str]) -> list[HealthRow]:
    """Return the checks of the library. A busy host is not an error of the card.

    The datasheet does not judge a ceiling that known cards judge: `ranked` has the keys of these.
    """
    left_out = {name for name, key in ((READS, f"{MAIN_MEMORY['gpu']}_read"), (MATMULS, product)) if key in ranked}
    rows = []
    for check in checks:
        if check.check not in left_out:
            result = "note" if check.check == QUIET and check.result == "fail" else check.result
            rows.append(HealthRow(check.check, result, check.reason, check.action))
    return rows


def card_status(rows: Sequence[HealthRow], rates: Container[str]) -> str:
    """Return `healthy`, `not healthy` or `cannot tell`; at least one of the checks named in `rates` must be judged."""
    if any(row.result == "fail" for row in rows):
        return "not healthy"
    is_judged = any(row.name in rates and row.result in ("pass", "note") for row in rows)
    is_measured = all(row.result == "pass" for row in rows if row.name == MEASURED)
    return "healthy" if is_judged and is_measured else "cannot tell"
