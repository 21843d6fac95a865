"""bandwidth: the memory ceiling of one copy path on one device."""

from roofline import devices, statistics
from roofline.measuring import StateLog, host_lock, time_caller
from roofline.prediction import file_sha256
from roofline.records import Bandwidth, BandwidthRecord, DeviceRecord, read, write
from roofline.reporting import Stopwatch, job, number, percent, say

MIB = 1 << 20


def measure(device, record: DeviceRecord, level: str, path, warmup, iterations, time_budget_s) -> Bandwidth:
    """Time one copy path, then compare what arrived with what was sent."""
    log = StateLog(device)
    log.read("before")
    latency = time_caller(device, path.step, warmup=warmup, iterations=iterations, time_budget_s=time_budget_s)
    log.read("after")
    gb_per_s = path.counted_bytes / latency.median_s / 1e9
    vendor = record.vendor.bandwidth.gb_per_s if record.vendor.bandwidth and path.level == "hbm" else None
    return Bandwidth(
        name=level,
        level=path.level,
        mix="copy",
        counted=path.counted,
        bytes=path.counted_bytes,
        gb_per_s=gb_per_s,
        ci95=_interval(path.counted_bytes, latency.samples_s),
        vendor_gb_per_s=vendor,
        fraction_of_vendor=gb_per_s / vendor if vendor else None,
        threads=path.threads,
        latency=latency,
        states=log.states,
        verified=path.verify(),
    )


def _interval(counted_bytes: int, samples_s: list[float]) -> tuple[float, float] | None:
    return statistics.median_interval([counted_bytes / sample / 1e9 for sample in samples_s])


def run(name: str, level: str, device_path: str, seal_path: str, size_mib, transfer_size_mib, **options):
    size_bytes = (transfer_size_mib if level in ("h2d", "d2h") else size_mib) * MIB
    with host_lock():
        watch = Stopwatch()
        device = devices.open_device(name)
        path = device.copy_path(level, size_bytes)
        bandwidth = measure(device, read(DeviceRecord, device_path), level, path, **options)
    return BandwidthRecord(
        device=name,
        level=level,
        seal_sha256=file_sha256(seal_path),
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        bandwidth=bandwidth,
    )


def line(record: BandwidthRecord) -> str:
    found, share = record.bandwidth, ""
    if found.vendor_gb_per_s:
        share = f", {percent(found.fraction_of_vendor)} of the vendor's {number(found.vendor_gb_per_s)}"
    name = f"bandwidth {record.device} {record.level}"
    return f"{name}: {number(found.gb_per_s)} GB/s{share}, {record.elapsed_s:.1f} s"


if __name__ == "__main__":
    name, level = snakemake.wildcards.device, snakemake.wildcards.level
    with job(f"bandwidth {name} {level}", snakemake.log[0]):
        record = run(
            name,
            level,
            snakemake.input.device,
            snakemake.input.prediction,
            size_mib=snakemake.params.size_mib,
            transfer_size_mib=snakemake.params.transfer_size_mib,
            warmup=snakemake.params.warmup,
            iterations=snakemake.params.iterations,
            time_budget_s=snakemake.params.time_budget_s,
        )
        write(record, snakemake.output[0])
        say(line(record))
