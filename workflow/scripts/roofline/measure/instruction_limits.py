"""The issue rate of the instruction roofline and the limits of loads, by kernels of the device."""

from collections.abc import Iterator
from dataclasses import replace

from roofline.devices.base import CudaDevice
from roofline.measure import search
from roofline.measure.protocol import TimingBudget, time_until_precise
from roofline.measure.undisturbed import StateLog
from roofline.records.base import copy_fields
from roofline.records.instructions_record import IssueRate, MeasuredAccessLimit

# Of the time budget. For 18 access limits half the samples gave 17 medians within 0.02 % and one within 0.4 %.
LIMIT_BUDGET_SHARE = 0.5


def measure_issue_rate(device: CudaDevice, budget: TimingBudget) -> IssueRate:
    """Return the warp instructions per second of the fastest issue kernel, and the clock that it counted itself.

    Raises ArithmeticError for a wrong result.
    """
    kernels, budget_s = device.make_issue_kernels(), budget.time_budget_s
    trials, search_record = search.try_candidates(
        device, kernels, lambda kernel: kernel.step, budget_s, work_of=lambda kernel: kernel.warp_instructions
    )
    best = min(trials, key=lambda trial: trial.seconds / trial.candidate.warp_instructions).candidate
    check, log = best.check(), StateLog(device)
    timing = time_until_precise(device, best.step, log, budget)
    return IssueRate(
        kernel=best.name,
        warp_instructions=best.warp_instructions,
        multiprocessors=device.multiprocessors,
        warp_instructions_per_s=best.warp_instructions / timing.median_s,
        sm_clock_mhz=device.kernel_clock_mhz(),
        search=search_record,
        check=check,
        timing=timing,
        states=log.states,
    )


def measure_access_limits(device: CudaDevice, budget: TimingBudget) -> Iterator[MeasuredAccessLimit]:
    """Yield the most requests per second of loads, by stride in global memory and by bank conflicts in shared memory.

    Raises ArithmeticError where a kernel loaded wrong words.
    """
    budget_of_limit = replace(budget, time_budget_s=LIMIT_BUDGET_SHARE * budget.time_budget_s)
    for kernel in device.make_access_limit_kernels():
        checked_against = kernel.verify()
        timing = time_until_precise(device, kernel.step, StateLog(device), budget_of_limit)
        requests_per_s, clock_mhz = kernel.requests / timing.median_s, device.kernel_clock_mhz()
        yield MeasuredAccessLimit(
            **copy_fields(kernel, "pattern", "degree", "requests", "transactions_per_request"),
            requests_per_s=requests_per_s,
            sm_clock_mhz=clock_mhz,
            cycles_per_request=device.multiprocessors * clock_mhz * 1e6 / requests_per_s if clock_mhz else None,
            timing=timing,
            checked_against=checked_against,
        )
