"""What the hardware counters show, as facts for sentences and as a table of declared and counted figures."""

from collections import Counter
from collections.abc import Iterable

from roofline.core.formatting import count_words, percent, traffic_text
from roofline.report.markdown import MarkdownTable, drop_empty_columns
from roofline.report.words import LEVELS
from roofline.table.rows import Counted, InstructionRoofline, Roofline

FLOPS = "FLOPs"
QUANTITIES = {"bytes read": "reads_agree", "bytes written": "writes_agree", FLOPS: "flops_agree"}
EXPLAINED = 0.6  # of the roof of the cell: from there on bytes and FLOPs explain what limits a kernel
MOST_ROWS = 6
LIMITS = LEVELS | {"issue": "instruction issue", "latency": "latency"}


def counter_facts(table: Roofline) -> dict:
    """Traffic is judged in memory-bound cells, FLOPs in all."""
    agreement, wrong = [], []
    for what, field in QUANTITIES.items():
        judged = [one for one in table.counters if what == FLOPS or one.limited_by_memory]
        known = [one for one in judged if getattr(one, field) is not None]
        agreement += [(what, sum(getattr(one, field) for one in known), len(known))] if known else []
        wrong += [counted_name(one, table) for one in known if not getattr(one, field)]
    return {
        "refused": table.refused_counters,
        "cells": count_words(len(table.counters), "cell") if table.counters else "",
        "agreement": agreement,
        "wrong": list(dict.fromkeys(wrong)),
        "missing": {
            f"{key.replace('_', ' ')} ({why})" for one in table.counters for key, why in one.not_counted.items()
        },
        "instructions": [_explained(one) for one in table.instructions],
    }


def _explained(row: InstructionRoofline) -> dict:
    """How many kernels their own roof explains, and what limits the others."""
    others = [one for one in row.kernels if (one.fraction_of_roof or 0) < EXPLAINED]
    limits = Counter(LIMITS[one.limit] for one in others).most_common()
    words = [f"{name} ({count_words(count, 'cell')})" for name, count in limits]
    return {"row": row, "explained": len(row.kernels) - len(others), "limits": words}


def build_counter_table(entries: Iterable[Counted], table: Roofline) -> MarkdownTable:
    """Declared and counted side by side, of the first MOST_ROWS cells; roofline.json has them all."""
    columns = ("cell", "read: declared", "counted", "written: declared", "counted")
    columns += ("FLOPs: declared", "kernel's formula", "counted", "tensor cores active", "occupancy")
    rows = []
    for one in list(entries)[:MOST_ROWS]:
        moved = (one.declared_read_bytes, one.dram_read_bytes, one.declared_write_bytes, one.sm_write_bytes)
        flops = (one.declared_flops, one.formula_flops, one.counted_flops)
        shares = (one.tensor_pipe_active_fraction, one.achieved_occupancy_fraction)
        words = [traffic_text(value) if value is not None else "-" for value in moved]
        words += [f"{value:.4g}" if value is not None else "-" for value in flops]
        words += [percent(value) if value is not None else "-" for value in shares]
        rows.append([counted_name(one, table), *words])
    return drop_empty_columns(columns, rows)


def counted_name(one: Counted, table: Roofline) -> str:
    names = (one.device, one.preset, one.scope, one.dtype, table.label(one))
    return f"{table.title(one.operator)}, {one.implementation}: {' '.join(filter(None, names))}"
