"""peak_flops: the compute ceiling of one dtype on one device, by GEMM after the lab's protocol."""

from roofline import devices
from roofline.datasheets import clock_peak_tflops
from roofline.investigation import THRESHOLD, investigate
from roofline.measuring import StateLog, host_lock, time_caller, time_device
from roofline.operators import gemm
from roofline.prediction import file_sha256, predict_sealed
from roofline.records import (
    DeviceRecord,
    Kernel,
    Measurement,
    PeakFlops,
    PeakFlopsRecord,
    PredictionRecord,
    read,
    write,
)
from roofline.reporting import Stopwatch, job, number, percent, say


def measure(device, record: DeviceRecord, seal: PredictionRecord, dtype, size, warmup, iterations, time_budget_s):
    """Two independent blocks of products, from fresh operands each; below half of the vendor's peak, why.

    The first block is the lab's figure. The ceiling is the highest that was seen. Returns PeakFlops.
    """
    options = {"warmup": warmup, "iterations": iterations, "time_budget_s": time_budget_s / 2}
    product = gemm.Gemm(device, size, dtype, seed=1)
    lab = _block(device, seal, product, dtype, **options)
    repeat = _block(device, seal, gemm.Gemm(device, size, dtype, seed=3), dtype, **options)
    lab_tflops, repeat_tflops = (block.flops / block.latency.median_s / 1e12 for block in (lab, repeat))

    peak = record.vendor.peaks.get(dtype)
    faster = max((lab, repeat), key=lambda block: 1 / block.latency.median_s)
    best, best_ci95 = max(lab_tflops, repeat_tflops), _tflops_interval(faster)
    kernel = Kernel(**device.kernel_of(product.step))  # after all timing: a profiler may stay in the process
    investigation = None
    if peak and best < THRESHOLD * peak.tflops:
        investigation = investigate(device, dtype, product, best, record.vendor, kernel, time_budget_s)
        found = max((trial.tflops or 0 for trial in investigation.trials), default=0)
        best, best_ci95 = max((best, best_ci95), (found, None), key=lambda figure: figure[0])
    clock_tflops = _clock_tflops(peak, record, faster.sm_clock_mhz)
    return PeakFlops(
        method="gemm",
        unit="cuda_core" if kernel.tensor_cores is False else device.compute_unit(dtype),
        size=size,
        tflops=best,
        ci95=best_ci95,
        lab_tflops=lab_tflops,
        repeat_tflops=repeat_tflops,
        sustained_tflops=None,
        vendor_tflops=peak.tflops if peak else None,
        fraction_of_vendor=best / peak.tflops if peak else None,
        clock_mhz=faster.sm_clock_mhz,
        clock_tflops=clock_tflops,
        fraction_of_clock=best / clock_tflops if clock_tflops else None,
        kernel=kernel,
        lab=lab,
        repeat=repeat,
        investigation=investigation,
    )


def _block(device, seal, product: gemm.Gemm, dtype: str, **options) -> Measurement:
    size = product.size
    work, traffic = gemm.flops(size, size, size), gemm.traffic_bytes(size, size, size, dtype)
    predicted = predict_sealed(
        seal, flops=work, traffic_bytes=traffic, compute_ceiling=device.compute_ceiling(dtype), calls="gemm"
    )
    check = product.check()
    log = StateLog(device)
    log.read("before")
    latency = time_caller(device, product.step, **options)
    device_latency = time_device(device, product.step, latency, time_budget_s=options["time_budget_s"])
    samples = len(latency.samples_s)
    sm_clock_mhz = device.clock_under(product.step, samples, latency.median_s, lambda: log.read("during"))
    log.read("after")
    return Measurement(
        operator=gemm.OPERATOR,
        implementation=gemm.IMPLEMENTATION[device.kind],
        preset=None,
        scope=None,
        dtype=dtype,
        cache="warm",
        shape={"m": size, "n": size, "k": size},
        flops=work,
        bytes=traffic,
        compute_ceiling=device.compute_ceiling(dtype),
        memory_ceilings=device.memory_ceilings,
        memory_level=device.memory_level,
        predicted=predicted,
        check=check,
        latency=latency,
        device_latency=device_latency,
        overhead_s=None,
        states=log.states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _tflops_interval(block: Measurement) -> tuple[float, float] | None:
    if block.latency.ci95_s is None:
        return None
    fastest, slowest = block.latency.ci95_s
    return block.flops / slowest / 1e12, block.flops / fastest / 1e12


def _clock_tflops(peak, record: DeviceRecord, clock_mhz: float | None) -> float | None:
    if not (peak and peak.operations_per_clock_per_multiprocessor and clock_mhz):
        return None
    multiprocessors = record.hardware["multiprocessors"]
    return clock_peak_tflops(peak.operations_per_clock_per_multiprocessor, multiprocessors, clock_mhz)


def run(name: str, dtype: str, device_path: str, seal_path: str, **options) -> PeakFlopsRecord:
    with host_lock():
        watch = Stopwatch()
        device = devices.open_device(name)
        skipped, peak = device.unsupported(dtype), None
        if not skipped:
            record, seal = read(DeviceRecord, device_path), read(PredictionRecord, seal_path)
            peak = measure(device, record, seal, dtype, **options)
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
    why = f" (investigated: {_cause(peak.investigation.verdict)})" if peak.investigation else ""
    return f"{name}: {number(peak.tflops)} TFLOPS{share}{why}, {record.elapsed_s:.1f} s"


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
        )
        write(record, snakemake.output[0])
        say(line(record))
