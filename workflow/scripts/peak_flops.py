"""peak_flops: compute ceilings of one device: the reference GEMM, the fastest of many, and what load leaves."""

from pathlib import Path

from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.core.terms import UnsupportedError
from roofline.devices import discovery
from roofline.devices.base import Device
from roofline.measure.compute_ceiling import measure_compute_ceiling
from roofline.measure.operator_job import Seals
from roofline.operators.gemm.cublaslt import BINDINGS
from roofline.records.base import read, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.files import below_results, file_sha256
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import Stopwatch, job, report, seals_of


def measure_ceiling(device: Device, dtype: str, device_path: str, seals: dict[str, str], **options) -> PeakFlopsRecord:
    """`seals` are the paths of the device's and of the reference GEMM's."""
    record = read(DeviceRecord, device_path)
    sealed = Seals(read(PredictionRecord, seals["device"]), read(OperatorPredictionRecord, seals["operator"]).constants)
    skipped, peak, measurements = None, None, []
    watch = Stopwatch()
    try:
        peak, measurements = measure_compute_ceiling(device, record, sealed, dtype, **options)
    except UnsupportedError as reason:
        skipped = str(reason)
    return PeakFlopsRecord(
        device=device.name,
        name=dtype,
        seals={below_results(path): file_sha256(path) for path in seals.values()},
        **watch.taken(),
        measurements=measurements,
        skipped_reason=skipped,
        peak=peak,
    )


if __name__ == "__main__":
    name, params = snakemake.wildcards.device, snakemake.params
    records = {Path(path).stem: path for path in snakemake.output}
    modules = (
        () if REGISTER_ONLY_DTYPES.keys() >= records.keys() else ("roofline.operators.gemm.cuda_products", BINDINGS)
    )
    with job(f"peak_flops {name} {' '.join(records)}", snakemake, modules):
        device = discovery.open_device(name)  # which leaves no other visible: once for all ceilings
        for dtype, path in records.items():
            record = measure_ceiling(
                device,
                dtype,
                snakemake.input.device,
                seals_of(snakemake.input),
                sizes=(params.size, params.reference_size),
                warmup=params.warmup,
                iterations=params.iterations,
                time_budget_s=params.time_budget_s,
                sustained_s=params.sustained_s,
            )
            write(record, path)
            report(record, f"peak_flops {name} {dtype}", read(DeviceRecord, snakemake.input.device))
