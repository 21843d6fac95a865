"""What the hardware counters show, as facts for sentences and as a table of declared and counted figures."""

from collections import Counter

from roofline.core.formatting import count_words, number
from roofline.core.levels import LEVEL_TITLES
from roofline.report.markdown import MarkdownTable
from roofline.report.rendering import render_table
from roofline.table.rows import Counted, InstructionRoofline, Roofline

FLOPS = "FLOPs"
# The fields of the verdict, of what was declared and of what was counted, by quantity.
COUNTED_FIELDS = {
    "bytes read": ("reads_agree", "declared_read_bytes", "dram_read_bytes"),
    "bytes written": ("writes_agree", "declared_write_bytes", "sm_write_bytes"),
    FLOPS: ("flops_agree", "declared_flops", "counted_flops"),
}
EXPLAINED_FRACTION = 0.6  # of the roof of the cell: from there on bytes and FLOPs explain what limits a kernel
MOST_COUNTED_CELLS = 6  # in the table
LIMIT_TITLES = LEVEL_TITLES | {"issue": "instruction issue"}


def counter_facts(table: Roofline) -> dict:
    """Return the facts of the sentences on counters. Traffic is judged in memory-bound cells, FLOPs in all."""
    agreement, wrong, unjudged = [], [], []
    for quantity, (verdict, *_) in COUNTED_FIELDS.items():
        eligible = [cell for cell in table.counters if quantity == FLOPS or cell.limited_by_memory]
        judged = [cell for cell in eligible if getattr(cell, verdict) is not None]
        if judged:
            agreement.append((quantity, sum(getattr(cell, verdict) for cell in judged), len(judged)))
        ratios = [words for cell in table.counters if cell not in judged for words in _ratio(cell, quantity, table)]
        unjudged += [f"{quantity}: {', '.join(dict.fromkeys(ratios))}"] if ratios else []
        wrong += [counted_name(cell, table) for cell in judged if not getattr(cell, verdict)]
    reasons = [item for cell in table.counters for item in cell.not_counted.items()]
    return {
        "table": table,
        "measured": sum(bool(cell.gpu_time_s) for cell in table.operators),
        "agreement": agreement,
        "unjudged": "; ".join(unjudged),
        "wrong": list(dict.fromkeys(wrong)),
        "missing": {f"{counter.replace('_', ' ')} ({reason})" for counter, reason in reasons},
        "instructions": [_explained(row) for row in table.instructions],
    }


def _ratio(cell: Counted, quantity: str, table: Roofline) -> list[str]:
    """What was counted over what was declared, in words; none if either is not known, or nothing was declared."""
    _, declared, counted = (getattr(cell, field) for field in COUNTED_FIELDS[quantity])
    if not declared or counted is None:
        return []
    return [f"{table.title(cell.operator)} {number(counted / declared)}x"]


def _explained(row: InstructionRoofline) -> dict:
    """The number of kernels that their own roof explains, what limits the others, and how many no counted rate does."""
    unexplained = [kernel for kernel in row.kernels if (kernel.fraction_of_roof or 0) < EXPLAINED_FRACTION]
    limits = Counter(LIMIT_TITLES.get(kernel.limit) for kernel in unexplained)
    by_none = limits.pop(None, 0)
    words = [f"{name} ({count_words(count, 'cell')})" for name, count in limits.most_common()]
    return {
        "row": row,
        "least_share": EXPLAINED_FRACTION,
        "explained": len(row.kernels) - len(unexplained),
        "limits": words,
        "by_none": by_none,
    }


def build_counter_table(table: Roofline) -> MarkdownTable:
    """Return declared and counted figures side by side, of the first cells; roofline.json has them all."""
    named_cells = [(cell, counted_name(cell, table)) for cell in table.counters[:MOST_COUNTED_CELLS]]
    return render_table("counters", named_cells, left_columns=1)


def counted_name(cell: Counted, table: Roofline) -> str:
    """Return the name of a profiled cell: operator, implementation, device, preset, scope, dtype and shape."""
    parts = (cell.device, cell.preset, table.scope_label(cell), cell.dtype, table.label(cell))
    return f"{table.title(cell.operator)}, {cell.implementation}: {' '.join(filter(None, parts))}"
