"""calibration: what work costs this host, per call, byte and number, before any operator is timed."""

from roofline.devices import discovery
from roofline.measure.calibration import calibrate
from roofline.records.base import read, write
from roofline.records.device import DeviceRecord
from roofline.records.files import file_sha256
from roofline.run.jobs import job, now, say

if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"calibration {name}", snakemake):
        record = calibrate(discovery.open_device(name), read(DeviceRecord, snakemake.input.device), now)
        write(record, snakemake.output[0])
        digits = file_sha256(snakemake.output[0])[:12]
        say(f"calibration {name}: {len(record.constants)} costs in {record.elapsed_s:.1f} s, sealed as {digits}")
