"""The job of decode attention, decode_attn.py, on a card of NumPy: what is measured of which implementation."""

import decode_attn
import pytest
from numpy_card import open_card
from small_run import device_record

from roofline import devices
from roofline.core.prediction import CONSTANTS, seal, way_of
from roofline.operators.decode_attention import checkpoint
from roofline.operators.decode_attention import operator as attention
from roofline.records import DecodeAttnRecord
from roofline.records.base import read, write
from roofline.records.files import file_sha256
from roofline.records.prediction import predict_sealed

PRESET = checkpoint.Preset(layers=3, heads=4, head_size=64, kv_heads=2)
OPTIONS = {"seed": 0, "warmup": 2, "iterations": 8, "time_budget_s": 0.05}


@pytest.fixture
def files(tmp_path):
    """A seal, and weights on disk."""
    write(device_record("gpu0"), tmp_path / "device.json")
    sealed = seal(device_record("gpu0"), tmp_path / "device.json", "2026-11-05T12:00:00+00:00")
    write(sealed, tmp_path / "prediction.json")
    checkpoint.generate(tmp_path / "weights.safetensors", PRESET, seed=1)
    return tmp_path


@pytest.fixture
def run(monkeypatch, files):
    """The job's record; `device` is what it runs on."""

    def job(device=None, implementations=("eager", "fused", "fused_graph"), batch_sizes=(1, 2), **changes):
        device = device or open_card(monkeypatch)
        monkeypatch.setattr(devices, "open_device", lambda name: device)
        known = OPTIONS | {"cache": "cold", "seq_len": 300, "dtype": "fp16"} | changes
        return decode_attn.run(
            "gpu0",
            "mine",
            PRESET,
            seal_path=files / "prediction.json",
            weights_path=files / "weights.safetensors",
            implementations=list(implementations),
            batch_sizes=list(batch_sizes),
            **known,
        )

    return job


def test_every_implementation_batch_size_and_scope_in_their_order(run, files):
    found = run()
    assert [(one.implementation, one.shape["batch"], one.scope) for one in found.measurements] == [
        ("eager", 1, "core"),
        ("eager", 1, "block"),
        ("eager", 2, "core"),
        ("eager", 2, "block"),
        ("fused", 1, "core"),
        ("fused", 2, "core"),
        ("fused_graph", 1, "core"),
        ("fused_graph", 2, "core"),
    ]
    assert (found.preset, found.seq_len, found.dtype, found.note) == ("mine", 300, "fp16", None)
    assert found.seal_sha256 == file_sha256(files / "prediction.json")
    assert (found.weights.generated, found.weights.naming) == (True, "minigpt")
    write(found, files / "record.json")
    assert read(DecodeAttnRecord, files / "record.json") == found


def test_a_cell_has_its_shape_work_check_times_and_prediction(run, files):
    sealed = decode_attn.read(decode_attn.PredictionRecord, files / "prediction.json")
    for one in run().measurements:
        shape = attention.Shape(one.shape["batch"], 4, 2, 64, 300)
        assert one.shape == {"batch": shape.batch, "heads": 4, "kv_heads": 2, "head_size": 64, "seq_len": 300}
        assert (one.flops, one.bytes) == (
            attention.flops(shape, one.scope),
            attention.traffic_bytes(shape, "fp16", one.scope),
        )
        assert (one.preset, one.operator, one.cache) == ("mine", "decode_attention", "cold")
        assert one.check.error <= one.check.tolerance
        assert one.latency.median_s > 0 and one.device_latency.median_s > 0
        assert one.overhead_s > 0 and one.device_overhead_s > 0
        assert one.predicted == predict_sealed(
            sealed, flops=one.flops, traffic_bytes=one.bytes, compute_ceiling="fp16", way=way_of(one)
        )
        assert [state.when for state in one.states] == ["before", "after"]


def test_the_figures_of_a_graph_are_of_one_of_its_layers(run):
    by_name = {one.implementation: one for one in run(batch_sizes=[1]).measurements}
    graph, fused = by_name["fused_graph"], by_name["fused"]
    assert (graph.layers, fused.layers, by_name["eager"].layers) == (3, 1, 1)
    assert "times are of one" in graph.latency.method and "times are of one" in graph.device_latency.method
    assert "layers" not in fused.latency.method
    assert "; 3 layers a graph" in graph.how and fused.how in graph.how and by_name["eager"].how is None
    assert graph.predicted.latency_s != fused.predicted.latency_s


def test_what_starting_costs_is_of_the_smallest_cell_and_of_an_empty_kernel_where_there_is_one(run):
    for one in run(batch_sizes=[1]).measurements:
        empty = (one.empty_kernel_s, one.empty_kernel_device_s)
        assert empty == (None, None) if one.implementation == "eager" else min(empty) > 0


def test_the_calls_of_a_graphs_smallest_cell_are_of_one_layer(run, monkeypatch):
    """On a device whose steps all take a second, for the caller and alone."""
    device = open_card(monkeypatch)
    monkeypatch.setattr(device, "step_times", lambda step, count, first=0: [1.0] * count)
    monkeypatch.setattr(device, "device_times", lambda step, count, first=0: [0.5] * count)
    monkeypatch.setattr(attention.Cell, "check", lambda cell, scope: (CHECK, 0.0))
    of_layer = {"eager": 1, "fused": 1, "fused_graph": 1 / 3}
    for one in run(device, batch_sizes=[1]).measurements:
        each = of_layer[one.implementation]
        assert (one.latency.median_s, one.device_latency.median_s) == pytest.approx((each, each / 2))
        assert (one.overhead_s, one.device_overhead_s) == pytest.approx((each, each / 2))
        if one.implementation != "eager":
            assert (one.empty_kernel_s, one.empty_kernel_device_s) == pytest.approx((each, each / 2))


CHECK = decode_attn.Measurement.model_fields["check"].annotation(compared="made up", error=0, tolerance=1)


def cells_of(monkeypatch) -> list:
    """(implementation, shape, number of caches) of every cell that is made from now on."""
    made, make = [], decode_attn.make_cell

    def noted(device, implementation, shape, *arguments, **options):
        cell = make(device, implementation, shape, *arguments, **options)
        made.append((implementation, shape, len(cell.caches)))
        return cell

    monkeypatch.setattr(decode_attn, "make_cell", noted)
    return made


@pytest.mark.parametrize(("cache", "rotated"), [("cold", True), ("warm", False)])
def test_a_cold_cache_rotates_and_a_warm_one_stays(run, monkeypatch, cache, rotated):
    """The stand-in's L2 keeps 1 MiB. The smallest cell is of one key and one K/V head, and always warm. What a cache
    holds is declared to stand under that cache's ceiling."""
    made = cells_of(monkeypatch)
    found = run(cache=cache, batch_sizes=[1])
    assert {one.cache for one in found.measurements} == {cache}
    declared = {(one.memory_level, one.memory_ceilings[0]) for one in found.measurements}
    assert declared == {("hbm", "hbm_read") if rotated else ("l2", "l2")}
    smallest, whole = attention.Shape(1, 2, 1, 64, 1), attention.Shape(1, 4, 2, 64, 300)
    copies = attention.rotation_copies(whole, "fp16", 1 << 20) if rotated else 1
    assert (copies > 1) == rotated
    names = ("eager", "fused", "fused_graph")
    assert made == [cell for name in names for cell in ((name, smallest, 1), (name, whole, copies))]


def test_no_more_than_the_wanted_implementations(run):
    found = run(implementations=["fused"], batch_sizes=[2])
    assert [one.implementation for one in found.measurements] == ["fused"]


def test_a_wrong_step_fails_the_job(run, monkeypatch):
    monkeypatch.setattr(attention, "worst_head", lambda result, expected: 0.5)
    with pytest.raises(ArithmeticError, match="decode attention core fp16"):
        run(implementations=["fused"])


def test_the_line_of_a_job_names_the_fastest_for_every_batch_size(run):
    found = run()
    times = {("eager", 1): 3e-6, ("fused", 1): 2e-6, ("fused_graph", 1): 4e-6}
    times |= {("eager", 2): 9e-6, ("fused", 2): 8e-6, ("fused_graph", 2): 7e-6}
    measurements = [
        one.model_copy(
            update={
                "latency": one.latency.model_copy(
                    update={"median_s": 1e-9 if one.scope == "block" else times[one.implementation, one.shape["batch"]]}
                )
            }
        )
        for one in found.measurements
    ]
    told = decode_attn.line(found.model_copy(update={"measurements": measurements, "elapsed_s": 1.25}))
    assert told == "decode_attn gpu0 mine S=300 fp16: batch 1 2 us (fused), batch 2 7 us (fused_graph), 1.2 s"


def test_the_seal_predicts_the_ways_apart(run):
    """Where there is nearly nothing to do, a call costs what the seal says of it, for one of a graph's layers."""
    by_name = {(one.implementation, one.scope): one.predicted for one in run(seq_len=1, batch_sizes=[1]).measurements}
    assert by_name["eager", "core"].latency_s == CONSTANTS["gpu_eager_core_call_s"]
    assert by_name["eager", "block"].latency_s == CONSTANTS["gpu_eager_block_call_s"]
    assert by_name["fused", "core"].latency_s == CONSTANTS["gpu_fused_core_call_s"]
    assert by_name["fused_graph", "core"].latency_s == CONSTANTS["gpu_fused_graph_core_call_s"] / 3
    assert {one.regime for one in by_name.values()} == {"overhead"}
