"""Reports of the stand-in for ncu: JSON, a list of kernels, each with its metrics. Anything else holds nothing, as
ncu_report has it of files that are no reports."""

import json
from pathlib import Path
from types import SimpleNamespace

OF_EVERY_KERNEL = ("device__attribute_", "launch__")


class Action:
    WorkloadType_KERNEL, NameBase_DEMANGLED = 0, 2

    def __init__(self, name: str, values: dict):
        self._name, self._values = name, values

    def name(self, base: int = 0) -> str:
        return self._name

    def workload_type(self) -> int:
        return self.WorkloadType_KERNEL

    def metric_by_name(self, name: str):
        if name not in self._values and not name.startswith(OF_EVERY_KERNEL):
            return None
        value = self._values.get(name, 1.0)
        return SimpleNamespace(
            has_value=lambda: True,
            as_double=lambda: value,
            as_string=lambda: "a card",
            unit=lambda: "",
            num_instances=lambda: 0,
        )


def load_report(path: str):
    try:
        return [[Action(*one) for one in json.loads(Path(path).read_text().removeprefix("NVR\0"))]]
    except ValueError:
        return []
