"""One compute ceiling: the reference GEMM, a search for the fastest product, its burst, and sustained load."""

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from roofline.core.dtypes import REGISTER_ONLY
from roofline.core.terms import KINDS, Unsupported
from roofline.devices import datasheets
from roofline.devices.base import Device, Workload
from roofline.measure import search, sustained
from roofline.measure.investigation import THRESHOLD, investigate
from roofline.measure.operator_job import Seals, declare
from roofline.measure.protocol import time_caller, time_device_alike
from roofline.measure.undisturbed import LAG_S, StateLog, flagged, limited_during
from roofline.operators.gemm.operator import Gemm, products_on
from roofline.records.compute import Block, Candidate, Kernel, PeakFlops, Sustained
from roofline.records.device import DeviceRecord
from roofline.records.operator import Measurement
from roofline.records.timing import Check, Search

REST_S = 0.2  # before a block: the power limit looks back over tenths of a second
SHORT_REST_S = 0.1  # before blocks that are compared with one another alone
BURST_S = 1.0  # that a burst may take at least: on a slow card the search's budget would leave too few products
VARIANT_S = 0.3  # of a variant's block, and half of it for the trials before
HELD_S = 1.5 * LAG_S  # that a short register-only kernel goes on, read three quarters through
LOOP_S = 0.15  # of a CPU's register-only loops, of which a step takes milliseconds: some 30 samples
BLOCK_S = 0.6  # products of which a block would take longer than the reference GEMM's are not tried: no burst
NEAR = 0.92  # of the fastest trial: among these, those with the least work get a whole block too
LEAST_WORK = 3  # so many of them: how near a short trial comes to the fastest differs from run to run
AS_FAST = 0.99  # of the fastest finalist: among these the one whose block is over first
CLEARLY_SLOWER = 0.995  # than the best other finalist: where the chosen one is, that one is re-measured too


# Register-only kernels, offered as a module of products offers its own.
REGISTERS = SimpleNamespace(
    reference_product=lambda device, ceiling, size, seed: None,
    beside_reference=lambda device, ceiling, size, seed: [],
    candidates=lambda device, ceiling, size, most_flops, seed: device.fma_candidates(ceiling, seed),
    workload=lambda device, ceiling, size, product, seed: device.fma_workload(ceiling, product, seed),
    variants=lambda device, ceiling, product, seed: [],
)


class Target(NamedTuple):
    """A ceiling to find, and the workloads that reach it; `size` is the side of the reference GEMM."""

    device: Device
    ceiling: str
    size: int
    products: Any


@dataclass(frozen=True)
class Found:
    """The fastest product of the search, its blocks, and what sustained load leaves of it."""

    workload: Workload
    burst: Block
    slower: list[Block]
    variants: list[Block]
    load: Sustained | None
    candidates: list[Candidate]
    search: Search

    @property
    def headline(self) -> tuple[float, tuple | None, bool]:
        """TFLOPS, their interval, and whether all was throttled: of burst or load, whichever is faster."""
        both = [(self.burst.tflops, self.burst.ci95, self.burst.latency.all_throttled)]
        both += [(self.load.tflops, self.load.ci95, self.load.all_throttled)] if self.load else []
        return max(both, key=lambda figure: figure[0])


def measure(
    device: Device, record: DeviceRecord, seals: Seals, ceiling, size, warmup, iterations, time_budget_s, sustained_s
) -> tuple[PeakFlops, list[Measurement]]:
    """The ceiling, and the reference GEMM as an operator under it; next to it ours, where there is one.

    Register-only kernels get no sustained load: on an H200 they draw 380 to 520 of its 700 W and keep their burst. Nor
    does a CPU, which reports neither clock nor power.
    """
    options = {"warmup": warmup, "iterations": iterations, "time_budget_s": time_budget_s}
    products, reports_power = (
        REGISTERS if ceiling in REGISTER_ONLY else products_on(device),
        KINDS[device.kind].reports_power,
    )
    target = Target(device, ceiling, size, products)
    if products is REGISTERS and not reports_power:
        options["time_budget_s"] = min(time_budget_s, LOOP_S)
    first = products.reference_product(*target[:3], 1)
    reference = _as_operator(device, seals, first, ceiling, **options) if first else None
    ours = [_as_operator(device, seals, one, ceiling, **options) for one in products.beside_reference(*target[:3], 1)]
    found = _found(target, first, reference, options, sustained_s if first and reports_power else None)
    tflops, peak = found.headline[0], record.vendor.peaks.get(ceiling)
    starved, points = (found.load.starved_points, len(found.load.curve)) if found.load else (0, 0)
    idle = f"the host left the device without work in {starved} of {points} moments of load, which do not count"
    kernel = Kernel(**device.kernel_of(found.workload.step))  # after all timing: a profiler may stay in the process
    investigation = None
    if first and peak and tflops < THRESHOLD * peak.tflops:
        args = (found.burst.tflops, found.load, record.vendor, kernel, time_budget_s)
        investigation = investigate(device, ceiling, *args)
    unit = "cuda_core" if first and kernel.tensor_cores is False else device.compute_unit(ceiling)
    known = {
        "method": "gemm" if first else "fma",
        "unit": unit,
        "reference_tflops": _tflops(reference) if reference else None,
        "reference_inputs": first.inputs if first else None,
        "doubts": [idle] if starved else [],
        "kernel": kernel,
        "investigation": investigation,
    }
    return _peak(device, record, ceiling, found, known), [reference, *ours] if reference else []


def _found(
    target: Target,
    first: Workload | None,
    reference: Measurement | None,
    options: dict,
    sustained_s: float | None,
) -> Found:
    """The search, whole blocks of the chosen product and of its variants, and sustained load of `sustained_s`."""
    device, kind = target.device, KINDS[target.device.kind]
    candidates, searched = _search(target, first, reference, options)
    if kind.reports_power:
        options = options | {"time_budget_s": max(options["time_budget_s"], BURST_S)}
    blocks = _remeasured(target, candidates, options)
    if reference and kind.synchronous and _tflops(reference) > blocks[0][1].tflops:
        known = (reference.check, reference.latency, reference.states, reference.sm_clock_mhz)
        blocks.insert(0, (first, _block_of(first, *known)))
    (workload, burst), *slower = blocks
    brief = options | {"time_budget_s": min(options["time_budget_s"], VARIANT_S)}
    ways = target.products.variants(device, target.ceiling, workload.product, 7)
    variants = [_fastest(device, some, brief) for some in ways]
    load = sustained.sustain(device, workload, sustained_s, burst.latency.median_s) if sustained_s else None
    slower, variants = [block for _, block in slower], [block for block in variants if block]
    return Found(workload, burst, slower, variants, load, candidates, searched)


def _peak(device: Device, record: DeviceRecord, ceiling: str, found: Found, known: dict) -> PeakFlops:
    """The record of a ceiling; `known` are fields that do not follow from `found`."""
    burst, load, peak = found.burst, found.load, record.vendor.peaks.get(ceiling)
    tflops, ci95, all_throttled = found.headline
    clock_tflops = _clock_tflops(peak, record, burst.sm_clock_mhz)
    load_clock_tflops = _clock_tflops(peak, record, load.sm_clock_mhz) if load else None
    burst_s = sum(burst.latency.samples_s)
    if known["method"] == "fma" and KINDS[device.kind].reports_power and burst_s < LAG_S:
        burst, burst_s = _held(device, found.workload, burst), burst_s + HELD_S
    burst_limited_by = limited_during(burst.states, burst_s)
    reports = any(state.throttle_reasons is not None for state in burst.states)
    return PeakFlops(
        **known,
        tflops=tflops,
        ci95=ci95,
        burst_tflops=burst.tflops,
        sustained_tflops=load.tflops if load else None,
        vendor_tflops=peak.tflops if peak else None,
        fraction_of_vendor=tflops / peak.tflops if peak else None,
        clock_mhz=burst.sm_clock_mhz,
        clock_tflops=clock_tflops,
        fraction_of_clock=burst.tflops / clock_tflops if clock_tflops else None,
        sustained_fraction_of_clock=load.tflops / load_clock_tflops if load_clock_tflops else None,
        inputs=burst.inputs,
        limited_by=sorted({*(burst_limited_by or []), *(load.limited_by if load else [])}),
        burst_limited_by=burst_limited_by,
        sustained_limited_by=load.limited_by if load and reports else None,
        throttled=all_throttled if reports else None,
        search=found.search,
        candidates=found.candidates,
        burst=burst,
        slower_remeasurements=found.slower,
        sustained=load,
        variants=found.variants,
    )


def _as_operator(device: Device, seals: Seals, workload: Workload, dtype: str, **options) -> Measurement:
    """A product as an operator under its roof, with its own prediction."""
    cell = Gemm().measured(device, dtype, workload)
    declared = declare(cell, None, seals, cold=False)
    check, latency, states, sm_clock_mhz = _timed(device, workload, **options)
    on_device, doubts = time_device_alike(
        device, workload.step, latency, time_budget_s=options["time_budget_s"], rest=lambda: _rest(device)
    )
    return Measurement(
        **declared,
        check=check.model_copy(update={"error_after": workload.compare().error}),
        latency=latency,
        device_latency=on_device,
        overhead_s=None,
        doubts=doubts,
        states=states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _tflops(measured: Measurement) -> float:
    return measured.flops / measured.latency.median_s / 1e12


def _search(
    target: Target, first: Workload | None, reference: Measurement | None, options: dict
) -> tuple[list[Candidate], Search]:
    """Candidates by a short trial, the fastest first; whole blocks of the finalists. On a CPU the reference GEMM is a
    candidate that has had its block; on a GPU it is tried again, since its first block was of a rested card."""
    known, device = [], target.device
    if reference and KINDS[device.kind].synchronous:
        tflops = _tflops(reference)
        known = [Candidate(product=first.product, flops=first.flops, trial_tflops=tflops, block_tflops=tflops)]
    block = options["warmup"] + options["iterations"]
    most_flops = max(reference.flops, _tflops(reference) * 1e12 * BLOCK_S / block) if reference else 0
    ways = list(target.products.candidates(*target[:3], most_flops, 3))
    tried, searched = [], Search(offered=0, tried=0, refused=[])
    if ways or not known:
        tried, searched = _tried(device, ways, options["time_budget_s"])
    found = [
        Candidate(product=workload.product, flops=workload.flops, trial_tflops=workload.flops / step_s / 1e12)
        for workload, step_s in tried
    ]
    found += known
    for place in finalists(found):
        if found[place].block_tflops:
            continue
        _rest(device, SHORT_REST_S)
        workload = tried[place][0]
        latency = time_caller(device, workload.step, **options)
        found[place].block_tflops = workload.flops / latency.median_s / 1e12
    counts = {"offered": searched.offered + len(known), "tried": searched.tried + len(known)}
    return sorted(found, key=lambda candidate: -candidate.trial_tflops), searched.model_copy(update=counts)


def _tried(device: Device, ways: list, budget_s: float):
    return search.try_all(device, ways, lambda way: way.step, budget_s, work_of=lambda way: way.flops)


def finalists(found: list[Candidate]) -> list[int]:
    """Places of the fastest trial and of those with the least work among those near it, each of another shape."""
    fastest = sorted(range(len(found)), key=lambda place: -found[place].trial_tflops)
    of_shape: dict[tuple, int] = {}
    for place in fastest:
        of_shape.setdefault(tuple(found[place].product.shape.values()), place)
    best = found[fastest[0]].trial_tflops
    near = [place for place in of_shape.values() if found[place].trial_tflops >= NEAR * best]
    least = sorted(near, key=lambda place: found[place].flops)
    return list(dict.fromkeys([near[0], *least[:LEAST_WORK]]))


def chosen(found: list[Candidate]) -> list[Candidate]:
    """Of the finalists that are nearly the fastest over a whole block the one with the least work, because a block that
    ends before the power limit acts repeats; then the best of the others."""
    timed = sorted((one for one in found if one.block_tflops), key=lambda one: -one.block_tflops)
    first = min(
        (one for one in timed if one.block_tflops >= AS_FAST * timed[0].block_tflops), key=lambda one: one.flops
    )
    return [first, *[one for one in timed if one.product != first.product][:1]]


def _remeasured(target: Target, found: list[Candidate], options: dict) -> list[tuple[Workload, Block]]:
    """The chosen product on other operands, the fastest block first; the best of the others too, if it was faster.

    The power limit does not act on every block. The higher of two is 0.1 % high if each scatters by 0.3 %.
    """

    def again(candidate: Candidate, seed: int) -> tuple[Workload, Block]:
        workload = target.products.workload(*target[:3], candidate.product, seed)
        return workload, _block(target.device, workload, **options)

    first, *rivals = chosen(found)
    blocks = [again(first, 5)]
    if rivals and blocks[0][1].tflops < CLEARLY_SLOWER * rivals[0].block_tflops:
        blocks.append(again(rivals[0], 13))
    return sorted(blocks, key=lambda one: -one[1].tflops)


def _fastest(device: Device, ways: list, options: dict) -> Block | None:
    """The block of the fastest of these; None where the library runs none of them."""
    try:
        tried, _ = _tried(device, ways, options["time_budget_s"] / 2)
    except Unsupported:
        return None
    return _block(device, min(tried, key=lambda one: one[1])[0], **options)


def _block(device: Device, workload: Workload, **options) -> Block:
    """One block by the reference protocol, after a rest, of a result that was checked."""
    return _block_of(workload, *_timed(device, workload, **options))


def _block_of(workload: Workload, check: Check, latency, states: list, sm_clock_mhz: float | None) -> Block:
    rates = latency.ci95_s and (workload.flops / latency.ci95_s[1] / 1e12, workload.flops / latency.ci95_s[0] / 1e12)
    return Block(
        product=workload.product,
        inputs=workload.inputs,
        flops=workload.flops,
        check=check,
        latency=latency,
        tflops=workload.flops / latency.median_s / 1e12,
        ci95=rates,
        states=states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _timed(device: Device, workload: Workload, **options):
    """Check, timing, states and clock of one block after a rest; the result is compared before it and after it.

    The clock is the kernel's own, or that of the block. Raises ArithmeticError for a wrong result.
    """
    began = time.monotonic()
    check = workload.check()
    checked_s = time.monotonic() - began if KINDS[device.kind].synchronous else None  # it ran the product too
    _rest(device)
    log = StateLog(device)
    log.read("before")
    latency = time_caller(device, workload.step, checked_s=checked_s, **options)
    sm_clock_mhz = workload.clock_mhz() or latency.sm_clock_mhz
    log.read("after")
    check = check.model_copy(update={"error_after": workload.compare().error})
    return check, flagged(latency, log.states), log.states, sm_clock_mhz


def _held(device: Device, workload: Workload, burst: Block) -> Block:
    """A burst with a reading after as long a load as NVML needs to report what limits it."""
    log, count = StateLog(device), max(1, round(HELD_S / burst.latency.median_s))
    device.step_times(workload.step, count, 0, lambda: log.read("during"))
    return burst.model_copy(update={"states": [*burst.states, *log.states]})


def _rest(device: Device, seconds: float = REST_S) -> None:
    device.synchronize()
    if KINDS[device.kind].reports_power:
        time.sleep(seconds)


def _clock_tflops(peak, record: DeviceRecord, clock_mhz: float | None) -> float | None:
    if not (peak and peak.operations_per_clock_per_multiprocessor and clock_mhz):
        return None
    rate, multiprocessors = peak.operations_per_clock_per_multiprocessor, record.hardware["multiprocessors"]
    return datasheets.clock_peak_tflops(rate, multiprocessors, clock_mhz)
