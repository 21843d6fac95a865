"""decode_attn: one decode step of one layer of attention, for one S and dtype; every batch size and scope within."""

from dataclasses import dataclass

from roofline import checkpoint, devices
from roofline.measuring import StateLog, a_layer, host_lock, time_caller, time_device
from roofline.operators import decode_attention as attention
from roofline.operators.implementations import make_cell
from roofline.prediction import Way, file_sha256, predict_sealed
from roofline.records import DecodeAttnRecord, Measurement, PredictionRecord, Weights, read, write
from roofline.reporting import Stopwatch, duration, job, say

SMALLEST_ITERATIONS, SMALLEST_BUDGET_S = 100, 0.2


@dataclass(frozen=True)
class Job:
    """What all cells of a job have in common."""

    device: object
    seal: PredictionRecord
    weights_path: str
    preset_name: str
    preset: checkpoint.Preset
    dtype: str
    seed: int
    cold: bool

    def cell(self, implementation: str, shape: attention.Shape, seed: int, copies: int | None = None):
        """A cell of an implementation, and where its weights are from; of fewer heads than the preset's the first."""
        layer, hidden, naming, hidden_from = checkpoint.load_layer(
            self.weights_path, self.preset, shape.batch, seed=self.seed
        )
        size = shape.hidden_size
        layer = {name: weights[(slice(size),) * weights.ndim] for name, weights in layer.items()}
        hidden = hidden[:, :size]
        options = {"seed": seed, "copies": copies, "layers": self.preset.layers}
        cell = make_cell(self.device, implementation, shape, self.dtype, layer, hidden, **options)
        return cell, {"naming": naming, "hidden_state": hidden_from}


@dataclass(frozen=True)
class Smallest:
    """Times of the same calls on the smallest cache, and of an empty kernel, in seconds: caller's and device's."""

    overhead_s: float
    device_overhead_s: float | None
    empty_s: float | None
    empty_device_s: float | None


def smallest(job: Job, implementation: str) -> dict[str, Smallest]:
    """What calls cost where there is next to nothing to do, S = 1, batch 1 and one K/V head, by scope."""
    preset = job.preset
    shape = attention.Shape(1, preset.heads // preset.kv_heads, 1, preset.head_size, seq_len=1)
    cell, _ = job.cell(implementation, shape, job.seed, copies=1)
    empty = cell.empty_step()
    of_empty = _both(job.device, empty, cell.steps_a_call()) if empty else (None, None)
    return {
        scope: Smallest(*_both(job.device, cell.step(scope), cell.steps_a_call()), *of_empty) for scope in cell.scopes
    }


def _both(device, step, layers: int) -> tuple[float, float | None]:
    """The caller's and the device's median of a step, for one of its layers."""
    options = {"warmup": 10, "iterations": SMALLEST_ITERATIONS, "time_budget_s": SMALLEST_BUDGET_S}
    caller = time_caller(device, step, **options)
    on_device = time_device(device, step, caller, time_budget_s=SMALLEST_BUDGET_S)
    return caller.median_s / layers, on_device.median_s / layers if on_device else None


def measure(job: Job, implementation: str, shape: attention.Shape, small: dict[str, Smallest], **options):
    """Every scope of one batch size: predicted, checked, then timed. Returns (measurements, weights facts)."""
    cell, facts = job.cell(implementation, shape, job.seed + 11, copies=None if job.cold else 1)
    return [_measure_scope(job, implementation, cell, scope, small[scope], **options) for scope in cell.scopes], facts


def _measure_scope(
    job: Job, implementation: str, cell, scope: str, small: Smallest, warmup, iterations, time_budget_s
) -> Measurement:
    device, shape, dtype, layers = job.device, cell.shape, job.dtype, cell.steps_a_call()
    work, traffic = attention.flops(shape, scope), attention.traffic_bytes(shape, dtype, scope)
    compute_ceiling = device.compute_ceiling(dtype)
    predicted = predict_sealed(
        job.seal,
        flops=work,
        traffic_bytes=traffic,
        compute_ceiling=compute_ceiling,
        way=Way(implementation, scope, dtype, layers, cell.joins, cell.turns, cell.waves),
    )
    check, checked_s = cell.check(scope)
    step = cell.step(scope)
    log = StateLog(device)
    log.read("before")
    latency = time_caller(
        device, step, warmup=warmup, iterations=iterations, time_budget_s=time_budget_s, checked_s=checked_s
    )
    device_latency = time_device(device, step, latency, time_budget_s=time_budget_s)
    log.read("after")
    return Measurement(
        operator=attention.OPERATOR,
        implementation=implementation,
        preset=job.preset_name,
        scope=scope,
        dtype=dtype,
        cache="cold" if cell.cold else "warm",
        shape=shape.as_dict(),
        flops=work,
        bytes=traffic,
        compute_ceiling=compute_ceiling,
        **_level_of(device, cell, traffic),
        predicted=predicted,
        check=check,
        latency=a_layer(latency, layers),
        device_latency=a_layer(device_latency, layers),
        overhead_s=small.overhead_s,
        device_overhead_s=small.device_overhead_s,
        empty_kernel_s=small.empty_s,
        empty_kernel_device_s=small.empty_device_s,
        layers=layers,
        joins=cell.joins,
        turns=cell.turns,
        waves=cell.waves,
        how=cell.described(),
        states=log.states,
    )


def _level_of(device, cell, traffic_bytes: int) -> dict:
    """The memory level that a cell is declared to read, and its ceilings: of a warm cell the cache that holds it."""
    if cell.cold or traffic_bytes > device.last_level_cache_bytes:
        return {"memory_ceilings": device.memory_ceilings, "memory_level": device.memory_level}
    return {"memory_ceilings": device.cache_ceilings, "memory_level": device.cache_level}


def run(
    name,
    preset_name,
    preset,
    seq_len,
    dtype,
    seal_path,
    weights_path,
    implementations,
    batch_sizes,
    seed,
    cache,
    **options,
) -> DecodeAttnRecord:
    seal = read(PredictionRecord, seal_path)
    measurements, facts = [], {}
    with host_lock():
        watch = Stopwatch()
        device = devices.open_device(name)
        job = Job(device, seal, weights_path, preset_name, preset, dtype, seed, cold=cache == "cold")
        for implementation in implementations:
            small = smallest(job, implementation)
            for batch in batch_sizes:
                shape = attention.Shape(batch, preset.heads, preset.kv_heads, preset.head_size, seq_len)
                found, facts = measure(job, implementation, shape, small, **options)
                measurements += found
    return DecodeAttnRecord(
        device=name,
        preset=preset_name,
        seq_len=seq_len,
        dtype=dtype,
        seal_sha256=file_sha256(seal_path),
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        weights=Weights(
            path=str(weights_path),
            sha256=checkpoint.sha256(weights_path),
            generated=checkpoint.is_generated(weights_path),
            **facts,
        ),
        note=device.emulation_note(dtype),
        measurements=measurements,
    )


def line(record: DecodeAttnRecord) -> str:
    best: dict[int, Measurement] = {}
    for one in record.measurements:
        batch = one.shape["batch"]
        if one.scope == "core" and (batch not in best or one.latency.median_s < best[batch].latency.median_s):
            best[batch] = one
    cores = ", ".join(
        f"batch {batch} {duration(one.latency.median_s)} ({one.implementation})" for batch, one in best.items()
    )
    name = f"decode_attn {record.device} {record.preset} S={record.seq_len} {record.dtype}"
    return f"{name}: {cores}, {record.elapsed_s:.1f} s"


if __name__ == "__main__":
    wildcards, params = snakemake.wildcards, snakemake.params
    name = f"decode_attn {wildcards.device} {wildcards.preset} S={wildcards.seq_len} {wildcards.dtype}"
    with job(name, snakemake.log[0]):
        record = run(
            wildcards.device,
            wildcards.preset,
            checkpoint.Preset(params.layers, params.heads, params.head_size, params.kv_heads),
            int(wildcards.seq_len),
            wildcards.dtype,
            snakemake.input.prediction,
            snakemake.input.weights,
            implementations=params.implementations,
            batch_sizes=params.batch_sizes,
            seed=params.seed,
            cache=params.cache,
            warmup=params.warmup,
            iterations=params.iterations,
            time_budget_s=params.time_budget_s,
        )
        write(record, snakemake.output[0])
        say(line(record))
