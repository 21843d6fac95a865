"""The card itself: its memory, power limit, links and cooling."""

import math
from statistics import median

from roofline.core.formatting import count_words, number, percent
from roofline.core.levels import HOST_LINK
from roofline.core.terms import PEER_KEY_PREFIX
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.table.checks.judge import Evidence, Outcome, register_check

# The share of the host link's rate that copies from and to pinned memory must reach. Azure's node checks (AzNHC) ask
# for 21 GB/s of 31.5 (generation 4) and 48 of 63 (generation 5); this is the lower of the two shares.
LINK_SHARE = 0.66
GB_PER_S_OF_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}  # by PCIe generation, in one direction
# The share of the active NVLinks' rate that copies in one direction must reach. AzNHC asks for copies of 238 of
# 300 GB/s between A100s and of 335 of 450 GB/s between H100s or H200s: 79 and 74 %. Two H200s copied at 88 %.
NVLINK_SHARE = 0.74
ALL_REDUCE_SHARE = 0.9  # of the median over the cards of a host, whose links are alike
MOST_REMAPPED_ROWS = 512  # AzNHC fails a card with more
MOST_RETIRED_PAGES = 10  # Meta's gcm
LONG_LOAD_S = 30  # rate and temperature still move before that
MOST_RATE_LOSS = 0.03  # of the rate, from the first cycle that counts to the last
MARGIN_C = 5  # below the temperature at which the hardware slows down

MEMORY = "no uncorrected memory errors, no repair pending or failed"
REPAIRS = "few rows or pages of memory taken out of use"
POWER_LIMIT = "power limit as the vendor's"
LINK = f"host link at full width and generation, copies at {percent(LINK_SHARE)} of it or more"
PEER_COPIES = f"peer copies at {percent(NVLINK_SHARE)} or more of what the active NVLinks carry"
ALL_REDUCES = f"all-reduce at {percent(ALL_REDUCE_SHARE)} or more of the median over the cards"
HOLDS = f"rate within {percent(MOST_RATE_LOSS)} and temperature below slowdown under {LONG_LOAD_S} s of load or more"

CHANGE_CARD, CHANGE_HOST = "ask for another card", "ask for another host"
ASK_PROVIDER = "ask the provider whether that is meant: sustained products get slower by about as much"
RESEAT = f"{CHANGE_HOST}: the card is not seated well, or its slot has fewer lanes"
RESTART = f"reset the GPU or restart the machine; if it comes back, {CHANGE_CARD}"


@register_check(MEMORY, doubts_figures=True, action=RESTART)
def check_memory_errors(evidence: Evidence) -> Outcome:
    """Check memory errors since the driver was loaded, since earlier ones were repaired, and open repairs."""
    hardware = evidence.device.hardware
    errors = hardware.get("ecc_uncorrected_errors")
    states = {
        "a row remap is pending: reset the GPU": hardware.get("row_remap_pending"),
        "a row remap failed: the memory is defective": hardware.get("row_remap_failed"),
        "a page retirement is pending: reset the GPU": hardware.get("page_retirement_pending"),
    }
    problems = [count_words(errors, "uncorrected memory error")] if errors else []
    problems += [words for words, state in states.items() if state]
    if not problems and errors is None and set(states.values()) == {None}:
        return Outcome("not_applicable", "NVML reports neither errors of the memory nor repairs")
    words = "; ".join(problems) or "none since the driver was loaded"
    return Outcome("fail" if problems else "pass", words, errors, 0)


@register_check(REPAIRS, action=CHANGE_CARD)
def check_repairs(evidence: Evidence) -> Outcome:
    """Check the numbers of remapped rows and retired pages against their limits."""
    limits = {"remapped_rows": MOST_REMAPPED_ROWS, "retired_pages": MOST_RETIRED_PAGES}
    counts = {key: count for key in limits if (count := evidence.device.hardware.get(key)) is not None}
    if not counts:
        return Outcome("not_applicable", "NVML reports neither remapped rows nor retired pages")
    worst = max(counts, key=lambda key: counts[key] / limits[key])
    words = ", ".join(f"{count} {key.replace('_', ' ')}" for key, count in counts.items())
    return Outcome("fail" if counts[worst] > limits[worst] else "pass", words, counts[worst], limits[worst])


@register_check(POWER_LIMIT, action=ASK_PROVIDER)
def check_power_limit(evidence: Evidence) -> Outcome:
    """Check that the power limit is the vendor's; a lower one is noted."""
    limit, vendor = evidence.device.hardware.get("power_limit_w"), evidence.device.datasheet.power_limit_w
    if not limit or not vendor:
        return Outcome("not_applicable", "the limit, or that of the vendor, is not known", limit)
    return Outcome("note" if limit < vendor else "pass", f"{limit:.0f} W of {vendor:.0f} W", limit, vendor)


@register_check(LINK, doubts_figures=True, action=RESEAT)
def check_link(evidence: Evidence) -> Outcome:
    """Check the width and generation of the host link, then the rate of copies from and to pinned memory.

    NVML is not believed if copies were faster than the link that it reports.
    """
    widest = evidence.device.hardware.get("pcie_width_max")
    newest = evidence.device.hardware.get("pcie_generation_max")
    records = [record for record in evidence.records.values() if isinstance(record, BandwidthRecord)]
    copies = [bandwidth for record in records for bandwidth in record.bandwidths if bandwidth.level == HOST_LINK]
    links = [(state.pcie_width, state.pcie_generation) for copy in copies for state in copy.states]
    reported = [(width, generation) for width, generation in links if width and generation]
    if not reported or not widest or not newest:
        return Outcome("not_applicable", "NVML did not report the link while host copies ran")
    width, generation = max(width for width, _ in reported), max(generation for _, generation in reported)
    link_gb_per_s = width * GB_PER_S_OF_LANE.get(generation, math.inf)
    words = f"x{width} of x{widest}, generation {generation} of {newest}"
    if width < widest or generation < newest:
        believed = max(copy.gb_per_s for copy in copies) <= link_gb_per_s
        return Outcome("fail" if believed else "not_applicable", f"the host link runs at {words}", width, widest)
    rates = {copy.name: copy.gb_per_s for copy in copies if copy.host_memory == "pinned"}
    if not rates:
        return Outcome("pass", words, width, widest)
    for name, gb_per_s in rates.items():
        words += f", {name} {number(gb_per_s)} GB/s of {number(link_gb_per_s)}"
    share = min(rates.values()) / link_gb_per_s
    return Outcome("fail" if share < LINK_SHARE else "pass", words, share, LINK_SHARE, doubts_figures=False)


@register_check(PEER_COPIES, action=f"{CHANGE_HOST}, or restart it: a link is down, or its switch is slow")
def check_peer_copies(evidence: Evidence) -> Outcome | None:
    """Check the slowest copy in one direction over NVLink against the rate of the active links."""
    links = {f"{PEER_KEY_PREFIX}{path.peer}": path.link for path in evidence.of_device(evidence.table.peers)}
    if not links:
        return None
    over_nvlink = [row for row in evidence.memory_ceilings if links.get(row.name) == "nvlink"]
    judged = [(row.name, row.gb_per_s, row.datasheet_gb_per_s) for row in over_nvlink if row.datasheet_gb_per_s]
    if not judged:
        return Outcome("not_applicable", "no peer is reached over NVLink of a known rate")
    name, gb_per_s, promised_gb_per_s = min(judged, key=lambda copy: copy[1] / copy[2])
    share = gb_per_s / promised_gb_per_s
    words = f"{name} {percent(share)} of {number(promised_gb_per_s)} GB/s"
    return Outcome("fail" if share < NVLINK_SHARE else "pass", words, share, NVLINK_SHARE)


@register_check(ALL_REDUCES, action=f"{CHANGE_CARD}: both of its links are slow")
def check_all_reduces(evidence: Evidence) -> Outcome | None:
    """Check the largest all-reduce of the card's faster pair against the median over the cards, of three or more."""
    largest = {card: fastest[-1][1] for card, fastest in evidence.table.fastest_all_reduces.items()}
    rates = {card: size.gb_per_s for card, size in largest.items() if not size.doubt}
    if evidence.device.device not in rates or len(rates) < 3:
        return None
    share = rates[evidence.device.device] / median([*rates.values()])
    words = f"{percent(share)} of the median of {len(rates)} cards"
    return Outcome("fail" if share < ALL_REDUCE_SHARE else "pass", words, share, ALL_REDUCE_SHARE)


@register_check(HOLDS, action=f"look at the fans and air of the host; if it stays so, {CHANGE_CARD}")
def check_holds(evidence: Evidence) -> Outcome | None:
    """Check the loss of rate, and the temperature, under sustained loads of LONG_LOAD_S or more."""
    loads = [(row.sustained.drift, row.name, row.sustained) for row in evidence.compute_ceilings if row.sustained]
    long = [(drift, name, load) for drift, name, load in loads if drift is not None and load.duration_s >= LONG_LOAD_S]
    if not long:
        return None
    drift, dtype, slowed = min(long, key=lambda load: load[0])
    hottest = max((load.temperature_c for *_, load in long if load.temperature_c is not None), default=None)
    limit = evidence.device.hardware.get("slowdown_temperature_c")
    words = f"{dtype} changed by {100 * drift:+.2g} % in {slowed.duration_s:.0f} s"
    words += f", at most {hottest:.0f} degrees Celsius" if hottest is not None else ""
    is_hot = limit and hottest is not None and hottest > limit - MARGIN_C
    if -drift > MOST_RATE_LOSS:
        return Outcome("fail", words, -drift, MOST_RATE_LOSS)
    return Outcome("note" if is_hot else "pass", words, max(0, -drift), MOST_RATE_LOSS)
