"""What the comparisons with PyTorch share: whether they can run here, and what they write."""

import json
from collections.abc import Callable
from pathlib import Path

from roofline import devices
from roofline.core import statistics
from roofline.measure import lock
from roofline.run.checkout import describe
from roofline.run.jobs import now

READ_STEPS = 30


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
    return known | {"commit": describe(Path()).commit, "measured_at": now()}


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
