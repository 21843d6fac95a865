"""The comparison of decode attention with PyTorch, as far as it needs neither: cells, arithmetic and words."""

import sys
from dataclasses import asdict

import pytest
from commands import load
from fake_gpu import open_gpu

from roofline.operators.decode_attention.counts import Shape, cache_bytes


@pytest.fixture(scope="module")
def command():
    return load("compare_attention")


def row(dtype: str, shape: Shape, fused_s: float | None, pytorch_s: dict[str, float]) -> dict:
    best = min(pytorch_s.values(), default=None)
    of_cell = {"dtype": dtype, **asdict(shape), "bytes": cache_bytes(shape, dtype), "fused_s": fused_s}
    ratios = {"ratio": best / fused_s, "apart_ratio": best / fused_s / 2} if best and fused_s else {}
    return {**of_cell, "apart_s": fused_s and 2 * fused_s, "pytorch_s": pytorch_s, "why_not": {}, **ratios}


SMALL, LARGE = Shape(1, 8, 8, 64, 1024), Shape(512, 8, 8, 64, 8192)


def test_ninety_cells_of_both_head_layouts(command):
    cells = list(command.cells())
    assert len(cells) == len(set(cells)) == 90
    assert {(shape.heads, shape.kv_heads, shape.head_size) for shape, _ in cells} == {(8, 8, 64), (32, 8, 128)}


def test_means_are_geometric_over_all_cells_and_over_named_parts(command):
    rows = [
        row("fp16", SMALL, 1e-6, {"MATH": 9e-6, "CUDNN_ATTENTION": 2e-6}),
        row("bf16", SMALL, 1e-6, {"CUDNN_ATTENTION": 8e-6}),
        row("fp16", LARGE, 2e-3, {"CUDNN_ATTENTION": 1e-3}),
        row("fp32", SMALL, 1e-6, {"MATH": 5e-6}),
        row("fp32", LARGE, 4e-3, {}),
    ]
    found = command.summary(rows)
    whole, small = found["fp16 and bf16"], found["of these, under 128 MB"]
    assert whole["cells"] == 3 and small["cells"] == 2
    assert whole["ratio"] == pytest.approx({"mean": (2 * 8 * 0.5) ** (1 / 3), "least": 0.5, "most": 8})
    assert small["ratio"]["mean"] == pytest.approx(4) and whole["apart_ratio"]["least"] == pytest.approx(0.25)
    assert found["fp32"]["cells"] == 1 and found["fp32"]["backends"] == ["MATH"]
    shares = command.shares_of_read(rows, read_roof=8000)
    at_least = min(8.589934592 / 2e-3, 17.179869184 / 4e-3) / 8000
    assert shares["from_4000_mb"] == pytest.approx(at_least) == shares["from_256_mb"]


def test_a_row_a_cell_also_where_one_side_has_none(command):
    rows = [
        row("fp16", SMALL, 1e-6, {"CUDNN_ATTENTION": 2e-6, "MATH": 3e-6}),
        row("fp32", SMALL, 2e-6, {}),
        row("fp32", LARGE, None, {}),
    ]
    head, rule, first, second, third = command.table(rows, read_roof=4000).splitlines()
    assert first.startswith("| fp16 | 8/8 of 64 | 1 | 1024 | 2.1 | 1 us |")
    assert first.endswith("| 52 % | 2 us | cudnn | 2.00 | 1.00 |")
    assert second.endswith("| none | - | - | - |") and "does not fit" in third
    assert len({line.count("|") for line in (head, rule, first, second, third)}) == 1
    words = command.in_words(command.summaries(rows), command.shares_of_read(rows, 4000), 4000)
    assert "1.00 (1.00 to 1.00)" in words and "2.00 (2.00 to 2.00)" in words and "fp32" not in words


def test_each_peer_and_the_fastest_of_them_is_compared_over_the_cells_that_it_has(command):
    both = row("fp16", SMALL, 1e-6, {"MATH": 4e-6}) | {
        "peers_s": {"FlashInfer": {"pages of 16": 2e-6, "pages of 64": 3e-6}}
    }
    one = row("bf16", SMALL, 1e-6, {"MATH": 8e-6}) | {"peers_s": {}}
    found = command.summaries([both, one])
    assert found["PyTorch"] == command.summary([both, one])
    parts = {peer: (of["fp16 and bf16"]["cells"], of["fp16 and bf16"]["ratio"]["mean"]) for peer, of in found.items()}
    assert parts == {
        "PyTorch": (2, pytest.approx(32**0.5)),
        "FlashInfer": (1, pytest.approx(2)),
        "the fastest of them": (2, pytest.approx(4)),
    }
    assert found["the fastest of them"]["fp16 and bf16"]["backends"] == ["FlashInfer", "PyTorch"]
    head, rule, first, second = command.table([both, one], read_roof=4000).splitlines()
    assert first.endswith("| 2 us | pages of 16 | 2.00 | 1.00 |") and second.endswith("| none | - | - | - |")
    assert head.count("|") == rule.count("|") == first.count("|")


def test_of_each_peer_the_fastest_way_goes_on_and_reasons_are_told_by_way(command):
    theirs = {("PyTorch", "MATH"): 3.0, ("PyTorch", "FLASH_ATTENTION"): 2.0, ("FlashInfer", "pages of 16"): 4.0}
    assert command.fastest_ways(theirs) == [("PyTorch", "FLASH_ATTENTION"), ("FlashInfer", "pages of 16")]
    why_not = {("PyTorch", "CUDNN_ATTENTION"): "no", ("flash-attn", "flash_attn_with_kvcache"): "16 bits"}
    found = command.by_peer_of(theirs, why_not)
    assert found["pytorch_s"] == {"MATH": 3.0, "FLASH_ATTENTION": 2.0}
    assert found["peers_s"] == {"FlashInfer": {"pages of 16": 4.0}}
    too_large = {"pytorch_s": {}, "peers_s": {}, "why_not": {"all": "9 GB of caches"}}
    counts = command.counted([found, too_large])
    assert counts["PyTorch"] == {"cells": 1, "why_not": {"9 GB of caches": 1}}
    assert counts["flash-attn"] == {"cells": 0, "why_not": {"16 bits": 1, "9 GB of caches": 1}}


def test_a_cell_of_the_pool_rotates_through_it_cold(command, monkeypatch):
    """The stand-in's L2 keeps 1 MiB; six layers a graph, and whole models of caches."""
    device = open_gpu(monkeypatch)
    shape = Shape(2, 2, 2, 64, 300)
    pool = command._pool(device, "fp16", 16 << 20)
    cell = command.cell_of(device, shape, "fp16", pool, layers=6)
    assert len(cell.caches) % 6 == 0
    assert len(cell.caches) * cache_bytes(shape, "fp16") >= 3 << 20
    first, last = cell.caches[0][0], cell.caches[-1][1]
    assert first.ctypes.data == pool.ctypes.data
    end = (last.ctypes.data - pool.ctypes.data + last.nbytes) / cache_bytes(shape, "fp16")
    assert end == len(cell.caches)
    assert [len(graph.launches) for graph in cell.graphs] == [6] * (len(cell.caches) // 6)


def test_without_pytorch_it_says_so_in_a_sentence(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "PyTorch is not installed here" in command.main()
