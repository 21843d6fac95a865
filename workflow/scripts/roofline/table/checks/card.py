"""The card itself: its memory, power limit, links and cooling."""

from roofline.core.formatting import count_words, number, percent
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.table.checks.judge import Evidence, Outcome, register_check

# Share of what the lanes of the host link carry that copies from and to pinned memory must reach: Azure's node checks
# (AzNHC) ask for 21 GB/s of 31.5 (generation 4) and 48 of 63 (generation 5); the lower of the two shares.
COPIES_OF_LINK = 0.66
GB_PER_S_OF_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}  # by PCIe generation, in one direction
# Share of the rate of the active NVLinks in one direction. AzNHC asks for copies of 238 of 300 GB/s between A100s
# and of 335 of 450 GB/s between H100s or H200s: 79 and 74 %. Two H200s copied at 88 %.
COPIES_OF_NVLINKS = 0.74
MOST_REMAPPED_ROWS = 512  # AzNHC fails a card with more
MOST_RETIRED_PAGES = 10  # Meta's gcm
LONG_S = 30  # of load: rate and temperature still move before that
FALL = 0.03  # of the rate, from the first cycle that counts to the last
MARGIN_C = 5  # below the temperature at which the hardware slows down

MEMORY = "no uncorrected memory errors, no repair pending or failed"
REPAIRS = "few rows or pages of memory taken out of use"
POWER_LIMIT = "power limit as the vendor's"
LINK = f"host link at full width and generation, copies at {percent(COPIES_OF_LINK)} of it or more"
PEER_COPIES = f"peer copies at {percent(COPIES_OF_NVLINKS)} or more of what the active NVLinks carry"
HOLDS = f"rate within {percent(FALL)} and temperature below slowdown under {LONG_S} s of load or more"

ANOTHER, ANOTHER_HOST = "ask for another card", "ask for another host"
RESTART = f"reset the GPU or restart the machine; if it comes back, {ANOTHER}"


@register_check(MEMORY, doubts_figures=True, action=RESTART)
def check_memory_errors(known: Evidence) -> Outcome:
    """Errors since the driver was loaded: earlier ones were repaired."""
    found = known.device.hardware
    errors = found.get("ecc_uncorrected_errors")
    states = {
        "a row remap is pending: reset the GPU": found.get("row_remap_pending"),
        "a row remap failed: the memory is defective": found.get("row_remap_failed"),
        "a page retirement is pending: reset the GPU": found.get("page_retirement_pending"),
    }
    bad = [count_words(errors, "uncorrected memory error")] if errors else []
    bad += [words for words, state in states.items() if state]
    if not bad and errors is None and set(states.values()) == {None}:
        return Outcome("not_applicable", "NVML reports neither errors of the memory nor repairs")
    return Outcome("fail" if bad else "pass", "; ".join(bad) or "none since the driver was loaded", errors, 0)


@register_check(REPAIRS, action=ANOTHER)
def check_repairs(known: Evidence) -> Outcome:
    limits = {"remapped_rows": MOST_REMAPPED_ROWS, "retired_pages": MOST_RETIRED_PAGES}
    counts = {key: count for key in limits if (count := known.device.hardware.get(key)) is not None}
    if not counts:
        return Outcome("not_applicable", "NVML reports neither remapped rows nor retired pages")
    worst = max(counts, key=lambda key: counts[key] / limits[key])
    words = ", ".join(f"{count} {key.replace('_', ' ')}" for key, count in counts.items())
    result = "fail" if counts[worst] > limits[worst] else "pass"
    return Outcome(result, words, counts[worst], limits[worst])


@register_check(
    POWER_LIMIT, action="ask the provider whether that is meant: sustained products get slower by about as much"
)
def check_power_limit(known: Evidence) -> Outcome:
    limit, vendor = known.device.hardware.get("power_limit_w"), known.device.datasheet.power_limit_w
    if not limit or not vendor:
        return Outcome("not_applicable", "the limit, or that of the vendor, is not known", limit)
    return Outcome("note" if limit < vendor else "pass", f"{limit:.0f} W of {vendor:.0f} W", limit, vendor)


@register_check(
    LINK, doubts_figures=True, action=f"{ANOTHER_HOST}: the card is not seated well, or its slot has fewer lanes"
)
def check_link(known: Evidence) -> Outcome:
    """NVML is not believed if copies were faster than the link that it reports."""
    widest, newest = (known.device.hardware.get(f"pcie_{what}_max") for what in ("width", "generation"))
    records = [one for one in known.records.values() if isinstance(one, BandwidthRecord)]
    copies = [one for record in records for one in record.bandwidths if one.level == "pcie"]
    links = [(one.pcie_width, one.pcie_generation) for copy in copies for one in copy.states]
    links = [one for one in links if all(one)]
    if not links or not widest or not newest:
        return Outcome("not_applicable", "NVML did not report the link while host copies ran")
    width, generation = (max(numbers) for numbers in zip(*links, strict=True))
    carried = width * GB_PER_S_OF_LANE.get(generation, float("inf"))
    words = f"x{width} of x{widest}, generation {generation} of {newest}"
    if width < widest or generation < newest:
        believed = max(one.gb_per_s for one in copies) <= carried
        return Outcome("fail" if believed else "not_applicable", f"the host link runs at {words}", width, widest)
    rates = {one.name: one.gb_per_s for one in copies if one.host_memory == "pinned"}
    if not rates:
        return Outcome("pass", words, width, widest)
    words += "".join(f", {name} {number(rate)} GB/s of {number(carried)}" for name, rate in rates.items())
    share = min(rates.values()) / carried
    return Outcome("fail" if share < COPIES_OF_LINK else "pass", words, share, COPIES_OF_LINK, doubts_figures=False)


@register_check(PEER_COPIES, action=f"{ANOTHER_HOST}, or restart it: a link is down, or its switch is slow")
def check_peer_copies(known: Evidence) -> Outcome | None:
    """Copies in one direction over NVLink."""
    peers = {f"p2p_{one.peer}": one.link for one in known.mine(known.table.peers)}
    if not peers:
        return None
    judged = [one for one in known.memory if one.fraction_of_datasheet and peers.get(one.name) == "nvlink"]
    if not judged:
        return Outcome("not_applicable", "no peer is reached over NVLink of a known rate")
    least = min(judged, key=lambda one: one.fraction_of_datasheet)
    share = least.fraction_of_datasheet
    words = f"{least.name} {percent(share)} of {number(least.datasheet_gb_per_s)} GB/s"
    return Outcome("fail" if share < COPIES_OF_NVLINKS else "pass", words, share, COPIES_OF_NVLINKS)


@register_check(HOLDS, action=f"look at the fans and air of the host; if it stays so, {ANOTHER}")
def check_holds(known: Evidence) -> Outcome | None:
    loads = {one.name: one.sustained for one in known.compute if one.sustained}
    loads = {dtype: load for dtype, load in loads.items() if load.duration_s >= LONG_S and load.drift is not None}
    if not loads:
        return None
    dtype, load = min(loads.items(), key=lambda one: one[1].drift)
    hottest = max((one.temperature_c for one in loads.values() if one.temperature_c is not None), default=None)
    limit = known.device.hardware.get("slowdown_temperature_c")
    words = f"{dtype} changed by {percent(load.drift)} in {load.duration_s:.0f} s"
    words += f", at most {hottest:.0f} degrees Celsius" if hottest is not None else ""
    hot = bool(limit and hottest is not None and hottest > limit - MARGIN_C)
    return Outcome("fail" if -load.drift > FALL else "note" if hot else "pass", words, max(0, -load.drift), FALL)
