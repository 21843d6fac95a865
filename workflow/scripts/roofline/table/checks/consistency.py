"""The consistency of figures with each other: roofs, seals, counters, and a CPU's ceilings."""

from roofline.core.formatting import count_words, percent
from roofline.core.terms import DEVICE_TRAITS, shorten_lines
from roofline.table.checks.judge import DISTURBED, Evidence, Outcome, register_check
from roofline.table.rows import USERS, Ceiling, Counted

MOST_SHOWN = 3  # entries in a reason
BUSY = 0.5  # the share of cycles in which tensor cores must be active in a product that is to fill them

BELOW_ROOF = "no operator above its roof by more than its samples spread"
VERIFIED = "every prediction has its measured counterpart, sealed before it"
COUNTED = "profiled bytes (memory-bound cells) and FLOPs (by a formula) are counted as declared"
AGREE = "ceilings agree with each other"
REPEAT_CPU = "rm -r results/cpu, then make; trust the higher figures: other guests go unseen"


@register_check(BELOW_ROOF, of_cpus=True)
def check_below_roofs(evidence: Evidence) -> Outcome:
    """Check that no cell exceeds its roof even at its slow end; on a CPU such cells are noted only."""
    cells = [cell for cell in evidence.of_device(evidence.table.operators) if cell.roof_doubt not in DISTURBED]
    impossible = [cell for cell in cells if cell.doubt == "impossible"]
    above = [(cell, share) for cell in impossible if (share := cell.fraction_of_exceeded_ceiling)]
    if not above:
        shares = [cell.reliable_fraction_of_roof for cell in cells if cell.reliable_fraction_of_roof is not None]
        return Outcome(
            "pass" if shares else "not_applicable", count_words(len(shares), "cell"), max(shares, default=None), 1
        )
    on_gpu = DEVICE_TRAITS[evidence.device.device_kind].accelerator
    words = _join_first([f"{evidence.table.full_name(cell)} at {percent(share)} of its roof" for cell, share in above])
    if any(cell.operator == USERS for cell, _ in above):
        words += "; are its numbers in `operations` right?"
    elif not on_gpu:
        words += f"; {REPEAT_CPU}"
    return Outcome("fail" if on_gpu else "note", words, max(share for _, share in above), 1)


@register_check(VERIFIED, of_cpus=True)
def check_verified(evidence: Evidence) -> Outcome:
    """Check that no seal was violated, and that every measured cell has a regime to compare with."""
    cells = evidence.of_device(evidence.table.measured_cells)
    if not cells:
        return Outcome("not_applicable", "nothing was predicted")
    errors = list(evidence.table.devices[evidence.device.device].violations)
    unknown = sum(not (cell.regime or cell.no_roof_reason) for cell in cells)
    if unknown:
        errors.append(f"{unknown} of {len(cells)} cells have no regime, since a ceiling was not measured")
    return Outcome("fail" if errors else "pass", _join_first(errors) or count_words(len(cells), "cell"))


@register_check(COUNTED, of_cpus=True)
def check_counters(evidence: Evidence) -> Outcome | None:
    """Check the counters of cells against what was declared.

    These are the traffic of cold memory-bound cells, the FLOPs of our kernels, and the tensor cores' share of cycles in
    compute-bound GEMMs.
    """
    if not evidence.profiled:
        return None
    if not DEVICE_TRAITS[evidence.device.device_kind].accelerator:
        return Outcome("not_applicable", "Nsight Compute counts on GPUs")
    cells = evidence.of_device(evidence.table.counters)
    reasons = [row.refused_reason for row in evidence.of_device(evidence.table.refused_counters)]
    refused = _join_first(list(dict.fromkeys(reasons)))
    verdicts = [(cell, _judge_cell(cell)) for cell in cells]
    judged = [cell for cell, verdict in verdicts if verdict is not None]
    if not judged:
        return Outcome("not_applicable", refused or "no cell was counted that can be judged")
    wrong = [evidence.table.full_name(cell) for cell, verdict in verdicts if verdict is False]
    parts = [_join_first(wrong), f"{len(judged)} of {len(cells)} profiled cells judged", refused]
    return Outcome("fail" if wrong else "pass", "; ".join(part for part in parts if part), len(wrong), 0)


def _judge_cell(cell: Counted) -> bool | None:
    """Return whether all counts of a cell that can be judged agree; None if none can be judged."""
    agreements = [cell.flops_agree]
    if cell.limited_by_memory:
        agreements += [cell.reads_agree, cell.writes_agree]
    if (cell.operator, cell.regime) == ("gemm", "compute") and cell.tensor_pipe_active_fraction is not None:
        agreements.append(cell.tensor_pipe_active_fraction > BUSY)
    judged = [agreement for agreement in agreements if agreement is not None]
    return all(judged) if judged else None


@register_check(AGREE, of_cpus=True, action=REPEAT_CPU)
def check_agree(evidence: Evidence) -> Outcome | None:
    """Check a CPU's ceilings against each other; a GPU's are compared with its clock and the vendor's figures."""
    if DEVICE_TRAITS[evidence.device.device_kind].accelerator:
        return None
    ceilings: list[Ceiling] = [*evidence.compute_ceilings, *evidence.memory_ceilings]
    if not ceilings:
        return Outcome("not_applicable", "no ceiling was measured undisturbed")
    impossible = [row.name for row in ceilings if row.doubt == "impossible"]
    names = ", ".join(impossible)
    words = f"contradicted by another ceiling: {names}" if impossible else f"{len(ceilings)} ceilings"
    return Outcome("note" if impossible else "pass", words, len(impossible), 0)


def _join_first(lines: list[str]) -> str:
    """The first MOST_SHOWN lines and the number of the rest, joined by semicolons."""
    return "; ".join(shorten_lines(lines, MOST_SHOWN))
