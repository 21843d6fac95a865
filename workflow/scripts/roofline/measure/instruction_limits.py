"""The issue rate of the instruction roofline and the limits of loads, by kernels of the device."""

from roofline.devices.base import Device
from roofline.measure import search
from roofline.measure.protocol import time_until_precise
from roofline.measure.undisturbed import StateLog
from roofline.records.instructions_record import IssueRate, MeasuredAccessLimit

LIMIT_BUDGET_SHARE = 0.5  # of the time budget: of 18 walls half the samples gave 17 medians within 0.02 %, one 0.4 %


def measure_issue_rate(device: Device, warmup: int, iterations: int, time_budget_s: float) -> IssueRate:
    """The fastest of the device's kernels, and the clock that it counted itself."""
    kernels = device.make_issue_kernels()
    tried, searched = search.try_candidates(
        device, kernels, lambda one: one.step, time_budget_s, lambda one: one.warp_instructions
    )
    best = min(tried, key=lambda one: one.seconds / one.way.warp_instructions).way
    check, log = best.check(), StateLog(device)
    latency = time_until_precise(device, best.step, log, warmup=warmup, most=iterations, time_budget_s=time_budget_s)
    return IssueRate(
        kernel=best.name,
        warp_instructions=best.warp_instructions,
        multiprocessors=device.multiprocessors,
        warp_instructions_per_s=best.warp_instructions / latency.median_s,
        sm_clock_mhz=device.kernel_clock_mhz(),
        search=searched,
        check=check,
        timing=latency,
        states=log.states,
    )


def measure_access_limits(
    device: Device, warmup: int, iterations: int, time_budget_s: float
) -> list[MeasuredAccessLimit]:
    budget_s = LIMIT_BUDGET_SHARE * time_budget_s
    return [
        _measure_access_limit(device, kernel, warmup, iterations, budget_s)
        for kernel in device.make_access_limit_kernels()
    ]


def _measure_access_limit(
    device: Device, kernel, warmup: int, iterations: int, time_budget_s: float
) -> MeasuredAccessLimit:
    verified, log = kernel.verify(), StateLog(device)
    latency = time_until_precise(device, kernel.step, log, warmup=warmup, most=iterations, time_budget_s=time_budget_s)
    rate, clock_mhz = kernel.requests / latency.median_s, device.kernel_clock_mhz()
    return MeasuredAccessLimit(
        pattern=kernel.pattern,
        degree=kernel.degree,
        requests=kernel.requests,
        transactions_per_request=kernel.transactions_per_request,
        requests_per_s=rate,
        sm_clock_mhz=clock_mhz,
        cycles_per_request=device.multiprocessors * clock_mhz * 1e6 / rate if clock_mhz else None,
        timing=latency,
        checked_against=verified,
    )
