"""peak_flops: one compute ceiling of one device: the lab's square, the fastest of many, and what load leaves of it."""

import time

from roofline import devices, search
from roofline.measuring import StateLog, flagged, held_back_by, host_lock, time_caller, time_device
from roofline.operators import gemm
from roofline.prediction import Way, file_sha256, predict_sealed
from roofline.records import (
    Block,
    Candidate,
    DeviceRecord,
    Kernel,
    Measurement,
    PeakFlops,
    PeakFlopsRecord,
    PredictionRecord,
    Search,
    Sustained,
    read,
    write,
)
from roofline.reporting import Stopwatch, job, number, percent, say

REST_S = 0.2  # before a block: the power limit looks back over tenths of a second
SHORT_REST_S = 0.1  # before blocks that are compared with one another alone, or tell the clock alone
BURST_S = 1.0  # that a burst may take at least: on a slow card the search's budget would leave too few products
BLOCK_S = 0.6  # products larger than the lab's, of which a block would take longer, are not tried: it would be no burst
NEAR = 0.92  # of the fastest trial: among these, those with the least work get a whole block too
LEAST_WORK = 3  # so many of them: how near a short trial comes to the fastest differs from run to run
AS_FAST = 0.99  # of the fastest finalist: among these the one whose block is over first
OUTDONE = 0.995  # of the best other finalist: where the chosen one gives less afresh, that one is measured afresh too
REPEATED = 0.98  # of the lab's figure: on a CPU as near as a block of the same product comes to another


def measure(
    device, record: DeviceRecord, seal: PredictionRecord, ceiling, size, warmup, iterations, time_budget_s, sustained_s
) -> PeakFlops:
    """The lab's square, then a search, the best of it afresh, its siblings, and sustained load.

    What only a ceiling that there is needs is imported here: most of a CPU's are skipped, at the price of a start.

    Register-only kernels get no sustained load: on an H200 they draw 380 to 520 of its 700 W and keep their burst. Nor
    does a CPU, which tells neither clock nor power.
    """
    from roofline import load, selfchecks
    from roofline.investigation import THRESHOLD, investigate

    options = {"warmup": warmup, "iterations": iterations, "time_budget_s": time_budget_s}
    lab_product = device.lab_product(ceiling, size, seed=1)
    lab = _lab(device, seal, lab_product, ceiling, **options) if lab_product else None
    lab_tflops = lab.flops / lab.latency.median_s / 1e12 if lab else None
    known = []
    if lab and device.kind == "cpu":  # the lab's square is one of its candidates, and has its block
        square = lab_product.product
        known = [Candidate(product=square, flops=lab.flops, trial_tflops=lab_tflops, block_tflops=lab_tflops)]
    found, searched = _search(device, ceiling, size, lab, known, options)
    if device.kind == "gpu":
        options["time_budget_s"] = max(time_budget_s, BURST_S)
    (workload, burst), *outdone = _burst(device, ceiling, size, found, lab, options)
    best = workload.product
    siblings = (_fastest(device, workloads, options) for workloads in device.beside(ceiling, best, seed=7))
    beside = [block for block in siblings if block]
    sustained = None
    if sustained_s and lab and device.kind == "gpu":
        sustained = load.sustain(device, workload, sustained_s, burst.latency.median_s)

    figures = [(burst.tflops, burst.ci95, burst.latency.all_throttled)]
    if sustained:
        figures.append((sustained.tflops, sustained.ci95, sustained.all_throttled))
    tflops, ci95, all_throttled = max(figures, key=lambda figure: figure[0])
    peak = record.vendor.peaks.get(ceiling)
    doubts = selfchecks.require_possible(ceiling, tflops, peak, record)
    for block in beside:
        doubts += selfchecks.require_possible(f"{ceiling} beside", block.tflops, peak, record)
    if ceiling == "tf32":
        doubts += selfchecks.require_above_fp32(device, best, burst.tflops, record)
    kernel = Kernel(**device.kernel_of(workload.step))  # after all timing: a profiler may stay in the process
    investigation = None
    if lab and peak and tflops < THRESHOLD * peak.tflops:
        investigation = investigate(device, ceiling, lab_product, tflops, record.vendor, kernel, time_budget_s)
    clock_tflops = _clock_tflops(peak, record, burst.sm_clock_mhz)
    told = any(state.throttle_reasons is not None for state in burst.states)
    return PeakFlops(
        method="gemm" if lab else "fma",
        unit="cuda_core" if lab and kernel.tensor_cores is False else device.compute_unit(ceiling),
        tflops=tflops,
        ci95=ci95,
        lab_tflops=lab_tflops,
        burst_tflops=burst.tflops,
        sustained_tflops=sustained.tflops if sustained else None,
        vendor_tflops=peak.tflops if peak else None,
        fraction_of_vendor=tflops / peak.tflops if peak else None,
        clock_mhz=burst.sm_clock_mhz,
        clock_tflops=clock_tflops,
        fraction_of_clock=burst.tflops / clock_tflops if clock_tflops else None,
        inputs=burst.inputs,
        held_back_by=_held_back_by(burst, sustained),
        throttled=all_throttled if told else None,
        doubts=doubts,
        search=searched,
        candidates=found,
        burst=burst,
        outdone=[block for _, block in outdone],
        sustained=sustained,
        beside=beside,
        kernel=kernel,
        lab=lab,
        investigation=investigation,
    )


def _lab(device, seal, workload, dtype: str, **options) -> Measurement:
    """The lab's protocol on its square product: an operator under its roof, with a prediction of its own."""
    m, n, k = (workload.product.shape[side] for side in "mnk")
    traffic = gemm.traffic_bytes(m, n, k, dtype, workload.product.output)
    predicted = predict_sealed(
        seal,
        flops=workload.flops,
        traffic_bytes=traffic,
        compute_ceiling=device.compute_ceiling(dtype),
        way=Way("gemm", None, dtype),
    )
    check, options = _checked(device, workload, options)
    # No rest before it: the card has idled since the job began.
    latency, states, sm_clock_mhz = _timed(device, workload, rest_s=0.0, **options)
    device_latency = time_device(device, workload.step, latency, time_budget_s=options["time_budget_s"])
    return Measurement(
        operator=gemm.OPERATOR,
        implementation=workload.product.library,
        preset=None,
        scope=None,
        dtype=dtype,
        cache="warm",
        shape=workload.product.shape,
        flops=workload.flops,
        bytes=traffic,
        compute_ceiling=device.compute_ceiling(dtype),
        memory_ceilings=device.memory_ceilings,
        memory_level=device.memory_level,
        predicted=predicted,
        check=check,
        latency=latency,
        device_latency=device_latency,
        overhead_s=None,
        states=states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _search(device, ceiling: str, size: int, lab: Measurement | None, known: list[Candidate], options: dict):
    """Every way that the budget allows by a short trial, the fastest first; whole blocks of the finalists.

    What is `known` was timed before, as long as its block would take, and counts as tried.
    """
    block = options["warmup"] + options["iterations"]
    most_flops = max(lab.flops, lab.flops / lab.latency.median_s * BLOCK_S / block) if lab else 0
    workloads = list(device.peak_candidates(ceiling, size, most_flops, seed=3))
    tried, searched = [], Search(offered=0, tried=0, refused=[])
    if workloads or not known:
        tried, searched = _tried(device, workloads, options["time_budget_s"])
    counts = {"offered": searched.offered + len(known), "tried": searched.tried + len(known)}
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
    return sorted(found, key=lambda candidate: -candidate.trial_tflops), searched.model_copy(update=counts)


def _tried(device, workloads: list, budget_s: float):
    return search.try_all(
        device, workloads, lambda workload: workload.step, budget_s, work_of=lambda workload: workload.flops
    )


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


def with_block(found: list[Candidate]) -> list[Candidate]:
    """Those that had a whole block."""
    return [candidate for candidate in found if candidate.block_tflops]


def chosen(found: list[Candidate]) -> Candidate:
    """The finalist to measure: nearly the fastest over a whole block, and of those the one with the least work.

    A short block ends before the power limit acts, and so comes out the same in the next run.
    """
    fastest = max(map(_block_tflops, with_block(found)))
    return min((one for one in with_block(found) if one.block_tflops >= AS_FAST * fastest), key=lambda one: one.flops)


def _burst(device, ceiling: str, size: int, found: list[Candidate], lab: Measurement | None, options: dict):
    """Products measured afresh, the fastest first, as (workload, block): the one chosen, and what may be faster.

    On a GPU that is the best of the other finalists, where the chosen one now gives less than it: whether the power
    limit acts on a block is not the same each time. And it is the lab's product, where that was faster before. On a CPU
    the two are often the same product, then measured twice already: a third time is for what differs by more than two
    such blocks do, or by more than the lab's own interval allows.

    The highest of several blocks is a little high: by 0.1 % where each scatters by 0.3 %, as simulated.
    """
    product = chosen(found).product
    rival = max((one for one in with_block(found) if one.product != product), key=_block_tflops, default=None)
    afresh = [_afresh(device, device.peak_workload(ceiling, size, product, seed=5), options)]
    if device.kind == "gpu" and rival and afresh[0][1].tflops < OUTDONE * rival.block_tflops:
        afresh.append(_afresh(device, device.peak_workload(ceiling, size, rival.product, seed=13), options))
    afresh.sort(key=lambda one: -one[1].tflops)
    fastest = afresh[0][1].tflops
    lab_tflops = lab.flops / lab.latency.median_s / 1e12 if lab else 0.0
    if lab_tflops <= fastest:
        return afresh
    same = device.kind == "cpu" and product.shape == lab.shape and not lab.latency.ci95_s
    if same and fastest >= REPEATED * lab_tflops:
        return afresh
    of_lab = device.lab_product(ceiling, size, seed=11)
    if device.kind == "gpu" and of_lab.product in [block.product for _, block in afresh]:
        return afresh  # it is one of them: the higher of two blocks of one product would be luck
    return sorted([*afresh, _afresh(device, of_lab, options)], key=lambda one: -one[1].tflops)


def _block_tflops(candidate: Candidate) -> float:
    return candidate.block_tflops


def _afresh(device, workload, options: dict):
    return workload, _block(device, workload, **options)


def _fastest(device, workloads: list, options: dict) -> Block | None:
    """The block of the fastest of these; None where the library runs none of them."""
    try:
        tried, _ = _tried(device, workloads, options["time_budget_s"] / 2)
    except search.Refused:
        return None
    return _block(device, min(tried, key=lambda one: one[1])[0], **options)


def _block(device, workload, **options) -> Block:
    """One block after the lab's protocol, after a rest, of a result that was checked."""
    check, options = _checked(device, workload, options)
    latency, states, sm_clock_mhz = _timed(device, workload, **options)
    return Block(
        product=workload.product,
        inputs=workload.inputs,
        flops=workload.flops,
        check=check,
        latency=latency,
        tflops=workload.flops / latency.median_s / 1e12,
        ci95=_rates(workload.flops, latency),
        states=states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _checked(device, workload, options: dict):
    """The check of a result, and the options of the block after it.

    A CPU's check is a product of the very block, run to its end: where the warm-up would take half of the budget or
    more, one product is enough of it, and the time goes to those that count.
    """
    began = time.monotonic()
    check = workload.check()
    took_s = time.monotonic() - began
    if device.kind == "cpu" and options["warmup"] * took_s > options["time_budget_s"] / 2:
        options = options | {"warmup": 1, "checked_s": took_s}
    return check, options


def _timed(device, workload, rest_s: float = REST_S, **options):
    """Timing, states and clock of one block. The clock is the kernel's own, or counted beside another such block."""
    _rest(device, rest_s)
    log = StateLog(device)
    log.read("before")
    latency = time_caller(device, workload.step, **options)
    log.read("after")
    sm_clock_mhz = workload.clock_mhz()
    if sm_clock_mhz is None:
        _rest(device, SHORT_REST_S)
        count = len(latency.samples_s)
        sm_clock_mhz = device.clock_under(workload.step, count, latency.median_s, lambda: log.read("during"))
    return flagged(latency, log.states), log.states, sm_clock_mhz


def _rest(device, seconds: float = REST_S) -> None:
    device.synchronize()
    if device.kind == "gpu":
        time.sleep(seconds)


def _rates(flops: int, latency) -> tuple[float, float] | None:
    if latency.ci95_s is None:
        return None
    fastest, slowest = latency.ci95_s
    return flops / slowest / 1e12, flops / fastest / 1e12


def _held_back_by(burst: Block, sustained: Sustained | None) -> list[str]:
    return sorted({*held_back_by(burst.states), *(sustained.held_back_by if sustained else [])})


def _clock_tflops(peak, record: DeviceRecord, clock_mhz: float | None) -> float | None:
    if not (peak and peak.operations_per_clock_per_multiprocessor and clock_mhz):
        return None
    from roofline.datasheets import clock_peak_tflops

    multiprocessors = record.hardware["multiprocessors"]
    return clock_peak_tflops(peak.operations_per_clock_per_multiprocessor, multiprocessors, clock_mhz)


def run(name: str, dtype: str, device_path: str, seal_path: str, **options) -> PeakFlopsRecord:
    record, seal = read(DeviceRecord, device_path), read(PredictionRecord, seal_path)
    watch = Stopwatch()
    skipped, peak = devices.unsupported(name, dtype), None
    if not skipped:
        with host_lock():
            watch = Stopwatch()
            try:
                peak = measure(devices.open_device(name), record, seal, dtype, **options)
            except (devices.Unsupported, search.Refused) as reason:
                skipped = str(reason)
    return PeakFlopsRecord(
        device=name,
        dtype=dtype,
        seal_sha256=file_sha256(seal_path),
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        skipped=skipped,
        peak=peak,
    )


def line(record: PeakFlopsRecord) -> str:
    name = f"peak_flops {record.device} {record.dtype}"
    if record.skipped:
        return f"{name}: skipped, {record.skipped}"
    peak = record.peak
    whose = "formula's" if peak.unit == "cpu" else "vendor's"
    share = ""
    if peak.vendor_tflops:
        share = f", {percent(peak.fraction_of_vendor)} of the {whose} {number(peak.vendor_tflops)}"
    under_load = f", {number(peak.sustained_tflops)} sustained" if peak.sustained_tflops else ""
    why = f" (investigated: {_cause(peak.investigation.verdict)})" if peak.investigation else ""
    unit = "TOPS" if record.dtype == "int8" else "TFLOPS"
    return f"{name}: {number(peak.tflops)} {unit}{under_load}{share}{why}, {record.elapsed_s:.1f} s"


def _cause(verdict: str) -> str:
    return "no cause found" if verdict == "none" else verdict.replace("_", " ")


if __name__ == "__main__":
    name, dtype = snakemake.wildcards.device, snakemake.wildcards.dtype
    with job(f"peak_flops {name} {dtype}", snakemake.log[0]):
        record = run(
            name,
            dtype,
            snakemake.input.device,
            snakemake.input.prediction,
            size=snakemake.params.size,
            warmup=snakemake.params.warmup,
            iterations=snakemake.params.iterations,
            time_budget_s=snakemake.params.time_budget_s,
            sustained_s=snakemake.params.sustained_s,
        )
        write(record, snakemake.output[0])
        say(line(record))
