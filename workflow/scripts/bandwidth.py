"""bandwidth: the memory ceilings of some levels of one device, or the sweep that finds the levels by itself."""

from functools import cache
from pathlib import Path

from roofline.core.terms import UnsupportedError
from roofline.core.units import MIB
from roofline.devices import discovery
from roofline.devices.levels import MAIN_MEMORY, SWEEP_LEVEL, TRANSFER_LEVELS
from roofline.measure import lock
from roofline.measure.energy import measure_idle_power
from roofline.measure.loaded_together import measure_together
from roofline.measure.memory_ceiling import (
    measure_bandwidth,
    measure_load_latency,
    measure_peer_latencies,
    measure_sweep,
)
from roofline.measure.memory_load import LOADED_CEILINGS, measure_energy_points, measure_memory_load
from roofline.records.bandwidth_record import Bandwidth, BandwidthRecord, Peer
from roofline.records.base import read, write
from roofline.records.device_record import DeviceRecord
from roofline.records.files import below_results, file_sha256
from roofline.run.jobs import Stopwatch, job, report, say

EQUAL_RATE_SHARE = 0.998
ENERGY_POINT_S = 2.8  # of load: a second to settle, and 16 ticks of the energy counter

open_device_once = cache(discovery.open_device)  # one for all levels


def measure_level(
    name: str,
    level: str,
    device_path,
    seal_path,
    size_mib,
    transfer_size_mib,
    sweep_points,
    mixes,
    cards,
    loaded,
    energy,
    sustained_s,
    **options,
) -> BandwidthRecord:
    """`mixes` are those of all cores to measure, None for everything; `cards` all GPUs that the job has for itself,
    `loaded` the program that puts one under load, if it is to; `sustained_s` how long reads and copies go on, `energy`
    whether points of the energy roofline are measured."""
    mib, peer = transfer_size_mib if level in TRANSFER_LEVELS else size_mib, discovery.peer_name(level)
    size = mib * MIB if mib else None
    found: dict = {"bandwidths": []}
    watch = Stopwatch()
    if loaded:
        try:
            found["loaded"] = measure_together(cards, loaded)
        except UnsupportedError as reason:
            say(f"not all cards bore load: {reason}")
    device, record = open_device_once(name, peer), read(DeviceRecord, device_path)
    if level == SWEEP_LEVEL:
        found["sweeps"] = [measure_sweep(device, record, series) for series in device.sweep_benchmarks(sweep_points)]
    elif peer:
        found |= measure_peer(device, record, size, options)
    else:
        streams = [
            one for one in device.bandwidth_benchmarks(level, size) if not mixes or (one.mix in mixes and not one.cores)
        ]
        found["bandwidths"] = [measure_bandwidth(device, record, one, **options) for one in streams]
        if (sustained_s or energy) and level == MAIN_MEMORY["gpu"]:  # of the levels of this job
            found["idle"] = measure_idle_power(device)
            found["bandwidths"] = [
                add_sustained_load(device, stream, one, sustained_s)
                if sustained_s and one.name in LOADED_CEILINGS
                else one
                for stream, one in zip(streams, found["bandwidths"], strict=True)
            ]
            found["energy_points"] = (
                [*measure_energy_points(device, ENERGY_POINT_S)] if energy and found["idle"] else []
            )
        if chain := device.pointer_chase(level):
            found["latencies"] = [measure_load_latency(device, chain, **options)]
    return BandwidthRecord(
        device=name,
        name=level,
        seals={below_results(seal_path): file_sha256(seal_path)},
        **watch.taken(),
        **found,
    )


def add_sustained_load(device, stream, found: Bandwidth, seconds: float) -> Bandwidth:
    """Of grids as fast always the same one: two that read as fast on an H100 draw 593 and 693 W."""
    fastest = max(trial.gb_per_s for trial in found.trials)
    equally_fast = [trial.grid for trial in found.trials if trial.gb_per_s >= EQUAL_RATE_SHARE * fastest]
    step = stream.steps_by_grid[equally_fast[-1]]  # always the same one
    load = measure_memory_load(device, step, stream.counted_bytes, found.timing.median_s, seconds)
    return found.model_copy(update={"sustained": load})


def measure_peer(device, record: DeviceRecord, size_bytes: int | None, options: dict) -> dict:
    """What is measured between a device and its peer, or why nothing can be."""
    peer = Peer(peer=device.peer.device, uuid=device.peer.uuid, **device.describe_peer_path())
    try:
        pair = device.open_peer_pair(size_bytes)
    except UnsupportedError as reason:
        return {"peer": peer, "bandwidths": [], "skipped_reason": str(reason)}
    # Over PCIe it shares switches and the host's bridges with other cards' transfers.
    with lock.hold_locks([] if peer.link == "nvlink" else [lock.HOST_PATH_LOCK]):
        bandwidths = [measure_bandwidth(device, record, one, **options) for one in pair.bandwidth_benchmarks()]
        return {"peer": peer, "bandwidths": bandwidths, "latencies": measure_peer_latencies(device, pair, **options)}


if __name__ == "__main__":
    name, params = snakemake.wildcards.device, snakemake.params
    records = {Path(path).stem: path for path in snakemake.output}
    with job(f"bandwidth {name} {' '.join(records)}", snakemake):
        for level, path in records.items():
            record = measure_level(
                name,
                level,
                snakemake.input.device,
                snakemake.input.prediction,
                size_mib=params.size_mib,
                transfer_size_mib=params.transfer_size_mib,
                sweep_points=params.sweep_points,
                mixes=params.mixes,
                cards=params.cards,
                loaded=next(iter(snakemake.input.loaded), None),
                energy=params.energy,
                sustained_s=params.sustained_s,
                warmup=params.warmup,
                iterations=params.iterations,
                time_budget_s=params.time_budget_s,
            )
            write(record, path)
            report(record, f"bandwidth {name} {level}", read(DeviceRecord, snakemake.input.device))
