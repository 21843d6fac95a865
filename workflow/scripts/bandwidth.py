"""bandwidth: the memory ceilings of some levels of one device, or the sweep that finds the levels by itself."""

from functools import cache
from pathlib import Path
from typing import Any

from roofline.core.levels import MAIN_MEMORY, SWEEP, TRANSFER_TARGETS
from roofline.core.terms import UnsupportedError
from roofline.core.units import MIB
from roofline.devices import discovery
from roofline.devices.base import BandwidthBenchmark, CudaDevice, Device, is_gpu
from roofline.measure import lock, search
from roofline.measure.energy import measure_idle_power
from roofline.measure.loaded_together import measure_together
from roofline.measure.memory_ceiling import (
    measure_bandwidth,
    measure_load_latency,
    measure_peer_latencies,
    measure_sweep,
)
from roofline.measure.memory_load import LOADED_CEILINGS, measure_energy_points, measure_memory_load
from roofline.measure.protocol import TimingBudget
from roofline.records.bandwidth_record import Bandwidth, BandwidthRecord, Peer
from roofline.records.base import read
from roofline.records.device_record import DeviceRecord
from roofline.records.files import hash_results
from roofline.run.jobs import Stopwatch, job, say, write_and_say

ENERGY_POINT_S = 2.8  # of load: a second to settle, and 16 ticks of the energy counter

open_device_once = cache(discovery.open_device)  # one for all levels


def size_bytes(settings: dict[str, Any], level: str) -> int | None:
    """Return the bytes of an array at a level; None: as many as the level needs."""
    mib = settings["transfer_size_mib" if level in TRANSFER_TARGETS else "size_mib"]
    return mib * MIB if mib else None


def measure_level(
    record: DeviceRecord, level: str, seal_path: str, settings: dict[str, Any], load_program: str | None = None
) -> BandwidthRecord:
    """Measure one level of a device, by its record. Raises ArithmeticError for a wrong result.

    `settings` are those of RunPlan.bandwidth_settings: `mixes` are the access patterns of all cores that are measured
    (None: everything), `cards` all GPUs that the job has for itself, which `load_program` puts under load if given.
    """
    watch, budget = Stopwatch(), TimingBudget(**settings["timing"])
    record_fields: dict[str, Any] = {"bandwidths": []}
    if load_program:
        try:
            record_fields["loaded"] = measure_together(settings["cards"], load_program)
        except UnsupportedError as reason:
            say(f"not all cards bore load: {reason}")
    peer = discovery.peer_name(level)
    device = open_device_once(record.device, peer)
    if level == SWEEP:
        benchmarks = device.sweep_benchmarks(settings["sweep_points"])
        record_fields["sweeps"] = [measure_sweep(device, record, benchmark) for benchmark in benchmarks]
    elif peer:
        assert is_gpu(device), "a CPU has no peers"
        record_fields |= measure_peer(device, record, size_bytes(settings, level), budget)
    else:
        record_fields |= measure_benchmarks(device, record, level, settings, budget)
    seals = hash_results([seal_path])
    return BandwidthRecord(device=record.device, name=level, seals=seals, **watch.taken(), **record_fields)


def measure_benchmarks(
    device: Device, record: DeviceRecord, level: str, settings: dict[str, Any], budget: TimingBudget
) -> dict[str, Any]:
    """Return the fields of the record of a level of one device: bandwidths, load latency, and load on main memory; or
    the reason why it is skipped."""
    try:
        offered = device.bandwidth_benchmarks(level, size_bytes(settings, level))
    except UnsupportedError as reason:
        return {"bandwidths": [], "skipped_reason": str(reason)}
    mixes, sustained_s, energy = (settings[name] for name in ("mixes", "sustained_s", "energy"))
    benchmarks = [benchmark for benchmark in offered if not mixes or (benchmark.mix in mixes and not benchmark.cores)]
    bandwidths = [measure_bandwidth(device, record, benchmark, budget) for benchmark in benchmarks]
    fields: dict[str, Any] = {}
    if (sustained_s or energy) and is_gpu(device) and level == MAIN_MEMORY["gpu"]:  # of the levels of a job
        fields["idle"] = measure_idle_power(device)
        for index, benchmark in enumerate(benchmarks):
            if sustained_s and benchmark.name in LOADED_CEILINGS:
                bandwidths[index] = add_sustained_load(device, benchmark, bandwidths[index], sustained_s)
        fields["energy_points"] = []
        if energy and fields["idle"]:
            fields["energy_points"] = list(measure_energy_points(device, ENERGY_POINT_S))
    if chain := device.pointer_chase(level):
        fields["latencies"] = [measure_load_latency(device, chain, budget)]
    return {"bandwidths": bandwidths, **fields}


def add_sustained_load(
    device: CudaDevice, benchmark: BandwidthBenchmark, bandwidth: Bandwidth, seconds: float
) -> Bandwidth:
    """Return a bandwidth with its sustained load: of the grids that are equally fast, always the same one."""
    fastest = max(trial.gb_per_s for trial in bandwidth.trials)
    least_gb_per_s = search.EQUAL_GRID_SHARE * fastest
    equally_fast = [trial.grid for trial in bandwidth.trials if trial.gb_per_s >= least_gb_per_s]
    step, step_s = benchmark.steps_by_grid[equally_fast[-1]], bandwidth.timing.median_s
    load = measure_memory_load(device, step, benchmark.counted_bytes, step_s, seconds)
    return bandwidth.model_copy(update={"sustained": load})


def measure_peer(
    device: CudaDevice, record: DeviceRecord, size_bytes: int | None, budget: TimingBudget
) -> dict[str, Any]:
    """Return the fields of the record of a level between a device and its peer, or the reason why it is skipped."""
    assert device.peer is not None, "it was opened with one"
    peer = Peer(peer=device.peer.device, uuid=device.peer.uuid, **device.describe_peer_path())
    try:
        pair = device.open_peer_pair(size_bytes)
    except UnsupportedError as reason:
        return {"peer": peer, "bandwidths": [], "skipped_reason": str(reason)}
    # Over PCIe the transfers share switches and the host's bridges with other cards' transfers.
    with lock.hold_locks([] if peer.link == "nvlink" else [lock.HOST_PATH_LOCK]):
        return {
            "peer": peer,
            "bandwidths": [
                measure_bandwidth(device, record, benchmark, budget) for benchmark in pair.bandwidth_benchmarks()
            ],
            "latencies": measure_peer_latencies(device, pair, budget),
        }


if __name__ == "__main__":
    name, inputs = snakemake.wildcards.device, snakemake.input
    records = {Path(path).stem: path for path in snakemake.output}
    with job(f"bandwidth {name} {' '.join(records)}", snakemake):
        device_record = read(DeviceRecord, inputs.device)
        program = f"{snakemake.scriptdir}/load_server.py" if inputs.loaded else None
        for level, path in records.items():
            record = measure_level(device_record, level, inputs.prediction, snakemake.params.settings, program)
            write_and_say(record, path, f"bandwidth {name} {level}")
