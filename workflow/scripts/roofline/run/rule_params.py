"""What the rules give their jobs: functions of a job's wildcards, and dictionaries of them that rules unpack."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.devices import datasheets, discovery
from roofline.devices.levels import MAIN_MEMORY, TRANSFER_LEVELS
from roofline.measure import lock
from roofline.records import cards
from roofline.run import sources
from roofline.run.targets import Cells, files

# The whole resource "measuring". A measurement takes 1, so none runs next to a device query or a seal.
ALONE = 1000


class RuleParams:
    """For one workflow: a module of another has its own. `level` is a job's memory level, or the first of several."""

    def __init__(self, cells: Cells, scripts: Path, datasheets_file: Path, level: str = ""):
        self.cells, self.scripts, self.datasheets_file, self.level = cells, scripts, datasheets_file, level
        self.measuring = {
            "identity": lambda wildcards: " and ".join(
                cells.present[device].rerun_key() for device in self.measured_on(wildcards)
            ),
            "software": lambda wildcards: cells.present[wildcards.device].software_key(),
        }
        self.card_of = {name: lock.gpu_lock_name(one.uuid) for name, one in cells.present.items() if name != "cpu"}
        shared = {*self.card_of.values(), lock.HOST_PATH_LOCK}
        self.limited = {re.sub(r"\W", "_", name): self._whether_used(name) for name in shared}
        self.resources = {**self.limited, "uses": lambda wildcards: " ".join(self.used(wildcards))}
        self.resources["measuring"] = lambda wildcards, input: 1 if hasattr(input, "device") else ALONE

    def used(self, wildcards) -> list[str]:
        """What a measurement uses that others may not use meanwhile, by the names of roofline.measure.lock."""
        if discovery.kind_from_name(wildcards.device) == "cpu":
            return [lock.HOST_LOCK]
        on_path = [lock.HOST_PATH_LOCK] if self.level in TRANSFER_LEVELS else []
        return [self.card_of[device] for device in self.measured_on(wildcards)] + on_path

    def measured_on(self, wildcards) -> list[str]:
        """The device of a job; of a level between two GPUs both, and with the first two all, for load at once."""
        peer = discovery.peer_name(self.level)
        both = [wildcards.device, peer] if peer else [wildcards.device]
        return self.cells.gpus if both == self.cells.gpus[:2] else both

    def loaded(self, wildcards) -> list[str]:
        """The program that puts all cards under load, and its library: of the first pair alone."""
        pair, program = [wildcards.device, discovery.peer_name(self.level)], self.scripts / "load_server.py"
        wanted = pair == self.cells.gpus[:2] and self.cells.config.peak_flops.sustained_s
        return [str(program), *sources.library_files(program, "gpu")] if wanted else []

    def _whether_used(self, name: str) -> Callable:
        return lambda wildcards: int(name in self.used(wildcards))

    def library(self, script: str, *operators: str) -> Callable:
        """The library's files that a script follows from, as an input: an edited one makes its results stale."""

        def files(wildcards):
            kind = discovery.kind_from_name(wildcards.device) if wildcards.get("device") else None
            named = operators or filter(None, [wildcards.get("operator")])
            return sources.library_files(
                self.scripts / f"{script}.py", kind, tuple(self.cells.operators[rule] for rule in named)
            )

        return files

    def datasheet(self, wildcards) -> str:
        """The matched entry alone, so that a card added to the file makes no other card's results stale."""
        card = self.cells.present[wildcards.device]
        if card.kind == "cpu":
            return "formula"
        return datasheets.entry_sha256(
            datasheets.read_datasheets(self.datasheets_file), card.name, card.compute_capability
        )

    def known_cards(self) -> list[str]:
        """Files with earlier runs of the GPUs' models."""
        paths = {cards.cards_path(self.cells.present[device].name) for device in self.cells.gpus}
        return [os.path.relpath(path) for path in paths if path.exists()]

    def of_levels(self, key: str, levels):
        """A setting is a param of the levels that use it: no other record goes stale."""
        return getattr(self.cells.config.bandwidth, key) if discovery.level_name(self.level) in levels else None

    def mixes(self, wildcards) -> list[str] | None:
        """The streams of a CPU's memory that comparing it with a GPU needs; None for all."""
        compared = self.level == MAIN_MEMORY["cpu"] and not self.cells.everything(wildcards.device)
        return ["read", "copy"] if compared else None

    def sustained_s(self, wildcards) -> float | None:
        """A param of what is put under sustained load: products on a GPU, and its memory."""
        what = wildcards.get("dtype", self.level if self.level == MAIN_MEMORY["gpu"] else None)
        return self.cells.sustained_s(wildcards.device, what) if what else None

    def operator(self, rule: str) -> dict:
        """Of an operator's jobs. Cases of others and implementations of other devices make none stale."""
        settings = getattr(self.cells.config, rule)
        return {
            "operator": rule,
            "operators": self.own_file(rule),
            "job": lambda wildcards: self.cells.jobs[rule][wildcards.case].to_json(),
            "implementations": lambda wildcards: self._implementations(rule, wildcards.device),
            "cache": settings.cache,
            **timing(settings),
        }

    def _implementations(self, rule: str, device: str) -> list[str]:
        wanted = getattr(self.cells.config, rule).implementations
        kind = discovery.kind_from_name(device)
        return [one.name for one in self.cells.operators[rule].implementations_on(kind, wanted)]

    def operator_seals(self, device: str) -> list[str]:
        """Paths of the seals of operators that are timed on a device."""
        rules = ["peak_flops", *(rule for rule in self.cells.timed if device in self.cells.on[rule])]
        return files(f"{device}/{rule}/prediction" for rule in rules)

    def planned(self, wildcards) -> list[str]:
        """The jobs of all operators on a device, as workflow/scripts/predictions.py takes them."""
        found = []
        for rule in self.cells.timed:
            shared = {
                "operator": rule,
                "operators": self.own_file(rule),
                "implementations": self._implementations(rule, wildcards.device),
                "cache": getattr(self.cells.config, rule).cache,
            }
            jobs = sorted(self.cells.cases(rule, wildcards.device))
            found += [json.dumps({**shared, "job": self.cells.jobs[rule][case].to_json()}) for case in jobs]
        return found

    def gemms(self, wildcards) -> list[str]:
        """Planned dtypes."""
        peaks, dtypes = self.cells.peaks(), self.cells.config.peak_flops.dtypes
        return [
            one for one in dtypes if f"{wildcards.device}/peak_flops/{one}" in peaks and one not in REGISTER_ONLY_DTYPES
        ]

    def own_file(self, rule: str) -> list[str]:
        """The user's file that an operator is from, in a list; none for the library's."""
        path = self.cells.operators[rule].path
        return [path] if path else []

    def tasks(self) -> list[str]:
        """What is counted, as the text that counter_program.py takes."""
        return [
            json.dumps(
                {
                    "operator": rule,
                    "operators": self.own_file(rule),
                    "job": job.to_json(),
                    "cold": rule in self.cells.timed and getattr(self.cells.config, rule).cache == "cold",
                }
            )
            for rule, job in self.cells.counted
        ]


def timing(settings: BaseModel) -> dict:
    """How often and for how long a section of the settings has its work timed."""
    return {key: getattr(settings, key) for key in ("warmup", "iterations", "time_budget_s")}
