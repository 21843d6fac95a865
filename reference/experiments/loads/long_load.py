"""Minutes of load of one card: its bf16 ceiling's product, or reads of its memory, as a finished run found them.

    python reference/experiments/loads/long_load.py measure bf16|hbm_read RECORDS DEVICE SECONDS OUTPUT.json.gz
    python reference/experiments/loads/long_load.py draw OUTPUT.png LOAD.json.gz...

RECORDS is the folder of a device of the run, results/gpu0; DEVICE is that card, or another of its model next to it. The
first prints the rate of each minute.
"""

import gzip
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3] / "workflow" / "scripts")]

import bandwidth

from roofline.core.dtypes import PRODUCT_DTYPES
from roofline.devices import discovery
from roofline.measure.sustained import LoadedWork, mean_rate, measure_sustained_once
from roofline.operators.gemm.operator import workloads_module
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.base import read
from roofline.records.compute import LoadPoint, PeakFlopsRecord

SEED, MINUTE_S = 5, 60


def measure(ceiling: str, records: Path, name: str, seconds: float) -> dict:
    """Return the load's record with its card; a product is compared with float64 before and afterwards."""
    device = discovery.open_device(name)
    if ceiling in PRODUCT_DTYPES:
        peak = read(PeakFlopsRecord, records / "peak_flops" / f"{ceiling}.json").peak
        burst = peak.burst
        size = peak.burst.product.shape["m"]
        workload = workloads_module(device).rebuild_workload(device, ceiling, size, burst.product, SEED)
        workload.run_and_check()
        work = LoadedWork(workload.step, workload.flops, workload.product)
        load = measure_sustained_once(device, work, seconds, burst.timing.median_s)
        workload.compare()
    else:
        record = read(BandwidthRecord, records / "bandwidth" / "hbm.json")
        measured = next(row for row in record.bandwidths if row.name == ceiling)
        benchmarks = device.bandwidth_benchmarks(record.name, None)
        benchmark = next(one for one in benchmarks if one.name == ceiling)
        load = bandwidth.add_sustained_load(device, benchmark, measured, seconds).sustained
    identity = device.identity
    return {"ceiling": ceiling, "card": identity.name, "driver": identity.driver, "load": load.model_dump()}


def rates_by_minute(load: dict) -> list[float]:
    """Return the mean rate of each minute, in the unit of the load's curve."""
    key = "gb_per_s" if "gb_per_s" in load else "tflops"
    minutes: dict[int, list[LoadPoint]] = {}
    for point in load["curve"]:
        minutes.setdefault(int(point["at_s"] // MINUTE_S), []).append(LoadPoint(at_s=0, tflops=point[key]))
    return [mean_rate(points) for _, points in sorted(minutes.items())]


def draw(path: Path, files: list[Path]) -> None:
    """Draw rate, clock and power of each load over time."""
    import matplotlib.pyplot as plt

    loads = [json.loads(gzip.decompress(file.read_bytes())) for file in files]
    figure, axes = plt.subplots(len(loads), 3, figsize=(10, 2.6 * len(loads)), layout="constrained", squeeze=False)
    for row, content in zip(axes, loads, strict=True):
        curve = content["load"]["curve"]
        rate_key, unit = ("gb_per_s", "GB/s") if "gb_per_s" in content["load"] else ("tflops", "TFLOPS")
        shown = [(rate_key, unit), ("sm_clock_mhz", "MHz"), ("power_w", "W")]
        for axis, (key, label) in zip(row, shown, strict=True):
            points = [(point["at_s"], point[key]) for point in curve if point[key]]
            axis.plot(*zip(*points, strict=True), lw=0.4)
            axis.set(xlabel="s", ylabel=label, title=f"{content['ceiling']}, {content['card']}")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    if sys.argv[1] == "draw":
        draw(Path(sys.argv[2]), [Path(argument) for argument in sys.argv[3:]])
    else:
        ceiling, records, name, seconds, output = sys.argv[2:]
        found = measure(ceiling, Path(records), name, float(seconds))
        Path(output).write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
        print(ceiling, name, [round(rate, 1) for rate in rates_by_minute(found["load"])])
