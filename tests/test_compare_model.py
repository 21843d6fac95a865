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
    assert 4500 < found.read_gb_per_s < 4700 and 800 < found.tflops["bf16"] < 820
    with pytest.raises(StopIteration):
        command.ceilings_of({"ceilings": []})


def test_a_cell_is_told_by_its_fastest_backend_or_why_it_has_none(command):
    ceilings = command.Ceilings(4000.0, {"bf16": 800.0})
    rows = [
        command.row(1, 1024, 16e9, 4e-3, {"CUDNN_ATTENTION": 5e-3, "FLASH_ATTENTION": 6e-3}, {}, ceilings),
        command.row(128, 1024, 32e9, 8e-3, {}, {"all": "out of memory"}, ceilings),
    ]
    head, rule, first, second = command.table(rows).splitlines()
    assert first == "| 1 | 1024 | 16 | 4 ms | 5 ms | cudnn | 3200 | 80 % | 80 % |"
    assert second.endswith("| - | - | - | - | out of memory |")
    assert head.count("|") == rule.count("|") == second.count("|")
    assert "geometric mean of 1 cells: 80 % (80 % to 80 %)" in command.in_words(rows, ceilings)


def test_the_fastest_turn_counts(command, monkeypatch):
    times = iter([3e-3, 5e-3, 2e-3, 6e-3, 4e-3, 7e-3])
    monkeypatch.setattr(command, "seconds", lambda torch, way, stream: next(times))
    assert command.turns(None, {"first": None, "second": None}, None) == {"first": 2e-3, "second": 5e-3}


def test_the_chain_stands_beside_pytorch_where_it_was_timed(command):
    ceilings, times = command.Ceilings(4000.0, {"bf16": 800.0}), {"CUDNN_ATTENTION": 5e-3, "FLASH_ATTENTION": 6e-3}
    rows = [
        command.row(1, 1024, 16e9, 4e-3, times, {}, ceilings) | command.beside(4.5e-3, None, times, 16e9, ceilings),
        command.row(1, 8192, 16e9, 4e-3, times, {}, ceilings)
        | command.beside(None, "it does not fit", times, 1, ceilings),
    ]
    head, rule, first, second = command.table(rows).splitlines()
    assert head.endswith("| chain | of hbm_read | times as fast |") and head.count("|") == rule.count("|")
    assert first.endswith("| 4.5 ms | 89 % | 1.11 |") and second.endswith("| it does not fit | - | - |")
    assert "1.11 times as fast as PyTorch (1.11 to 1.11)" in command.in_words(rows, ceilings)
    assert command.in_words(rows[1:], ceilings).endswith("The chain of kernels is not beside it: it does not fit.")


def test_a_python_without_what_our_kernels_need_times_pytorch_alone(command, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda module: None if module == "cupy" else module)
    assert command.our_device(None) == (None, "this Python lacks cupy-cuda12x")


def test_the_chain_is_left_out_with_its_reason(command):
    identity = SimpleNamespace(memory_free_bytes=1 << 30)
    device = SimpleNamespace(capability=(9, 0), identity=identity)
    way, why = command.our_step(device, config_file.find(command.MODEL), 1, 1024)
    assert way is None and why.startswith("it does not fit: 15.3 GiB needed")
