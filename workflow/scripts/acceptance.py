"""acceptance: the stop conditions as a checklist; a 'fail' is shown and kept, and the run goes on."""

from pathlib import Path

from roofline.acceptance import accept
from roofline.records import DeviceRecord, Roofline, Verification, read, write
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("acceptance", snakemake.log[0]):
        roofline = read(Roofline, snakemake.input.roofline)
        devices = [read(DeviceRecord, path) for path in snakemake.input.devices]
        found = accept(
            roofline,
            {record.device: record for record in devices},
            Path(snakemake.input.svg).read_text(encoding="utf-8"),
            Path(snakemake.input.interpretation).read_text(encoding="utf-8"),
            read(Verification, snakemake.input.verification),
            list(snakemake.input.expected),
        )
        write(found, snakemake.output[0])
        counts = {result: sum(c.result == result for c in found.criteria) for result in ("pass", "fail")}
        say(f"acceptance: {counts['pass']} pass, {counts['fail']} fail")
