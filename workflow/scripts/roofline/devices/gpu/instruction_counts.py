"""Warp instructions of our kernels from their disassembly, where no counter may be read.

What each compiled form of a kernel holds stands in a file beside its source, which `make counts` writes.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from roofline.devices.gpu.kernel_compiler import kernel_source


class Counts(NamedTuple):
    """Warp instructions of one pass through a kernel, its loop gone through once, and of each further turn of it."""

    once: int
    loop: int

    def of_a_warp(self, turns: int) -> int:
        return self.once + max(0, turns - 1) * self.loop


def counts(file: Path, capability: tuple[int, int], defines: Iterable[str]) -> Counts | None:
    """None where the kernel was not counted in this form, or its source has changed since."""
    found = _read(file)
    known = found["counts"].get(f"{capability[0]}{capability[1]}", {}).get(form(defines))
    return Counts(*known) if known and found["source_sha256"] == source_sha256(file) else None


def form(defines: Iterable[str]) -> str:
    return " ".join(sorted(defines))


def source_of(file: Path) -> Path:
    """row_norm.cu of row_norm.counts.json."""
    return file.with_name(file.name.replace(".counts.json", ".cu"))


@cache
def source_sha256(file: Path) -> str:
    return hashlib.sha256(kernel_source(source_of(file)).encode()).hexdigest()


@cache
def _read(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8"))
