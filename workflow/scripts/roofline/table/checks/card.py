"""Checks of the card itself: its memory, link and power limit."""

from roofline.core.formatting import counted, number, percent
from roofline.table.checks.conditions import bandwidths
from roofline.table.checks.registry import Evidence, Outcome, check

# Of what the host link's lanes carry, that copies from and to pinned memory reach at least: Azure's node checks (AzNHC)
# ask for 21 GB/s of 31.5 (generation 4) and 48 of 63 (generation 5); the lower share of both.
COPIES_OF_LINK = 0.66
# GB/s of a lane by PCIe's generation, in one direction: a link that carried more than it says said wrong.
GB_PER_S_OF_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}
# Of the rate of the active NVLinks in one direction. AzNHC asks for copies of 238 of 300 GB/s between A100s
# and of 335 of 450 GB/s between H100s or H200s: 79 and 74 %. Two H200s copied at 88 %.
COPIES_OF_NVLINKS = 0.74
MOST_REMAPPED_ROWS = 512  # AzNHC fails a card with more
MOST_RETIRED_PAGES = 10  # Meta's gcm

MEMORY = "no uncorrected memory errors, no repair pending or failed"
REPAIRS = "few rows or pages of memory taken out of use"
POWER_LIMIT = "power limit as the vendor's"
LINK = "host link at its full width and generation under load"
COPIES = f"host copies at {percent(COPIES_OF_LINK)} or more of what the link's lanes carry"
PEER_COPIES = f"peer copies at {percent(COPIES_OF_NVLINKS)} or more of what the active NVLinks carry"

ANOTHER, ANOTHER_HOST = "ask for another card", "ask for another host"
RESTART = f"reset the GPU or restart the machine; if it comes back, {ANOTHER}"


@check(MEMORY, looks_at="device", doubts_figures=True, action=RESTART)
def memory_errors(known: Evidence) -> Outcome | None:
    """Errors since the driver was loaded: what was mended before that is no fault."""
    found = known.record.hardware
    errors = found.get("ecc_uncorrected_errors")
    states = {
        "a row remap is pending: reset the GPU": found.get("row_remap_pending"),
        "a row remap failed: the memory is defective": found.get("row_remap_failed"),
        "a page retirement is pending: reset the GPU": found.get("page_retirement_pending"),
    }
    bad = [counted(errors, "uncorrected memory error")] if errors else []
    bad += [words for words, state in states.items() if state]
    if bad:
        return Outcome("fail", "; ".join(bad), errors, 0)
    if errors is None and set(states.values()) == {None}:
        return Outcome("not_applicable", "NVML reports neither errors of the memory nor repairs")
    return Outcome("pass", "none since the driver was loaded" if errors is not None else "no repair pending", errors, 0)


@check(REPAIRS, looks_at="device", action=ANOTHER)
def repairs(known: Evidence) -> Outcome | None:
    kinds = (
        ("remapped_rows", "row", "remapped", MOST_REMAPPED_ROWS),
        ("retired_pages", "page", "retired", MOST_RETIRED_PAGES),
    )
    found = [(counted(count, what), how, count, most)
             for key, what, how, most in kinds if (count := known.record.hardware.get(key)) is not None]  # fmt: skip
    if not found:
        return Outcome("not_applicable", "not readable: NVML reports neither remapped rows nor retired pages")
    words = [f"{what} {how}" + (f" (more than {most})" if n > most else "") for what, how, n, most in found]
    _, _, value, limit = max(found, key=lambda one: one[2] / one[3])
    return Outcome("fail" if value > limit else "pass", ", ".join(words), value, limit)


@check(
    POWER_LIMIT,
    looks_at="device",
    action="ask the provider whether that is meant: sustained products get slower by about as much",
)
def power_limit(known: Evidence) -> Outcome | None:
    limit, vendor = known.record.hardware.get("power_limit_w"), known.record.vendor.power_limit_w
    if not limit or not vendor:
        reason = f"{limit:.0f} W; the vendor's is not known" if limit else "not reported"
        return Outcome("not_applicable", reason, limit)
    return Outcome("note" if limit < vendor else "pass", f"{limit:.0f} W of {vendor:.0f} W", limit, vendor)


@check(
    LINK,
    looks_at="measurements",
    doubts_figures=True,
    action=f"{ANOTHER_HOST}: the card is not seated well, or its slot has fewer lanes",
)
def link(known: Evidence) -> Outcome | None:
    widest, newest = (known.record.hardware.get(f"pcie_{what}_max") for what in ("width", "generation"))
    copies = [one for one in bandwidths(known.records) if one.level == "pcie"]
    readings = [state for one in copies for state in one.states if state.pcie_width and state.pcie_generation]
    if not readings or not widest or not newest:
        why = "the link was not read while host copies ran" if widest and newest else "NVML does not report the link"
        return Outcome("not_applicable", why)
    width, generation = (max(getattr(one, f"pcie_{what}") for one in readings) for what in ("width", "generation"))
    reason = f"x{width} of x{widest}, generation {generation} of {newest}"
    if width >= widest and generation >= newest:
        return Outcome("pass", reason, width, widest)
    fastest = max(one.gb_per_s for one in copies)
    if fastest > width * GB_PER_S_OF_LANE.get(generation, float("inf")):
        carried = f"the link carried {number(fastest)} GB/s: more than that"
        return Outcome("not_applicable", f"NVML reports {reason}, and {carried}")
    return Outcome("fail", f"the host link runs at {reason}", width, widest)


@check(COPIES, looks_at="measurements", action=f"run again; if it stays so, {ANOTHER_HOST}")
def copies(known: Evidence) -> Outcome | None:
    pinned = [one for one in bandwidths(known.records) if one.host_memory == "pinned"]
    lanes = [(state.pcie_width or 0) * GB_PER_S_OF_LANE.get(state.pcie_generation, 0)
             for one in pinned for state in one.states]  # fmt: skip
    carried = max(lanes, default=0)
    rates = ", ".join(f"{one.name} {number(one.gb_per_s)} GB/s" for one in pinned)
    if not pinned:
        return Outcome("not_applicable", "no host copy was measured")
    if not carried:
        return Outcome("not_applicable", f"{rates}; the link was not read")
    shares = [one.gb_per_s / carried for one in pinned]
    reason = f"{rates} of {number(carried)} GB/s, {' and '.join(map(percent, shares))}"
    return Outcome("fail" if min(shares) < COPIES_OF_LINK else "pass", reason, min(shares), COPIES_OF_LINK)


@check(PEER_COPIES, looks_at="table", action=f"{ANOTHER_HOST}, or restart it: a link is down, or its switch is slow")
def peer_copies(known: Evidence) -> Outcome | None:
    """Copies in one direction over NVLink."""
    over = {f"p2p_{one.peer}": one for one in known.table.peers if one.device == known.device}
    if not over:
        return None
    measured = [c for c in known.table.ceilings if c.device == known.device and c.name in over and c.kind == "memory"]
    judged = [c for c in measured if c.fraction_of_datasheet and over[c.name].path == "nvlink"]
    low = [c for c in judged if c.fraction_of_datasheet < COPIES_OF_NVLINKS]
    if not judged:
        return Outcome("not_applicable", "no peer is reached over NVLink of a known rate")
    reason = "; ".join(
        f"{c.name} {percent(c.fraction_of_datasheet)} of {number(c.datasheet_gb_per_s)} GB/s" for c in low or judged
    )
    least = min(c.fraction_of_datasheet for c in judged)
    return Outcome("fail" if low else "pass", reason, least, COPIES_OF_NVLINKS)
