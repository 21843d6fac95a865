"""docs/prediction.md says what the code does: its tables hold the constants and thresholds of the model."""

import re
from pathlib import Path

from workflow_run import CHECKOUT

from roofline.core import regimes
from roofline.core.formatting import duration, number, percent
from roofline.core.prediction import ASSUMED
from roofline.report.tables import size

PAGE = Path(CHECKOUT, "docs/prediction.md").read_text(encoding="utf-8")
THRESHOLDS = ("DEVICE_BUSY", "OF_ROOF", "TIMES_STARTED", "OF_CALLER")


def row(name: str, value: float, source: str) -> str:
    """A row of the table of constants, as the page has it."""
    shown = number(value)
    if name.endswith("_s"):
        shown = duration(value)
    elif name.endswith("_share"):
        shown = percent(value)
    elif name.endswith("_bytes"):
        shown = size(value)
    return f"| `{name}` | {shown} | {source} |"


def test_the_table_of_constants_is_the_models():
    wanted = [row(name, value, source) for name, (value, source) in ASSUMED.items()]
    told = re.findall(r"^\| `[a-z0-9_]+` \|.*$", PAGE, re.MULTILINE)
    assert told == wanted, "docs/prediction.md should hold these rows:\n" + "\n".join(wanted)


def test_the_table_of_thresholds_is_the_rules():
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|$", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in told.items()} == {n: getattr(regimes, n) for n in THRESHOLDS}


def test_every_constant_of_the_rule_is_a_threshold_of_the_page():
    assert {name for name in vars(regimes) if name.isupper()} == set(THRESHOLDS)
