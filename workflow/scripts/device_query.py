"""device_query: what a device is, with the vendor's figures, and its seals: promised ceilings and costs of the host."""

from roofline.devices import discovery
from roofline.devices.discovery import describe
from roofline.measure.calibration import calibrate
from roofline.measure.sealing import seal_device
from roofline.records.base import write
from roofline.records.device import DeviceRecord
from roofline.records.files import file_sha256
from roofline.run.jobs import job, now, report, say


def query(name: str, datasheets_path: str) -> DeviceRecord:
    """Open a device and describe it. Raises RuntimeError, in one line, where it cannot be opened."""
    return describe(discovery.open_device(name), datasheets_path)


if __name__ == "__main__":
    name, output = snakemake.wildcards.device, snakemake.output
    with job(f"device_query {name}", snakemake):
        record = query(name, snakemake.params.datasheets)
        write(record, output.device)
        sealed = seal_device(record, now())
        write(sealed, output.prediction)
        costs = calibrate(discovery.open_device(name), record, now)
        write(costs, output.calibration)

        report(record, f"device_query {name}", record)
        digits = file_sha256(output.prediction)[:12]
        say(f"prediction {name}: {len(sealed.ceilings)} promised ceilings, sealed as {digits}")
        digits = file_sha256(output.calibration)[:12]
        say(f"calibration {name}: {len(costs.constants)} costs in {costs.elapsed_s:.1f} s, sealed as {digits}")
