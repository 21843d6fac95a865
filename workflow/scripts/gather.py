"""gather: of each device the records of peak_flops and those of bandwidth, side by side in one file each."""

from roofline.records.base import read, write
from roofline.records.collection import Collection
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.run.jobs import job, say


def gather(devices: list[str], kind, paths, outputs) -> None:
    records = [read(kind, path) for path in paths]
    for device, output in zip(devices, outputs, strict=True):
        write(Collection(device=device, records=[one for one in records if one.device == device]), output)


if __name__ == "__main__":
    with job("gather", snakemake):
        inputs, outputs, devices = snakemake.input, snakemake.output, snakemake.params.devices
        gather(devices, PeakFlopsRecord, inputs.peaks, outputs.peaks)
        gather(devices, BandwidthRecord, inputs.bandwidths, outputs.bandwidths)
        say(f"gather: {len(inputs.peaks)} compute and {len(inputs.bandwidths)} memory records side by side")
