"""How decode attention compares with PyTorch and others over all cells that both could run, and over parts of them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

LARGE_BYTES = 128e6  # of keys and values: from there on the memory's bandwidth leaves little between two kernels
PARTS = {
    "fp16 and bf16": lambda row: row["dtype"] != "fp32",
    "of these, under 128 MB": lambda row: row["dtype"] != "fp32" and row["bytes"] < LARGE_BYTES,
    "of these, 128 MB and more": lambda row: row["dtype"] != "fp32" and row["bytes"] >= LARGE_BYTES,
    "fp32": lambda row: row["dtype"] == "fp32",
}
RATIOS = ("ratio", "apart_ratio")  # in graphs, and with each kernel waiting for the one before


PYTORCH, FASTEST = "PyTorch", "the fastest of them"


def summaries(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict]]:
    """By peer; where there are several, the fastest of them in each cell too."""
    peers = dict.fromkeys((PYTORCH, *(peer for row in rows for peer in row.get("peers_s", {}))))
    found = {peer: summary([beside(row, peer) for row in rows]) for peer in peers}
    if len(found) > 1:
        found[FASTEST] = summary([beside(row, FASTEST) for row in rows])
    return {peer: one for peer, one in found.items() if one}


def beside(row: Mapping[str, Any], peer: str) -> dict[str, Any]:
    """A row as if a peer's ways were the only ones: `pytorch_s` are its seconds by way, and the ratios those to the
    best of them."""
    others = row.get("peers_s", {})
    times = row["pytorch_s"] if peer == PYTORCH else others.get(peer, {})
    if peer == FASTEST:
        all_of = {PYTORCH: row["pytorch_s"], **others}
        times = {name: min(one.values()) for name, one in all_of.items() if one}
    best = min(times.values(), default=None)
    ours = {"ratio": row["fused_s"], "apart_ratio": row["apart_s"]}
    ratios = {key: best / seconds if best and seconds else None for key, seconds in ours.items()}
    return {**row, "pytorch_s": times, **ratios}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict]:
    """Of each part with cells: how many, which of PyTorch's backends was the fastest in any, and by ratio the geometric
    mean, the least and the most."""
    compared = [row for row in rows if row.get("ratio")]
    parts = {name: [row for row in compared if belongs(row)] for name, belongs in PARTS.items()}
    return {
        name: {
            "cells": len(some),
            "backends": sorted({min(row["pytorch_s"], key=row["pytorch_s"].get) for row in some}),
            **{key: _spread([row[key] for row in some]) for key in RATIOS},
        }
        for name, some in parts.items()
        if some
    }


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return {"mean": mean, "least": min(ratios), "most": max(ratios)}


def table_rows(found: Mapping[str, dict]) -> list[list[str]]:
    """Of a summary, for `COLUMNS`."""
    return [
        [
            name,
            str(one["cells"]),
            *("{mean:.2f} ({least:.2f} to {most:.2f})".format(**one[key]) for key in reversed(RATIOS)),
            ", ".join(backend.lower().removesuffix("_attention") for backend in one["backends"]),
        ]
        for name, one in found.items()
    ]


COLUMNS = [
    "cells",
    "number",
    "each kernel waits",
    "overlapping, as a graph allows",
    "fastest backends",
]
