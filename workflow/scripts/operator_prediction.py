"""operator_prediction: the constants of an operator's costs, sealed before it is timed."""

from roofline.measure.sealing import seal_operator
from roofline.operators import registry
from roofline.records.base import read, write
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.device_record import DeviceRecord
from roofline.run.jobs import job, now, say_sealed

if __name__ == "__main__":
    name, rule = snakemake.wildcards.device, snakemake.wildcards.operator
    with job(f"operator_prediction {name} {rule}", snakemake):
        operator = registry.collect_operators(snakemake.params.operators)[rule]
        device = read(DeviceRecord, snakemake.input.device)
        calibration = read(CalibrationRecord, snakemake.input.calibration)
        sealed = seal_operator(operator.name, operator.constants, device, now(), calibration)
        write(sealed, snakemake.output[0])
        words = f"operator_prediction {name} {operator.name}: {len(sealed.constants)} constants"
        say_sealed(words, snakemake.output[0])
