"""peak_flops: one compute ceiling of one device: the reference GEMM, the fastest of many, and what load leaves."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn(snakemake)

from roofline import devices
from roofline.core.formatting import flops_unit, number, percent, starred
from roofline.devices.base import Refused, Unsupported
from roofline.measure.compute_ceiling import measure
from roofline.measure.operator_job import Seals
from roofline.operators.gemm import Gemm
from roofline.records.base import read, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.files import file_sha256
from roofline.records.prediction import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import Stopwatch, faults_told, job, say
from roofline.run.paths import below_results


def run(name: str, dtype: str, device_path: str, seals: dict[str, str], **options) -> PeakFlopsRecord:
    """`seals` are the paths of the device's and of the reference GEMM's."""
    record = read(DeviceRecord, device_path)
    sealed = Seals(read(PredictionRecord, seals["device"]), read(OperatorPredictionRecord, seals["operator"]).constants)
    skipped, peak, measurements = None, None, []
    watch = Stopwatch()
    try:
        peak, measurements = measure(devices.open_device(name), record, sealed, dtype, **options)
    except (Unsupported, Refused) as reason:
        skipped = str(reason)
    return PeakFlopsRecord(
        device=name,
        dtype=dtype,
        seals={below_results(path): file_sha256(path) for path in seals.values()},
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        info=Gemm().info() if measurements else None,
        measurements=measurements,
        skipped=skipped,
        peak=peak,
    )


def line(record: PeakFlopsRecord) -> str:
    name = f"peak_flops {record.device} {record.dtype}"
    if record.skipped:
        return f"{name}: skipped, {record.skipped}"
    peak = record.peak
    whose = "formula's" if peak.unit == "cpu" else "vendor's"
    rates = [peak.burst_tflops, *([peak.sustained_tflops] if peak.sustained_tflops else [])]
    shares = [percent(rate / peak.vendor_tflops) for rate in rates] if peak.vendor_tflops else []
    share = f", {' and '.join(shares)} of the {whose} {number(peak.vendor_tflops)}" if shares else ""
    under_load = f" burst, {number(peak.sustained_tflops)} sustained" if peak.sustained_tflops else ""
    burst = starred(number(peak.burst_tflops), len(peak.burst.latency.samples_s))
    why = f" (investigated: {_cause(peak.investigation.verdict)})" if peak.investigation else ""
    return f"{name}: {burst} {flops_unit(record.dtype)}{under_load}{share}{why}, {record.elapsed_s:.1f} s"


def _cause(verdict: str) -> str:
    return "no cause found" if verdict == "none" else verdict.replace("_", " ")


if __name__ == "__main__":
    name, dtype, params = snakemake.wildcards.device, snakemake.wildcards.dtype, snakemake.params
    with job(f"peak_flops {name} {dtype}", snakemake):
        record = run(
            name,
            dtype,
            snakemake.input.device,
            {"device": snakemake.input.prediction, "operator": snakemake.input.constants},
            size=params.size,
            warmup=params.warmup,
            iterations=params.iterations,
            time_budget_s=params.time_budget_s,
            sustained_s=params.sustained_s,
        )
        write(record, snakemake.output[0])
        say(line(record) + faults_told(read(DeviceRecord, snakemake.input.device), [record]))
