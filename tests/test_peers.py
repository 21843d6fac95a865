"""What the comparisons with PyTorch share, with a stand-in for PyTorch on a fake GPU."""

import contextlib
import importlib
import json
import sys
from types import SimpleNamespace

import pytest
from commands import COMMANDS, load
from fake_gpu import open_gpu

COMPARISONS = ("compare_pytorch", "compare_attention", "compare_norms")


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(COMMANDS))
    return importlib.import_module("peers")


def use_torch(monkeypatch, available: bool = True) -> None:
    cuda = SimpleNamespace(is_available=lambda: available, get_device_name=lambda: "A fake GPU")
    torch = SimpleNamespace(
        __version__="2.11", version=SimpleNamespace(cuda="12.8"), cuda=cuda, zeros=lambda size, device: None
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("name", COMPARISONS)
def test_without_pytorch_or_a_gpu_it_says_so_in_a_sentence(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "PyTorch is not installed here" in load(name).main()
    use_torch(monkeypatch, available=False)
    assert load(name).main() == "PyTorch sees no GPU here"


def test_a_comparison_is_written_with_where_it_was_made(peers, monkeypatch, tmp_path, capsys):
    use_torch(monkeypatch)
    device = open_gpu(monkeypatch)
    monkeypatch.setattr(peers.devices, "open_device", lambda name: device)
    monkeypatch.setattr(peers.lock, "measuring", contextlib.nullcontext)
    result = tmp_path / "results" / "some_pytorch.json"
    assert peers.with_our_kernels(lambda torch, device: ({"rows": [1]}, "a table"), result) is None
    found = json.loads(result.read_text())
    assert (found["pytorch"], found["card"], found["uuid"], found["rows"]) == ("2.11", "A fake GPU", "GPU-1", [1])
    page = result.with_suffix(".md").read_text()
    assert page.startswith("A fake GPU, 20") and page.endswith("PyTorch 2.11.\n\na table\n")
    assert capsys.readouterr().out == page


def test_without_our_kernels_it_says_why_and_writes_nothing(peers, monkeypatch, tmp_path):
    def refuse(name):
        raise LookupError("no CuPy")

    use_torch(monkeypatch)
    monkeypatch.setattr(peers.devices, "open_device", refuse)
    told = peers.with_our_kernels(None, tmp_path / "results" / "some_pytorch.json")
    assert told == "our kernels cannot run in this Python: no CuPy"
    assert not list(tmp_path.iterdir())


def test_the_memorys_own_rate_is_that_of_its_fastest_kernel(peers, monkeypatch):
    device = open_gpu(monkeypatch)
    steps = {"one block per tile, 128 threads": 2e-3, "one block per tile, 256 threads": 1e-3, "2 blocks": 1e-9}
    streams = [SimpleNamespace(name=f"hbm_{mix}", counted_bytes=10**9, grids=steps) for mix in ("read", "copy")]
    monkeypatch.setattr(device, "streams", lambda level, size: streams)
    monkeypatch.setattr(device, "step_times", lambda step, count: [step] * count)
    assert peers.memory_gb_per_s(device, "copy") == pytest.approx(1000)
