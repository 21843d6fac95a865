"""calibration: what work costs the host of a device, sealed before any operator is timed."""

from roofline.devices import discovery
from roofline.measure.calibration import calibrate
from roofline.records.base import read, write
from roofline.records.device_record import DeviceRecord
from roofline.run.jobs import job, now, say_sealed

if __name__ == "__main__":
    name, output = snakemake.wildcards.device, snakemake.output[0]
    with job(f"calibration {name}", snakemake):
        costs = calibrate(discovery.open_device(name), read(DeviceRecord, snakemake.input.device), now)
        write(costs, output)
        say_sealed(f"calibration {name}: {len(costs.constants)} costs in {costs.elapsed_s:.1f} s", output)
