"""Who else used the device and its host while it was measured, and whether it was too hot."""

from roofline.core.disturbance import THERMAL_REASONS, throttle_reasons_text
from roofline.core.formatting import count_words
from roofline.records.blocks import TimedBlock, blocks, host_load
from roofline.table.checks.judge import Evidence, Outcome, register_check

ALONE = "no other process on the GPU during measurements"
QUIET = "no other load during measurements"
COOL = "no thermal throttling under load"


@register_check(
    ALONE, doubts_figures=True, action="end it (nvidia-smi shows it) or ask for another card, then make AGAIN=1"
)
def check_alone(known: Evidence) -> Outcome:
    seen = {path: [block.other_processes for block in found] for path, found in _blocks(known).items()}
    counts = [count for found in seen.values() for count in found if count is not None]
    if not counts:
        return Outcome("not_applicable", "NVML does not report the processes on the GPU")
    shared = [path for path, found in seen.items() if any(found)]
    words = f"{count_words(len(shared), 'record')} of {len(seen)} shared the GPU" if shared else f"{len(counts)} blocks"
    return Outcome("fail" if shared else "pass", words, max(counts), 0, shared)


@register_check(QUIET, doubts_figures=True, of_cpus=True, action="make AGAIN=1 while the host is idle")
def check_quiet(known: Evidence) -> Outcome:
    """On the host. It disturbs the CPU and the CPU times of a GPU, but not GPU times."""
    timed = [block for found in _blocks(known).values() for block in found]
    readings = [one.contention for one in timed if one.contention and one.sensitive != "device"]
    if all(one.other_cores is None and one.waiting_share is None for one in readings):
        return Outcome("not_applicable", "the load on the host is not known")
    found = {path: host_load(one, known.device.device_kind) for path, one in known.records.items()}
    disturbed = [path for path, words in found.items() if words]
    if not disturbed:
        return Outcome("pass", count_words(len(readings), "block"), 0, 0)
    again = [path for path in disturbed if not path.endswith("calibration.json")]  # which AGAIN=1 never repeats
    first = found[(again or disturbed)[0]][0]
    words = f"a busy host disturbed {len(disturbed)} of {count_words(len(found), 'record')} ({first})"
    return Outcome("fail" if again else "note", words, len(disturbed), 0, again)


@register_check(
    COOL, doubts_figures=True, action="let it cool, then make AGAIN=1; if it comes back, ask for another card"
)
def check_cool(known: Evidence) -> Outcome:
    """Heat, the power brake or a hardware slowdown at any moment; the power cap is normal. Figures are doubtful only
    if every sample of a block was throttled."""
    reported = [one for one in known.mine(known.table.ceilings) if one.all_throttled is not None]
    hot = {one.name: why for one in reported if (why := THERMAL_REASONS.intersection(one.throttle_reasons))}
    always = [path for path, found in _blocks(known).items() if any(one.throttled for one in found)]
    if hot or always:
        words = "; ".join(f"{name}: {throttle_reasons_text(sorted(why))}" for name, why in hot.items())
        words = words or f"{', '.join(always)}: throttled in every sample"
        return Outcome("fail", words, records=always, doubts_figures=bool(always))
    if not reported:
        return Outcome("not_applicable", "NVML does not report clock event reasons")
    return Outcome("pass", count_words(len(reported), "ceiling"))


def _blocks(known: Evidence) -> dict[str, list[TimedBlock]]:
    """By the path of their record."""
    return {path: list(blocks(one, known.device.device_kind)) for path, one in known.records.items()}
