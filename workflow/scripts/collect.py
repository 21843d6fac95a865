"""collect: every record of every device into roofline.json."""

import json
from pathlib import Path

from roofline.placing import place
from roofline.records import BandwidthRecord, DecodeAttnRecord, DeviceRecord, PeakFlopsRecord, read, write
from roofline.reporting import job, say


def read_all(kind, paths, results: Path) -> list:
    """(path relative to results/, record) of every path."""
    return [(str(Path(path).relative_to(results)), read(kind, path)) for path in paths]


def collect(devices, peaks, bandwidths, attention, operations: list[dict], results: Path):
    records = read_all(DeviceRecord, devices, results)
    return place(
        {record.device: (path, record) for path, record in records},
        read_all(PeakFlopsRecord, peaks, results),
        read_all(BandwidthRecord, bandwidths, results),
        read_all(DecodeAttnRecord, attention, results),
        operations,
    )


if __name__ == "__main__":
    with job("collect", snakemake.log[0]):
        roofline = collect(
            snakemake.input.devices,
            snakemake.input.peaks,
            snakemake.input.bandwidths,
            snakemake.input.attention,
            json.loads(snakemake.params.operations),
            Path(snakemake.output[0]).parent,
        )
        write(roofline, snakemake.output[0])
        say(f"collect: {len(roofline.ceilings)} ceilings, {len(roofline.operators)} operators")
