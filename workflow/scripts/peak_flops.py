"""peak_flops: compute ceilings of one device: the reference GEMM, the fastest of many, and what load leaves."""

from pathlib import Path
from typing import Any

from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.core.terms import UnsupportedError
from roofline.devices import discovery
from roofline.devices.base import Device
from roofline.measure.compute_ceiling import CeilingTarget, measure_compute_ceiling
from roofline.measure.protocol import TimingBudget
from roofline.operators.gemm.cublaslt import BINDINGS
from roofline.operators.predicting import Seals
from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.files import hash_results
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import Stopwatch, job, seals_of, write_and_say


def measure_ceiling(
    device: Device, ceiling: str, device_path: str, seals: dict[str, str], **settings: Any
) -> PeakFlopsRecord:
    """Measure one compute ceiling; where the device lacks it, the record has the reason.

    `seals` are the paths of the device's and of the reference GEMM's, `settings` those of a CeilingTarget. Raises
    ArithmeticError for a wrong result.
    """
    record = read(DeviceRecord, device_path)
    sealed = Seals(read(PredictionRecord, seals["device"]), read(OperatorPredictionRecord, seals["operator"]).constants)
    watch = Stopwatch()
    fields: dict[str, Any] = {"peak": None, "skipped_reason": None}
    try:
        target = CeilingTarget(device, record, ceiling, **settings)
        fields["peak"], fields["measurements"] = measure_compute_ceiling(target, sealed)
    except UnsupportedError as reason:
        fields["skipped_reason"] = str(reason)
    return PeakFlopsRecord(
        device=device.name, name=ceiling, seals=hash_results(seals.values()), **watch.taken(), **fields
    )


if __name__ == "__main__":
    name, settings = snakemake.wildcards.device, dict(snakemake.params.settings)
    budget = TimingBudget(**settings.pop("timing"))
    records = {Path(path).stem: path for path in snakemake.output}
    has_products = records.keys() - REGISTER_ONLY_DTYPES.keys()
    modules = ["roofline.operators.gemm.cuda_products", BINDINGS] if has_products else []
    with job(f"peak_flops {name} {' '.join(records)}", snakemake, modules):
        device = discovery.open_device(name)  # which leaves no other visible: once for all ceilings
        for ceiling, path in records.items():
            seals = seals_of(snakemake.input)
            record = measure_ceiling(device, ceiling, snakemake.input.device, seals, budget=budget, **settings)
            write_and_say(record, path, f"peak_flops {name} {ceiling}")
