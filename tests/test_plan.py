"""The reasons of a dry run in words."""

import pytest

from roofline.run import plan

PARAMS = "Params have changed since last execution: Union of exclusive params before and now across all output: "


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("before: 10 now: 12 ", ": before 10, now 12"),
        ("before: <nothing exclusive> now: 12 ", ": now 12"),
        ("before: 10 now: <nothing exclusive> ", ": before 10"),
        ("""before: '{"a": 1, "b": [2]}' now: '{"a": 1, "b": []}' """, ": b [2], now []"),
        ("before: <nothing exclusive> now: <nothing exclusive>", ""),
        (f"before: <nothing exclusive> now: {'many words ' * 50}", f": now {'many words ' * 5}[...]"),
    ],
)
def test_a_changed_param_is_told_with_its_values(values, told):
    """Snakemake names no param, and only values that no other param has."""
    assert plan._short(PARAMS + values) == f"settings, device or software have changed{told}"


def test_several_reasons_are_told_one_after_another_each_with_few_files():
    reasons = (
        f"Input files updated by another job: results/a.json, results/b.json, results/c.json; {PARAMS}before: 1 now: 2"
    )
    assert plan._short(reasons) == (
        "input files updated by another job: a.json, b.json and 1 more; "
        "settings, device or software have changed: before 1, now 2"
    )
