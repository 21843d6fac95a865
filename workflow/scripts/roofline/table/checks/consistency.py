"""Whether figures fit each other: roofs, seals, counters, and a CPU's ceilings."""

from roofline.core.formatting import percent
from roofline.core.terms import DEVICE_TRAITS
from roofline.table.checks.judge import DISTURBED, Evidence, Outcome, register_check
from roofline.table.rows import USERS, Counted

SHOWN = 3  # in a reason
BUSY = 0.5  # of the cycles, tensor cores in a product that is to fill them

BELOW = "no operator above its roof by more than its samples spread"
VERIFIED = "every prediction has its measured counterpart, sealed before it"
COUNTED = "the hardware's counters confirm the declared bytes and FLOPs"
AGREE = "ceilings agree with each other"
AGAIN = "rm -r results/cpu, then make; trust the higher figures: other guests go unseen"


@register_check(BELOW, of_cpus=True)
def check_below_roofs(known: Evidence) -> Outcome:
    cells = [one for one in known.mine(known.table.operators) if one.roof_doubt not in DISTURBED]
    if above := [one for one in cells if one.doubt == "impossible"]:
        words = _first(
            [
                f"{known.table.full_name(one)} at {percent(one.fraction_of_exceeded_ceiling)} of its roof"
                for one in above
            ]
        )
        gpu, users = DEVICE_TRAITS[known.device.device_kind].accelerator, any(one.operator == USERS for one in above)
        words += "; are its numbers in `operations` right?" if users else "" if gpu else f"; {AGAIN}"
        return Outcome("fail" if gpu else "note", words, max(one.fraction_of_exceeded_ceiling for one in above), 1)
    shares = [one.share for one in cells if one.share is not None]
    result = "pass" if shares else "not_applicable"
    return Outcome(result, f"{len(shares)} cells", max(shares, default=None), 1)


@register_check(VERIFIED, of_cpus=True)
def check_verified(known: Evidence) -> Outcome:
    cells = known.mine(known.table.entries)
    if not cells:
        return Outcome("not_applicable", "nothing was predicted")
    errors = list(known.table.devices[known.device.device].violations)
    unknown = sum(not (one.regime or one.no_roof_reason) for one in cells)
    errors += [f"{unknown} of {len(cells)} cells have no regime, since a ceiling was not measured"] if unknown else []
    return Outcome("fail" if errors else "pass", _first(errors) or f"{len(cells)} cells")


@register_check(COUNTED, of_cpus=True)
def check_counters(known: Evidence) -> Outcome | None:
    """Traffic of cold memory-bound cells, FLOPs of our kernels, and tensor cores in products that they limit."""
    if not known.profiled:
        return None
    if not DEVICE_TRAITS[known.device.device_kind].accelerator:
        return Outcome("not_applicable", "Nsight Compute counts on GPUs")
    cells = known.mine(known.table.counters)
    refused = _first(list(dict.fromkeys(one.refused_reason for one in known.mine(known.table.refused_counters))))
    judged = [one for one in cells if _judged(one)]
    if not judged:
        return Outcome("not_applicable", refused or "no cell was counted that can be judged")
    wrong = [known.table.full_name(one) for one in judged if False in _judged(one)]
    words = "; ".join(filter(None, [_first(wrong), f"{len(judged)} of {len(cells)} profiled cells judged", refused]))
    return Outcome("fail" if wrong else "pass", words, len(wrong), 0)


def _judged(one: Counted) -> list[bool]:
    found = [one.reads_agree, one.writes_agree] if one.limited_by_memory else []
    found += [one.flops_agree]
    active = one.tensor_pipe_active_fraction
    found += [active > BUSY] if (one.operator, one.regime) == ("gemm", "compute") and active is not None else []
    return [judged for judged in found if judged is not None]


@register_check(AGREE, of_cpus=True, action=AGAIN)
def check_agree(known: Evidence) -> Outcome | None:
    """Of CPUs: a GPU's are compared with its clock and the vendor's."""
    if DEVICE_TRAITS[known.device.device_kind].accelerator:
        return None
    ceilings = [*known.compute, *known.memory]
    if not ceilings:
        return Outcome("not_applicable", "no ceiling was measured undisturbed")
    apart = [one.name for one in ceilings if one.doubt == "impossible"]
    words = f"contradicted by another ceiling: {', '.join(apart)}" if apart else f"{len(ceilings)} ceilings"
    return Outcome("note" if apart else "pass", words, len(apart), 0)


def _first(words: list[str]) -> str:
    more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    return "; ".join([*words[:SHOWN], *more])
