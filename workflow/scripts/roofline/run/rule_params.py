"""What the rules give their jobs: functions of a job's wildcards, and dictionaries of them that rules unpack."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snakemake.iocontainers import Wildcards

from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.core.levels import ARRAYS_NEEDED, MAIN_MEMORY, SWEEP, TRANSFER_TARGETS
from roofline.devices import datasheets, discovery
from roofline.measure import lock
from roofline.operators.setting_types import Settings
from roofline.records import cards
from roofline.run import sources
from roofline.run.targets import Cells, files

# The resource "measuring". A measurement takes 1; device queries and seals take all, so none runs next to them.
MEASURING_SLOTS = 1000


class RuleParams:
    """The params, inputs and resources of one workflow's rules. `level` is the memory level of a job, or the first of
    several. A workflow that is used as a module has its own."""

    def __init__(self, cells: Cells, scripts: Path, datasheets_file: Path, level: str = ""):
        self.cells, self.scripts, self.datasheets_file, self.level = cells, scripts, datasheets_file, level
        self.card_of = {name: lock.gpu_lock_name(gpu.uuid) for name, gpu in cells.present.items() if name != "cpu"}
        shared = {*self.card_of.values(), lock.HOST_PATH_LOCK}
        self.limited = {re.sub(r"\W", "_", name): self._whether_used(name) for name in shared}
        self.resources: dict[str, Callable] = {**self.limited, "uses": lambda wildcards: " ".join(self.used(wildcards))}
        self.resources["measuring"] = lambda wildcards, input: 1 if hasattr(input, "device") else MEASURING_SLOTS

    def identity(self, wildcards: Wildcards) -> dict[str, str]:
        """Return the devices that a job measures, with their drivers, and the libraries: others make its results stale."""
        devices = " and ".join(self.cells.present[device].rerun_key() for device in self.measured_on(wildcards))
        return {"devices": devices, "software": self.cells.present[wildcards.device].software_key()}

    def used(self, wildcards: Wildcards) -> list[str]:
        """Return the locks, by their names in roofline.measure.lock, of all that a measurement needs for itself."""
        if discovery.kind_from_name(wildcards.device) == "cpu":
            return [lock.HOST_LOCK]
        on_path = [lock.HOST_PATH_LOCK] if self.level in TRANSFER_TARGETS else []
        return [self.card_of[device] for device in self.measured_on(wildcards)] + on_path

    def measured_on(self, wildcards: Wildcards) -> list[str]:
        """Return the device of a job. For a level between two GPUs these are both; for the first two GPUs all
        GPUs, which that job loads together."""
        peer = discovery.peer_name(self.level)
        devices = [wildcards.device, peer] if peer else [wildcards.device]
        return self.cells.gpus if devices == self.cells.gpus[:2] else devices

    def loaded(self, wildcards: Wildcards) -> list[str]:
        """Return the program that puts all cards under load, and its library, for the first pair; else []."""
        pair, program = [wildcards.device, discovery.peer_name(self.level)], self.scripts / "load_server.py"
        loads_all = pair == self.cells.gpus[:2] and self.cells.config.peak_flops.sustained_s
        return [str(program), *sources.library_files(program, "gpu")] if loads_all else []

    def _whether_used(self, name: str) -> Callable:
        return lambda wildcards: int(name in self.used(wildcards))

    def library(self, script: str, *operators: str) -> Callable:
        """Return a function of wildcards: the files that a script follows from. Editing one makes its results stale."""

        def list_files(wildcards: Wildcards) -> list[str]:
            kind = discovery.kind_from_name(wildcards.device) if wildcards.get("device") else None
            rules = operators or filter(None, [wildcards.get("operator")])
            followed = tuple(self.cells.operators[rule] for rule in rules)
            return sources.library_files(self.scripts / f"{script}.py", kind, followed)

        return list_files

    def datasheet(self, wildcards: Wildcards) -> str:
        """Return the hash of the device's datasheet entry: a card added to the file makes no other results stale."""
        card = self.cells.present[wildcards.device]
        if card.compute_capability is None:  # a CPU
            return "formula"
        entries = datasheets.read_datasheets(self.datasheets_file)
        return datasheets.entry_sha256(entries, card.name, card.compute_capability)

    def known_cards(self) -> list[str]:
        """Return the files with earlier runs of the GPUs' models."""
        paths = {cards.cards_path(self.cells.present[device].name) for device in self.cells.gpus}
        return [os.path.relpath(path) for path in paths if path.exists()]

    def peak_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """Return the settings of a compute ceiling, or of all register-only ones, whose job has no wildcard for them."""
        settings, ceiling = self.cells.config.peak_flops, wildcards.get("dtype", next(iter(REGISTER_ONLY_DTYPES)))
        return {
            "timing": timing(settings),
            "size": settings.size,
            "reference_size": self._reference_size(wildcards.device, ceiling),
            "sustained_s": self.cells.sustained_s(wildcards.device, ceiling),
        }

    def gemms(self, wildcards: Wildcards) -> dict[str, int]:
        """Return the size of the reference GEMM of each compute ceiling of a device that is one of GEMMs."""
        folder, peaks = f"{wildcards.device}/peak_flops", self.cells.peaks()
        dtypes = [dtype for dtype in self.cells.dtypes if f"{folder}/{dtype}" in peaks]
        return {
            dtype: self._reference_size(wildcards.device, dtype)
            for dtype in dtypes
            if dtype not in REGISTER_ONLY_DTYPES
        }

    def _reference_size(self, device: str, ceiling: str) -> int:
        """Return the rows and columns of the reference GEMM: at most 2048 for NumPy's slow fp64, except in thorough."""
        size, slow = self.cells.config.peak_flops.size, (device, ceiling) == ("cpu", "fp64")
        return min(size, 2048) if slow and self.cells.config.effort != "thorough" else size

    def bandwidth_settings(self, wildcards: Wildcards) -> dict[str, Any]:
        """Return the settings of the job of a memory level; None for those that its levels do not use, so that no other
        record goes stale with them."""
        settings, level, loaded = self.cells.config.bandwidth, discovery.level_name(self.level), MAIN_MEMORY["gpu"]
        # What comparing a CPU with the GPU next to it needs.
        compared = self.level == MAIN_MEMORY["cpu"] and not self.cells.measures_all(wildcards.device)
        return {
            "timing": timing(settings),
            "size_mib": settings.size_mib if level in ARRAYS_NEEDED else None,
            "transfer_size_mib": settings.transfer_size_mib if level in TRANSFER_TARGETS else None,
            "sweep_points": settings.sweep_points if level == SWEEP else None,
            "mixes": ["read", "copy"] if compared else None,
            "cards": self.measured_on(wildcards),
            "energy": settings.energy if level == loaded else None,
            "sustained_s": self.cells.sustained_s(wildcards.device, loaded) if level == loaded else None,
        }

    def operator_settings(self, rule: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Return a function of wildcards: the settings of an operator's job. Other cases and other devices'
        implementations make no result stale."""

        def settings_of_job(wildcards: Wildcards) -> dict[str, Any]:
            settings = getattr(self.cells.config, rule)
            return {
                "timing": timing(settings),
                "job": self.cells.jobs[rule][wildcards.case].to_json(),
                "implementations": self._implementations(rule, wildcards.device),
                "cache": settings.cache,
            }

        return settings_of_job

    def _implementations(self, rule: str, device: str) -> list[str]:
        kind, names = discovery.kind_from_name(device), getattr(self.cells.config, rule).implementations
        return [implementation.name for implementation in self.cells.operators[rule].implementations_on(kind, names)]

    def operator_seals(self, device: str) -> list[str]:
        """Return the paths of the seals of operators that are timed on a device."""
        rules = ["peak_flops", *(rule for rule in self.cells.timed if device in self.cells.on[rule])]
        return files(f"{device}/{rule}/prediction" for rule in rules)

    def planned(self, wildcards: Wildcards) -> list[str]:
        """Return the jobs of all operators on a device, as JSON, the way workflow/scripts/predictions.py reads them."""
        tasks = []
        for rule in self.cells.timed:
            operator = {"operator": rule, "operators": self.own_file(rule)}
            operator["implementations"] = self._implementations(rule, wildcards.device)
            operator["cache"] = getattr(self.cells.config, rule).cache
            for case in sorted(self.cells.cases(rule, wildcards.device)):
                tasks.append(json.dumps({**operator, "job": self.cells.jobs[rule][case].to_json()}))
        return tasks

    def own_file(self, rule: str) -> list[str]:
        """Return the user's file that defines an operator, in a list; [] for an operator of the library."""
        path = self.cells.operators[rule].path
        return [path] if path else []

    def tasks(self) -> list[str]:
        """Return the jobs whose counters are read, as JSON, the way counter_program.py reads them."""
        tasks = []
        for rule, job in self.cells.counted:
            cold = rule in self.cells.timed and getattr(self.cells.config, rule).cache == "cold"
            task = {"operator": rule, "operators": self.own_file(rule), "job": job.to_json(), "cold": cold}
            tasks.append(json.dumps(task))
        return tasks


def timing(settings: Settings) -> dict:
    """Return the settings of a section that say how often and for how long its work is timed."""
    return {key: getattr(settings, key) for key in ("warmup", "iterations", "time_budget_s")}
