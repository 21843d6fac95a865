"""decode_attn: one decode step of one layer of attention, for one S and dtype; every batch size and scope within."""

from roofline import checkpoint, devices
from roofline.measuring import StateLog, host_lock, time_caller, time_device
from roofline.operators import decode_attention as attention
from roofline.prediction import file_sha256, predict_sealed
from roofline.records import DecodeAttnRecord, Measurement, PredictionRecord, Weights, read, write
from roofline.reporting import Stopwatch, duration, job, say

OVERHEAD_ITERATIONS = 100


def measure(device, seal, implementation, shape, dtype, weights_path, preset, seed, overhead, **options):
    """Every scope of one batch size: predicted, checked, then timed. Returns (measurements, weights facts)."""
    layer, hidden, naming, hidden_from = checkpoint.load_layer(weights_path, preset, shape.batch, seed=seed)
    make_cell = attention.IMPLEMENTATIONS[implementation]
    cell = make_cell(device, shape, dtype, layer, hidden, seed=seed + 11)
    found = [
        _measure_scope(device, seal, implementation, cell, shape, dtype, scope, overhead[scope], **options)
        for scope in attention.SCOPES
    ]
    return found, {"naming": naming, "hidden_state": hidden_from}


def _measure_scope(
    device, seal, implementation, cell, shape, dtype, scope, overhead_s, warmup, iterations, time_budget_s
):
    work, traffic = attention.flops(shape, scope), attention.traffic_bytes(shape, dtype, scope)
    compute_ceiling = device.compute_ceiling(dtype)
    predicted = predict_sealed(
        seal,
        flops=work,
        traffic_bytes=traffic,
        compute_ceiling=compute_ceiling,
        calls=f"decode_attention_{implementation}_{scope}",
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
        preset=None,
        scope=scope,
        dtype=dtype,
        cache="cold" if cell.cold else "warm",
        shape=shape.as_dict(),
        flops=work,
        bytes=traffic,
        compute_ceiling=compute_ceiling,
        memory_ceilings=device.memory_ceilings,
        memory_level=device.memory_level,
        predicted=predicted,
        check=check,
        latency=latency,
        device_latency=device_latency,
        overhead_s=overhead_s,
        states=log.states,
    )


def call_overhead_s(device, implementation, preset, dtype, weights_path, seed) -> dict[str, float]:
    """What the same calls cost on the smallest cache, S = 1 and batch 1, where there is next to nothing to do."""
    smallest = attention.Shape(batch=1, heads=preset.heads, head_size=preset.head_size, seq_len=1)
    layer, hidden, _, _ = checkpoint.load_layer(weights_path, preset, 1, seed=seed)
    make_cell = attention.IMPLEMENTATIONS[implementation]
    cell = make_cell(device, smallest, dtype, layer, hidden, seed=seed, copies=1)
    return {
        scope: time_caller(
            device, cell.step(scope), warmup=10, iterations=OVERHEAD_ITERATIONS, time_budget_s=0.5
        ).median_s
        for scope in attention.SCOPES
    }


def run(
    name, preset_name, preset, seq_len, dtype, seal_path, weights_path, implementations, batch_sizes, seed, **options
):
    seal = read(PredictionRecord, seal_path)
    measurements, facts = [], {}
    with host_lock():
        watch = Stopwatch()
        device = devices.open_device(name)
        for implementation in implementations:
            overhead = call_overhead_s(device, implementation, preset, dtype, weights_path, seed)
            for batch in batch_sizes:
                shape = attention.Shape(batch, preset.heads, preset.head_size, seq_len)
                found, facts = measure(
                    device, seal, implementation, shape, dtype, weights_path, preset, seed, overhead, **options
                )
                measurements += [one.model_copy(update={"preset": preset_name}) for one in found]
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
    cores = ", ".join(
        f"batch {one.shape['batch']} {duration(one.latency.median_s)}"
        for one in record.measurements
        if one.scope == "core"
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
            checkpoint.Preset(params.layers, params.heads, params.head_size),
            int(wildcards.seq_len),
            wildcards.dtype,
            snakemake.input.prediction,
            snakemake.input.weights,
            implementations=params.implementations,
            batch_sizes=params.batch_sizes,
            seed=params.seed,
            warmup=params.warmup,
            iterations=params.iterations,
            time_budget_s=params.time_budget_s,
        )
        write(record, snakemake.output[0])
        say(line(record))
