"""Reports of the stand-in for ncu: JSON, a list of ranges and kernels, each with its metrics. Anything else holds
nothing, as ncu_report has it of files that are no reports."""

import json
from pathlib import Path
from types import SimpleNamespace


class Action:
    def __init__(self, name: str, values: dict):
        self._name, self._values = name, values

    def name(self) -> str:
        return self._name

    def metric_by_name(self, name: str):
        if name not in self._values:
            return None
        value = self._values[name]
        return SimpleNamespace(has_value=lambda: True, as_double=lambda: value, unit=lambda: "")


def load_report(path: str):
    try:
        actions = [Action(*one) for one in json.loads(Path(path).read_text())]
    except ValueError:
        actions = []
    spans = [SimpleNamespace(num_actions=lambda: len(actions), action_by_idx=actions.__getitem__)] if actions else []
    return SimpleNamespace(num_ranges=lambda: len(spans), range_by_idx=spans.__getitem__)
