"""What the comparisons with PyTorch share, with a stand-in for PyTorch on a fake GPU."""

import contextlib
import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from commands import COMMANDS, load
from fake_gpu import open_gpu
from workflow_run import CHECKOUT

from roofline import devices

COMPARISONS = ("compare_pytorch", "compare_attention", "compare_norms", "compare_model")


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
    monkeypatch.setattr(devices, "open_device", lambda name: device)
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
    monkeypatch.setattr(devices, "open_device", refuse)
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


def test_peers_are_counted_by_cell_with_why_some_lack_them(peers):
    cells = [(["PyTorch", "FlashInfer"], {}), (["PyTorch"], {"FlashInfer": "16 bits only"}), ([], {"PyTorch": "no"})]
    found = peers.counted(cells)
    assert found["PyTorch"] == {"cells": 2, "why_not": {"no": 1}}
    assert found["FlashInfer"] == {"cells": 1, "why_not": {"16 bits only": 1}}


def test_one_page_tells_every_peer_and_every_comparison(peers, monkeypatch, tmp_path):
    """Of one comparison there is a result; FlashInfer is installed, flash-attn is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    by_peer = {"PyTorch": {"cells": 90, "why_not": {}}, "FlashInfer": {"cells": 60, "why_not": {"16 bits only": 30}}}
    result = peers.COMPARISONS["compare_attention"].result
    peers.write(result, {"pytorch": "2.11", "by_peer": by_peer})
    result.with_suffix(".md").write_text("A GPU.\n\nTimes as fast.\n")
    monkeypatch.setattr(peers, "installed", {"flashinfer-python": "0.6"}.get)
    left_out = {name: "it failed | so" for name in peers.COMPARISONS if name != "compare_attention"}
    found, page = peers.assembled(left_out)
    told = {(row["comparison"], row["peer"]): row for row in found["peers"]}
    assert len(told) == len(peers.PEERS)
    flashinfer, flash_attn = told["compare_attention", "FlashInfer"], told["compare_attention", "flash-attn"]
    assert (flashinfer["version"], flashinfer["cells"], flashinfer["left_out"]) == ("0.6", 60, None)
    assert (flash_attn["version"], flash_attn["left_out"]) == (None, "not installed")
    assert "| 60; 30 not: 16 bits only |" in page and "| left out: not installed |" in page
    assert "## Decode attention\n\nA GPU.\n\nTimes as fast." in page and "left out: it failed / so |" in page
    assert told["compare_norms", "max-autotune"]["left_out"] == "it failed | so"


def test_why_a_comparison_wrote_nothing_is_its_last_line(peers, monkeypatch, tmp_path, capfd):
    script = tmp_path / "compare_some.py"
    script.write_text("import sys; sys.exit('first\\nno GPU here')")
    monkeypatch.setattr(peers, "__file__", str(tmp_path / "peers.py"))
    assert peers.run("compare_some", tmp_path / "some.json") == (1, "no GPU here")
    script.write_text("open('some.json', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert peers.run("compare_some", tmp_path / "some.json") == (0, None)


STOCK = """#!/bin/sh
exec {python} -I -S -c 'import runpy, sys
sys.executable = "{here}"
sys.argv = sys.argv[1:]
sys.path[:0] = ["{packages}", sys.argv[0].rpartition("/")[0]]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
TORCH = """
from types import SimpleNamespace
__version__, version = "2.11", SimpleNamespace(cuda="12.8")
cuda = SimpleNamespace(is_available=lambda: {gpu}, get_device_name=lambda: "A fake GPU", device_count=lambda: 1)
backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
manual_seed = lambda seed: None
"""


@pytest.fixture
def stock(tmp_path):
    """A Python with a stand-in for PyTorch and no other package: not one that this one has."""
    python, packages = tmp_path / "python", tmp_path / "packages"
    packages.mkdir()
    python.write_text(STOCK.format(python=sys.executable, here=python, packages=packages))
    python.chmod(0o755)

    def run(gpu: bool | None) -> subprocess.CompletedProcess:
        if gpu is not None:
            (packages / "torch.py").write_text(TORCH.format(gpu=gpu))
        return subprocess.run([python, COMMANDS / "peers.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return run


def test_a_stock_pytorch_times_products_and_names_what_the_rest_needs(stock, tmp_path):
    """Their stand-in has no product: every dtype is told with the reason, and no package of ours is needed for it."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "roofline.json").symlink_to(CHECKOUT / "reference" / "nvidia-h200" / "roofline.json")
    done = stock(gpu=True)
    assert (done.stderr, done.returncode) == ("", 0)
    left_out = [line for line in done.stdout.splitlines() if "left out" in line]
    assert [line.split(":")[0] for line in left_out] == ["compare_attention", "compare_norms", "compare_model"]
    assert all("pip install" in line and "cupy-cuda12x" in line and "pydantic" in line for line in left_out[:2])
    page = (tmp_path / "results" / "peers.md").read_text()
    assert "| Products | PyTorch | 2.11 | torch.mm" in page
    assert "## A model's decode step\n\nLeft out: this Python lacks pyyaml." in page
    found = json.loads((tmp_path / "results" / "pytorch.json").read_text())
    references = {row["dtype"]: row["reference_tflops"] for row in found["rows"]}
    assert 700 < references["fp16"] < 900 and found["pytorch"] == "2.11"


@pytest.mark.parametrize(("gpu", "says"), [(None, "PyTorch is not installed"), (False, "PyTorch sees no GPU here")])
def test_a_python_that_can_time_nothing_says_so_without_a_traceback(stock, gpu, says):
    done = stock(gpu)
    assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr
