"""operator_prediction: the constants of an operator's costs, sealed before it is timed."""

from roofline.measure.sealing import seal_operator
from roofline.operators import registry
from roofline.records.base import read, write
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.files import file_sha256
from roofline.run.jobs import job, now, say

if __name__ == "__main__":
    name, rule = snakemake.wildcards.device, snakemake.wildcards.operator
    with job(f"operator_prediction {name} {rule}", snakemake):
        operator = registry.collect_operators(snakemake.params.operators)[rule]
        device = read(DeviceRecord, snakemake.input.device)
        calibration = read(CalibrationRecord, snakemake.input.calibration)
        sealed = seal_operator(operator.name, operator.constants, device, now(), calibration)
        write(sealed, snakemake.output[0])
        digits = file_sha256(snakemake.output[0])[:12]
        say(f"operator_prediction {name} {operator.name}: {len(sealed.constants)} constants, sealed as {digits}")
