"""How decode attention compares with PyTorch over all cells that both could run, and over parts of them."""

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
