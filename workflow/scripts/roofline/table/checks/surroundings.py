"""Other users of the device and its host during measurements, and the heat of the device."""

from roofline.core.disturbance import THERMAL_REASONS, throttle_reasons_text
from roofline.core.formatting import count_words
from roofline.records.blocks import TimedBlock, describe_host_load, timed_blocks
from roofline.table.checks.judge import Evidence, Outcome, register_check

NO_OTHER_PROCESS = "no other process on the GPU during measurements"
QUIET = "no other load during measurements"
COOL = "no thermal throttling under load"

END_PROCESS = "end it (nvidia-smi shows it) or ask for another card, then make AGAIN=1"
WAIT_FOR_IDLE = "make AGAIN=1 while the host is idle"
LET_COOL = "let it cool, then make AGAIN=1; if it comes back, ask for another card"


@register_check(NO_OTHER_PROCESS, doubts_figures=True, action=END_PROCESS)
def check_alone(evidence: Evidence) -> Outcome:
    """Check that no other process was on the GPU during any block; its records are to be measured again."""
    blocks_by_path = _blocks_by_path(evidence)
    timed = [block for blocks in blocks_by_path.values() for block in blocks]
    counts = [block.other_processes for block in timed if block.other_processes is not None]
    shared = [path for path, blocks in blocks_by_path.items() if any(block.other_processes for block in blocks)]
    if not counts:
        return Outcome("not_applicable", "NVML does not report the processes on the GPU")
    words = f"{len(counts)} blocks"
    if shared:
        words = f"{count_words(len(shared), 'record')} of {len(blocks_by_path)} shared the GPU"
    return Outcome("fail" if shared else "pass", words, max(counts), 0, shared)


@register_check(QUIET, doubts_figures=True, of_cpus=True, action=WAIT_FOR_IDLE)
def check_quiet(evidence: Evidence) -> Outcome:
    """Check for other load on the host, which disturbs the CPU and the CPU times of a GPU, but not GPU times."""
    timed = [block for blocks in _blocks_by_path(evidence).values() for block in blocks]
    readings = [block.contention for block in timed if block.contention and block.sensitivity != "device"]
    if all(reading.other_cores is None and reading.waiting_share is None for reading in readings):
        return Outcome("not_applicable", "the load on the host is not known")
    kind = evidence.device.device_kind
    lines_by_path = {path: describe_host_load(record, kind) for path, record in evidence.records.items()}
    disturbed = [path for path, lines in lines_by_path.items() if lines]
    if not disturbed:
        seen = sum(reading.other_cores is not None for reading in readings)
        words = f"{count_words(len(readings), 'block')}, other processes' time known in {seen}"
        return Outcome("pass", words, 0, 0)
    measured = [path for path in disturbed if not path.endswith("calibration.json")]  # figures, not predictions
    example = lines_by_path[(measured or disturbed)[0]][0]
    words = f"a busy host disturbed {len(disturbed)} of {count_words(len(lines_by_path), 'record')} ({example})"
    return Outcome("fail" if measured else "note", words, len(disturbed), 0, disturbed)


@register_check(COOL, doubts_figures=True, action=LET_COOL)
def check_cool(evidence: Evidence) -> Outcome:
    """Check for heat, the power brake or a hardware slowdown at any moment; the power cap is normal.

    Figures are doubtful only if every sample of a block was throttled.
    """
    reported = [row for row in evidence.of_device(evidence.table.ceilings) if row.all_throttled is not None]
    reasons_by_name = {row.name: sorted(THERMAL_REASONS.intersection(row.throttle_reasons)) for row in reported}
    lines = [f"{name}: {throttle_reasons_text(reasons)}" for name, reasons in reasons_by_name.items() if reasons]
    blocks_by_path = _blocks_by_path(evidence)
    throttled = [path for path, blocks in blocks_by_path.items() if any(block.throttled for block in blocks)]
    if lines or throttled:
        words = "; ".join(lines) or f"{', '.join(throttled)}: throttled in every sample"
        return Outcome("fail", words, records=throttled, doubts_figures=bool(throttled))
    if not reported:
        return Outcome("not_applicable", "NVML does not report clock event reasons")
    return Outcome("pass", count_words(len(reported), "ceiling"))


def _blocks_by_path(evidence: Evidence) -> dict[str, list[TimedBlock]]:
    """The timed blocks of each record, by its path."""
    kind = evidence.device.device_kind
    return {path: list(timed_blocks(record, kind)) for path, record in evidence.records.items()}
