"""make peers: every comparison that its Python can run with PyTorch and others, and what these share.

    PYTHON workflow/commands/peers.py

PYTHON is the user's, with PyTorch. Products and copies need nothing else: ours were timed by the run. Attention and
norms take turns with our kernels in one process, for which that Python needs what these are made with; a model's step
does so where it has that. At the end results/peers.md tells every peer and every comparison on one page.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core import statistics
from roofline.core.formatting import listed
from roofline.measure import lock

# Modules that our kernels need, with the packages that bring them; nothing above may import one.
OURS = {
    "cuda": "cuda-bindings",
    "cupy": "cupy-cuda12x",
    "ml_dtypes": "ml_dtypes",
    "numpy": "numpy",
    "psutil": "psutil",
    "pydantic": "pydantic",
    "pynvml": "nvidia-ml-py",
    "safetensors": "safetensors",
}


class Comparison(NamedTuple):
    title: str
    result: Path  # beside it a page in Markdown
    needed: Mapping[str, str]


class Peer(NamedTuple):
    """One of a comparison's, under the name that its `by_peer` has; `package` as an index has it."""

    comparison: str
    name: str
    package: str
    how: str


COMPARISONS = {
    "compare_pytorch": Comparison("Products", Path("results/pytorch.json"), {}),
    "compare_attention": Comparison("Decode attention", Path("results/attention_pytorch.json"), OURS),
    "compare_norms": Comparison("Normalisations", Path("results/norms_pytorch.json"), OURS),
    "compare_model": Comparison("A model's decode step", Path("results/model_pytorch.json"), {"yaml": "pyyaml"}),
}
PEERS = (
    Peer(
        "compare_pytorch",
        "PyTorch",
        "torch",
        "torch.mm, _scaled_mm (fp8, fast accumulation), _int_mm; the best of two squares and of the shapes and layouts "
        "that the ceiling's search tried; tensor.copy_ between GPUs",
    ),
    Peer(
        "compare_attention",
        "PyTorch",
        "torch",
        "scaled_dot_product_attention, enable_gqa where queries share keys; the best of its four backends",
    ),
    Peer(
        "compare_attention",
        "FlashInfer",
        "flashinfer-python",
        "BatchDecodeWithPagedKVCacheWrapper in CUDA-graph mode, planned once before; the best of pages of 16 and 64 "
        "tokens (HND), each on CUDA cores and on tensor cores; 16 bits",
    ),
    Peer(
        "compare_attention",
        "flash-attn",
        "flash-attn",
        "flash_attn_with_kvcache on the whole cache, nothing appended; 16 bits",
    ),
    Peer("compare_norms", "F.layer_norm", "torch", "torch.nn.functional.layer_norm, eps 0; of row_norm alone"),
    Peer("compare_norms", "PyTorch eager", "torch", "the formula as written; rms_norm, then linear"),
    Peer("compare_norms", "torch.compile", "torch", "the same, dynamic=False"),
    Peer(
        "compare_norms",
        "max-autotune",
        "torch",
        "torch.compile, mode max-autotune-no-cudagraphs; of row_norm, and of rmsnorm_matmul in "
        "bf16 at hidden 4096 alone, since it compiles for long",
    ),
    Peer(
        "compare_norms",
        "Transformer Engine",
        "transformer-engine",
        "LayerNormLinear, normalization RMSNorm, no bias; of rmsnorm_matmul alone",
    ),
    Peer(
        "compare_model",
        "PyTorch",
        "torch",
        "torch.compile of a layer before and after its attention and of the head, coordinate descent tuning, no "
        "max-autotune; scaled_dot_product_attention with grouped queries, the best of cuDNN and flash; one CUDA graph",
    ),
)
READ_STEPS = 30
PAGE = Path("results/peers.json")


def main() -> int | str:
    if find_spec("torch") is None:
        return f"PyTorch is not installed in {sys.executable}; PYTORCH=python names another, and nothing else needs it"
    status, left_out = 0, {}
    for name, comparison in COMPARISONS.items():
        missing = [package for module, package in comparison.needed.items() if find_spec(module) is None]
        if missing:
            install = f"{sys.executable} -m pip install {' '.join(missing)}"
            left_out[name] = f"this Python lacks {listed(missing)}"
            print(f"{name}: left out, since {left_out[name]}: {install}", flush=True)
            continue
        returned, why_not = run(name, comparison.result)
        status |= returned
        if why_not:
            left_out[name] = why_not
    if len(left_out) < len(COMPARISONS):
        found, page = assembled(left_out)
        write(PAGE, found)
        PAGE.with_suffix(".md").write_text(page, encoding="utf-8")
        print(f"\n{PAGE.with_suffix('.md')}: all peers on one page")
    return status


def run(name: str, result: Path) -> tuple[int, str | None]:
    """A comparison's exit status, and why it wrote no result: the last line of its errors."""
    began = time.time()
    with tempfile.TemporaryFile("w+") as errors:  # no pipe: a compiler's workers may keep it open
        done = subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py")], stderr=errors)
        errors.seek(0)
        text = errors.read()
    sys.stderr.write(text)
    print(f"{name}: {time.time() - began:.0f} s\n", flush=True)
    if result.exists() and result.stat().st_mtime >= began - 1:
        return done.returncode, None
    return done.returncode or 1, (text.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def assembled(left_out: Mapping[str, str]) -> tuple[dict, str]:
    """What all comparisons found, and a page of it; of one that wrote nothing why."""
    wrote = {
        name: json.loads(one.result.read_text(encoding="utf-8"))
        for name, one in COMPARISONS.items()
        if name not in left_out
    }
    rows = [told(peer, wrote.get(peer.comparison), left_out.get(peer.comparison)) for peer in PEERS]
    lines = ["| comparison | peer | version | how it is called | cells |", "|---|---|---|---|---|"]
    for row in rows:
        known = [COMPARISONS[row["comparison"]].title, row["peer"], row["version"] or "-", row["how"], in_cells(row)]
        lines.append(f"| {' | '.join(part.replace('|', '/') for part in known)} |")
    parts = ["# Beside peers", "\n".join(lines)]
    for name, one in COMPARISONS.items():
        why = left_out.get(name)
        text = f"Left out: {why}." if why else one.result.with_suffix(".md").read_text(encoding="utf-8").strip()
        parts.append(f"## {one.title}\n\n{text}")
    return {"peers": rows, "left_out": dict(left_out)}, "\n\n".join(parts) + "\n"


def told(peer: Peer, found: Mapping | None, left_out: str | None) -> dict:
    """A peer's version, in how many cells it was timed, and why not in others."""
    version = found["pytorch"] if found and peer.package == "torch" else installed(peer.package)
    cells = (found or {}).get("by_peer", {}).get(peer.name, {"cells": 0, "why_not": {}})
    why = left_out or (None if version or cells["cells"] else "not installed")
    known = {"comparison": peer.comparison, "peer": peer.name, "version": version, "how": peer.how}
    return {**known, **cells, "left_out": why}


def in_cells(row: Mapping) -> str:
    if row["left_out"]:
        return f"left out: {row['left_out']}"
    not_in = [f"{count} not: {why}" for why, count in row["why_not"].items()]
    return "; ".join([str(row["cells"]), *not_in])


def installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def counted(cells: Iterable[tuple[Collection[str], Mapping[str, str]]]) -> dict[str, dict]:
    """Of cells, each with the peers that it was timed with and why others were not: the number of cells by peer, and of
    those without it by reason."""
    ran: Counter = Counter()
    missing: dict[str, Counter] = {}
    for peers, why_not in cells:
        ran.update(set(peers))
        for peer, why in why_not.items():
            missing.setdefault(peer, Counter()).update([why])
    return {peer: {"cells": ran[peer], "why_not": dict(missing.get(peer, {}))} for peer in sorted({*ran, *missing})}


def first_line(error: Exception) -> str:
    """Why a peer is left out: the first line of what it raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]


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
        try:
            device = our_device(torch)
        except (LookupError, RuntimeError) as error:
            return f"our kernels cannot run in this Python: {error}"
        with lock.measuring([lock.HOST]):
            found, text = compare(torch, device)
        tell(result, provenance(torch) | {"uuid": device.identity.uuid} | found, text)
        return None

    return with_pytorch(on_device)


def our_device(torch):
    """The first GPU, opened for our kernels. Raises LookupError and RuntimeError where it cannot be."""
    torch.zeros(1, device="cuda")  # PyTorch's context first: the device that is opened is the only one left visible
    from roofline import devices  # needs what PyTorch's Python may lack

    return devices.open_device("gpu0")


def tell(result: Path, found: dict, text: str) -> None:
    """Write figures with where they were made, and write and print their page."""
    write(result, found)
    where = f"{found['card']}, {found['measured_at']}, commit {found['commit']}, PyTorch {found['pytorch']}"
    page = f"{where}.\n\n{text}"
    result.with_suffix(".md").write_text(f"{page}\n", encoding="utf-8")
    print(page)


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
