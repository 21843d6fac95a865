"""peak_flops_lacking: a record, with the reason, for each compute ceiling that a device is known to lack."""

from pathlib import Path

from roofline.prediction import file_sha256
from roofline.records import PeakFlopsRecord, write
from roofline.reporting import Stopwatch, job, say


def lacking(device: str, dtype: str, reason: str, seal_path: Path) -> PeakFlopsRecord:
    watch = Stopwatch()
    return PeakFlopsRecord(
        device=device,
        dtype=dtype,
        seal_sha256=file_sha256(seal_path),
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        skipped=reason,
        peak=None,
    )


if __name__ == "__main__":
    with job("peak_flops_lacking", snakemake.log[0]):
        seals = {Path(path).parent.name: Path(path) for path in snakemake.input.predictions}
        by_reason: dict[str, list[str]] = {}
        for path, of, reason in zip(snakemake.output, snakemake.params.of, snakemake.params.reasons, strict=True):
            device, dtype = of.split()
            write(lacking(device, dtype, reason, seals[device]), path)
            by_reason.setdefault(f"{device}: {reason}".replace(dtype, "..."), []).append(dtype)
        told = [
            f"{why.partition(': ')[0]} {', '.join(dtypes)} ({why.partition(': ')[2]})"
            for why, dtypes in by_reason.items()
        ]
        say(f"peak_flops: skipped {'; '.join(told)}")
