"""make peers: every comparison with PyTorch that its Python can run, one after another; and what these share.

    PYTHON workflow/commands/peers.py

PYTHON is the user's, with PyTorch. Products and copies need nothing else: ours were timed by the run. Attention and
norms take turns with our kernels in one process, for which that Python needs what these are made with.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core import statistics
from roofline.core.formatting import listed
from roofline.measure import lock

# Modules that our kernels need, with the packages that bring them; nothing above may import one.
OURS = {
    "cupy": "cupy-cuda12x",
    "ml_dtypes": "ml_dtypes",
    "numpy": "numpy",
    "psutil": "psutil",
    "pydantic": "pydantic",
    "pynvml": "nvidia-ml-py",
    "safetensors": "safetensors",
}
COMPARISONS = {"compare_pytorch": {}, "compare_attention": OURS, "compare_norms": OURS}
READ_STEPS = 30


def main() -> int | str:
    if find_spec("torch") is None:
        return f"PyTorch is not installed in {sys.executable}; PYTORCH=python names another, and nothing else needs it"
    status = 0
    for name, needed in COMPARISONS.items():
        missing = [package for module, package in needed.items() if find_spec(module) is None]
        if missing:
            install = f"{sys.executable} -m pip install {' '.join(missing)}"
            print(f"{name}: left out, since this Python lacks {listed(missing)}: {install}", flush=True)
        else:
            status |= subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py")]).returncode
    return status


def with_pytorch(compare: Callable) -> str | None:
    """What `compare(torch)` returns; without PyTorch or a GPU, a sentence that says so."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed here; it is a peer to compare with, and nothing else needs it"
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU here"
    return compare(torch)


def with_our_kernels(compare: Callable, result: Path) -> str | None:
    """Write and print what `compare(torch, device)` returns: figures, and their table in Markdown."""

    def on_device(torch) -> str | None:
        # PyTorch's context first: the device that is opened then is the only one left visible.
        torch.zeros(1, device="cuda")
        from roofline import devices  # needs what PyTorch's Python may lack

        try:
            device = devices.open_device("gpu0")
        except (LookupError, RuntimeError) as error:
            return f"our kernels cannot run in this Python: {error}"
        with lock.measuring([lock.HOST]):
            found, text = compare(torch, device)
        known = provenance(torch) | {"uuid": device.identity.uuid}
        write(result, known | found)
        where = f"{known['card']}, {known['measured_at']}, commit {known['commit']}, PyTorch {known['pytorch']}"
        page = f"{where}.\n\n{text}"
        result.with_suffix(".md").write_text(f"{page}\n", encoding="utf-8")
        print(page)
        return None

    return with_pytorch(on_device)


def provenance(torch) -> dict:
    known = {"pytorch": torch.__version__, "cuda": torch.version.cuda, "card": torch.cuda.get_device_name()}
    return known | {"commit": commit(), "measured_at": datetime.now(UTC).isoformat()}


def commit() -> str | None:
    """By git, else by ROOFLINE_COMMIT, as in a run's manifest."""
    checkout = Path(__file__).absolute().parents[2]
    try:
        told = subprocess.run(
            ["git", "-c", f"safe.directory={checkout}", "rev-parse", "--verify", "--quiet", "HEAD"],
            cwd=checkout,
            capture_output=True,
            text=True,
        )
    except OSError:  # there is no git
        return os.environ.get("ROOFLINE_COMMIT")
    return told.stdout.strip() or os.environ.get("ROOFLINE_COMMIT")


def write(path: Path, found: dict) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{json.dumps(found, indent=1)}\n", encoding="utf-8")


def memory_gb_per_s(device, mix: str) -> float:
    """Of the fastest kernel of rule bandwidth, among a few that are mostly so."""
    stream = next(one for one in device.streams("hbm", None) if one.name == f"hbm_{mix}")
    fastest = min(
        statistics.median(device.step_times(step, READ_STEPS))
        for grid, step in stream.grids.items()
        if grid.startswith("one block per tile")
    )
    return stream.counted_bytes / fastest / 1e9


if __name__ == "__main__":
    sys.exit(main())
