"""The tables in documents that come from simulations and from the committed run; `make documents` writes them.

Each stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from roofline.run import committed, counted
from roofline.simulations import comparison, faults, fleet, loads

ROOT = Path(__file__).parents[4]
TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"figures": committed.figures, "comparison": comparison.sentence},
    "reference/nvidia-h200/README.md": {
        "compute ceilings": committed.compute_ceilings,
        "memory ceilings": committed.memory_ceilings,
        "predictions": committed.predictions,
    },
    "docs/health.md": {"faults": faults.found_table, "false alarms": faults.alarms},
    "docs/comparing.md": {
        "margins": comparison.margins,
        "alarms": comparison.alarms,
        "power": comparison.power,
        "operators": comparison.operator_power,
        "real runs": comparison.real_runs,
    },
    "docs/fleet.md": {
        "fleet faults": fleet.faults_table,
        "fleet alarms": fleet.clean_table,
        "fleet power": fleet.deviations_table,
        "fleet shares": fleet.shares_table,
    },
    "docs/model_decode.md": {"steps": committed.steps},
    "docs/placing.md": {"counted": counted.counted_table},
    "docs/ceilings.md": {"loads": loads.error_table, "repeats": committed.sustained_repeats},
}


def documents() -> dict[str, str]:
    """The text of every document that has such a table, by its path. Raises CorruptRecord and OSError."""
    return {path: filled((ROOT / path).read_text(encoding="utf-8"), tables) for path, tables in TABLES.items()}


def filled(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    for name, made in tables.items():
        place = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        text, count = place.subn(lambda found, made=made: f"{found[1]}\n{made()}\n\n{found[2]}", text)
        if count != 1:
            raise ValueError(f"{name}: {count} places for its table")
    return text
