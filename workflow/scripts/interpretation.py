"""interpretation: three questions answered from the numbers of this run."""

from roofline.interpretation import interpret
from roofline.records import (
    BandwidthRecord,
    DecodeAttnRecord,
    DeviceRecord,
    PeakFlopsRecord,
    Roofline,
    read,
    write_text,
)
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("interpretation", snakemake.log[0]):
        devices = [read(DeviceRecord, path) for path in snakemake.input.devices]
        text = interpret(
            read(Roofline, snakemake.input.roofline),
            {record.device: record for record in devices},
            [read(PeakFlopsRecord, path) for path in snakemake.input.peaks],
            [read(BandwidthRecord, path) for path in snakemake.input.bandwidths],
            [read(DecodeAttnRecord, path) for path in snakemake.input.attention],
        )
        write_text(text, snakemake.output[0])
        say("interpretation: three questions answered")
