"""A model's decode step by PyTorch, as far as it needs no PyTorch: sizes, bytes and words."""

import json
from types import SimpleNamespace

import pytest
from commands import load
from workflow_run import CHECKOUT

from roofline.models import config_file, decoding
from roofline.models.number_formats import PLAIN


@pytest.fixture(scope="module")
def command():
    return load("compare_model")


def test_sizes_and_bytes_are_those_of_the_model(command):
    """8.03e9 weights less 0.53e9 of the table, and 128 KiB of K/V a token, in 2 bytes each."""
    found = config_file.find(command.MODEL)
    assert command.sizes_of(found["config"]) == (4096, 32, 8, 128, 14336, 128256, 32)
    read = sum(one.times * one.bytes for one in decoding.step(config_file.read(found), 1, 1024, PLAIN["bf16"]))
    assert read == pytest.approx(2 * (8030261248 - 128256 * 4096) + 1024 * 131072, rel=1e-6)


def test_ceilings_are_those_of_the_runs_first_gpu(command):
    roofline = json.loads((CHECKOUT / "reference" / "nvidia-h200" / "roofline.json").read_text())
    found = command.ceilings_of(roofline)
    assert 4500 < found.read_gb_per_s < 4800 and 780 < found.tflops["bf16"] < 850
    with pytest.raises(StopIteration):
        command.ceilings_of({"ceilings": []})


def test_a_cell_is_told_by_its_fastest_backend_or_why_it_has_none(command):
    ceilings = command.Ceilings(4000.0, {"bf16": 800.0})
    both = {"CUDNN_ATTENTION": 5e-3, "FLASH_ATTENTION": 6e-3, "ours": 4.5e-3}
    rows = [
        command.row(1, 1024, 16e9, 4e-3, both, {}, ceilings),
        command.row(128, 1024, 32e9, 8e-3, {}, {"all": "out of memory"}, ceilings),
    ]
    head, rule, first, second = command.table(rows).splitlines()
    assert first == "| 1 | 1024 | 16 | 4 ms | 4.5 ms | 89 % | 5 ms | cudnn | 80 % | 1.11 |"
    assert second == "| 128 | 1024 | 32 | 8 ms | - | - | - | - | - | - |"
    assert head.count("|") == rule.count("|") == second.count("|")
    words = command.in_words(rows, ceilings)
    assert "1.11 times as fast, geometric mean of 1 cells (1.11 to 1.11)" in words and "all: out of memory" in words


def test_the_fastest_turn_counts(command, monkeypatch):
    times = iter([3e-3, 5e-3, 2e-3, 6e-3, 4e-3, 7e-3])
    monkeypatch.setattr(command, "seconds", lambda torch, way, stream: next(times))
    assert command.turns(None, {"first": None, "second": None}, None) == {"first": 2e-3, "second": 5e-3}


def test_a_python_without_what_our_kernels_need_times_pytorch_alone(command, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda module: None if module == "cupy" else module)
    assert command.our_device(None) == (None, "this Python lacks cupy-cuda12x")


def test_a_step_that_does_not_fit_is_left_out_with_its_reason(command):
    device = SimpleNamespace(capability=(9, 0), identity=SimpleNamespace(memory_free_bytes=1 << 30))
    with pytest.raises(RuntimeError, match="it does not fit"):
        command.our_step(device, config_file.find(command.MODEL), 1, 1024)
