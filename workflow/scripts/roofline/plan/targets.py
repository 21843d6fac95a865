"""What a configuration asks for. A record name is the path of a record below results/, without .json."""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roofline.core.dtypes import COMMON_DTYPE, REGISTER_ONLY_DTYPES
from roofline.core.levels import ALL_REDUCE, ARRAYS_NEEDED, MAIN_MEMORY, PEER, SWEEP, TRANSFER_TARGETS
from roofline.core.terms import select_accelerators
from roofline.devices import datasheets, discovery
from roofline.devices.base import Identity
from roofline.measure import lock
from roofline.operators.base import Job, Operator
from roofline.operators.drawing import DRAWN
from roofline.operators.setting_types import Settings
from roofline.plan.config import Config, fill_by_effort
from roofline.plan.settings import Checked
from roofline.records import cards
from roofline.records.files import RESULTS
from roofline.report.roofline_content import picture_names

COMPARED = (COMMON_DTYPE, f"{COMMON_DTYPE}_fma", MAIN_MEMORY["cpu"])  # of a CPU: what comparing it with a GPU needs
LOADED_BY_DEFAULT = ("fp32", "fp16", "bf16", "fp8_e4m3")  # GEMMs that every effort but thorough puts under load
OF_EACH_DEVICE = ("device_query", "prediction", "calibration", "peak_flops/prediction")


class RunPlan:
    """The jobs and records of a configuration on the devices that it is measured on.

    `present` are all devices of the machine, `devices` the names of those that are measured, and `profiler` the program
    of Nsight Compute, if counters are wanted and it is there.
    """

    def __init__(
        self, checked: Checked, present: Mapping[str, Identity], devices: Sequence[str], profiler: Path | None
    ):
        self.config, self.operators, self.present = checked.config, checked.operators, present
        self.dtypes: list[str] = self.config.peak_flops.dtypes or []  # never null: each effort has some
        self.devices = list(devices)
        self.gpus = select_accelerators(self.devices, discovery.kind_from_name)
        self.gpu_locks = {name: lock.gpu_lock_name(gpu.uuid) for name, gpu in present.items() if gpu.kind == "gpu"}
        # Operators with rules of their own, their jobs by case, and the devices that they are measured on.
        timed = [operator for operator in self.operators.values() if not operator.measured_with_ceilings]
        self.timed = {operator.rule: operator for operator in timed}
        self.jobs = {rule: {job.path: job for job in self.timed[rule].jobs(self.config)} for rule in self.timed}
        self.on = {rule: [device for device in self.devices if self.cases(rule, device)] for rule in self.timed}
        self.own_predictions: dict[str, list[dict]] = {}  # the user's, by device: plan_run reads them
        # The jobs whose counters are read, with their rules.
        self.ncu = profiler
        self.counted_on = [] if self.config.counters == "off" else self.gpus
        self.counted = [
            (rule, job)
            for rule, operator in self.operators.items()
            if self.ncu and set(self.counted_on) & set(self.on.get(rule, self.devices))
            for job in operator.profiled(self.config)
        ]

    def measures_all(self, device: str) -> bool:
        """Return whether more is measured than comparing a CPU with a GPU needs."""
        return measures_all(self.config, self.gpus, device)

    def is_wanted(self, device: str, name: str) -> bool:
        """Return whether a dtype or a level is measured on a device."""
        return self.measures_all(device) or name in COMPARED

    def cases(self, rule: str, device: str) -> list[str]:
        """Return the cases of an operator that are measured on a device; [] if it has no implementation there."""
        operator, jobs = self.timed[rule], self.jobs[rule]
        if not (operator.compared or self.measures_all(device)) or not devices_with(operator, self.config, [device]):
            return []
        return [path for path in jobs if any(self.is_wanted(device, case.dtype) for case in jobs[path].cases)]

    def drawn(self, device: str) -> list[str]:
        """Return the rules of the operators of which shapes are drawn on a device; [] for a CPU."""
        rules = self.timed if self.config.drawn and device in self.gpus else {}
        return [rule for rule in rules if self.timed[rule].drawn_sizes and device in self.on[rule]]

    def peaks(self) -> list[str]:
        """Return the record names of the compute ceilings that the devices have; device records name the others."""
        return [
            f"{device}/peak_flops/{dtype}"
            for device in self.devices
            for dtype in self.dtypes
            if self.is_wanted(device, dtype) and not discovery.unsupported_reason(self.present[device], dtype)
        ]

    def bandwidths(self) -> list[str]:
        """Return the record names of the memory ceilings."""
        return [
            f"{device}/bandwidth/{level}"
            for device in self.devices
            for level in discovery.memory_levels(device, self.devices)
            if discovery.level_name(level) in self.config.bandwidth.levels and self.is_wanted(device, level)
        ]

    def all_reduces(self) -> list[str]:
        """Return the record names of the all-reduces, which are among the memory ceilings."""
        return [name for name in self.bandwidths() if f"/bandwidth/{ALL_REDUCE}_" in name]

    def instructions(self) -> list[str]:
        """Return the record names of the instruction rates."""
        return [f"{device}/instructions/rates" for device in self.gpus if self.config.effort != "quick"]

    def measured(self) -> list[str]:
        """Return the record names of all ceilings and operators."""
        names = self.peaks() + self.bandwidths() + self.instructions()
        for rule, devices in self.on.items():
            names += [f"{device}/{rule}/{case}" for device in devices for case in self.cases(rule, device)]
        return names + [f"{device}/{rule}/{DRAWN}" for device in self.gpus for rule in self.drawn(device)]

    def calibrations(self) -> list[str]:
        """Return the record names of what work costs the host of each device."""
        return [f"{device}/calibration" for device in self.devices]

    def records(self) -> list[str]:
        """Return the names of all records that tables, pages and pictures are made from."""
        names = [f"{device}/{name}" for name in OF_EACH_DEVICE for device in self.devices]
        names += [f"{device}/{rule}/prediction" for rule in self.timed for device in self.on[rule]]
        names += self.own_seals() + self.measured() + [f"{device}/profiler" for device in self.counted_on]
        names += [f"{name.replace('/bandwidth', '')}/prediction" for name in self.all_reduces()]
        names += [f"{device}/counters/{rule}/{job.path}" for device in self.counted_on for rule, job in self.counted]
        return names + [f"operators/{rule}" for rule in self.timed if self.timed[rule].path and self.on[rule]]

    def own_seals(self) -> list[str]:
        """Return the record names of the seals of what the user predicts."""
        return [f"{device}/own_predictions" for device in self.own_predictions]

    def sustained_s(self, device: str, dtype: str) -> float | None:
        """Return the seconds of sustained load for a compute ceiling; None without. Thorough loads every GEMM."""
        loaded = not dtype.endswith("_fma") if self.config.effort == "thorough" else dtype in LOADED_BY_DEFAULT
        return self.config.peak_flops.sustained_s if loaded and device in self.gpus else None

    # -- what jobs take

    def measured_together(self, device: str, level: str) -> list[str]:
        """Return the devices of a job. For a level between two GPUs these are both; for the first two GPUs all GPUs,
        which that job loads together."""
        peer = discovery.peer_name(level)
        devices = [device, peer] if peer else [device]
        return self.gpus if self._is_first_link(device, level) else devices

    def measured_next_to(self, device: str) -> list[str]:
        """Return the other GPUs whose jobs run next to those of a device; none for a CPU, which is measured alone."""
        return [gpu for gpu in self.gpus if gpu != device] if device in self.gpus else []

    def loads_all(self, device: str, level: str) -> bool:
        """Return whether the job of a level puts all GPUs under load: that of the first two."""
        return self._is_first_link(device, level) and bool(self.config.peak_flops.sustained_s)

    def _is_first_link(self, device: str, level: str) -> bool:
        return discovery.level_name(level) == PEER and [device, discovery.peer_name(level)] == self.gpus[:2]

    def locks(self, device: str, level: str) -> list[str]:
        """Return the locks of roofline.measure.lock of all that a measurement, at a level of memory if any, uses."""
        if device not in self.gpus:
            return [lock.HOST_LOCK]
        on_path = [lock.HOST_PATH_LOCK] if level in TRANSFER_TARGETS else []
        return [self.gpu_locks[used] for used in self.measured_together(device, level)] + on_path

    def peer_level(self, rule: str, device: str) -> str:
        """Return the level between the GPUs that a job of an operator takes together; "" if it takes one."""
        others = self.measured_next_to(device)
        return f"{ALL_REDUCE}_{others[0]}" if others and self.timed[rule].cards > 1 else ""

    # -- what jobs are given, and what makes their results stale

    def identity(self, devices: Sequence[str]) -> dict[str, str]:
        """Return devices with their drivers, and the libraries of the first: others make its results stale."""
        keys = " and ".join(self.present[device].rerun_key() for device in devices)
        return {"devices": keys, "software": self.present[devices[0]].software_key()}

    def datasheet_sha256(self, device: str, path: Path) -> str:
        """Return the hash of a device's entry in the file of datasheets; `formula` for a CPU, which has none."""
        card = self.present[device]
        if card.compute_capability is None:
            return "formula"
        return datasheets.entry_sha256(datasheets.read_datasheets(path), card.name, card.compute_capability)

    def peak_settings(self, device: str, ceiling: str) -> dict[str, Any]:
        """Return the settings of the job of a compute ceiling."""
        settings = self.config.peak_flops
        return {
            "timing": timing(settings),
            "size": settings.size,
            "reference_size": self._reference_size(device, ceiling),
            "sustained_s": self.sustained_s(device, ceiling),
            "loads": 2 if self.config.effort == "thorough" else 1,
        }

    def gemm_sizes(self, device: str) -> dict[str, int]:
        """Return the rows and columns of the reference GEMM of each compute ceiling of a device that GEMMs have."""
        peaks = self.peaks()
        measured = [dtype for dtype in self.dtypes if f"{device}/peak_flops/{dtype}" in peaks]
        return {dtype: self._reference_size(device, dtype) for dtype in measured if dtype not in REGISTER_ONLY_DTYPES}

    def _reference_size(self, device: str, ceiling: str) -> int:
        """Return the rows and columns of the reference GEMM: at most 2048 for NumPy's slow fp64, except in thorough."""
        size, slow = self.config.peak_flops.size, (device, ceiling) == ("cpu", "fp64")
        return min(size, 2048) if slow and self.config.effort != "thorough" else size

    def bandwidth_settings(self, device: str, first_level: str) -> dict[str, Any]:
        """Return the settings of a job of memory levels; None for those that its levels do not use, so that no other
        record goes stale with them."""
        settings, level, loaded = self.config.bandwidth, discovery.level_name(first_level), MAIN_MEMORY["gpu"]
        # Of a CPU next to a GPU what comparing them needs is measured.
        compared = level == MAIN_MEMORY["cpu"] and not self.measures_all(device)
        return {
            "timing": timing(settings),
            "size_mib": settings.size_mib if level in ARRAYS_NEEDED else None,
            "transfer_size_mib": settings.transfer_size_mib if level in TRANSFER_TARGETS else None,
            "sweep_points": settings.sweep_points if level == SWEEP else None,
            "mixes": ["read", "copy"] if compared else None,
            "cards": self.measured_together(device, first_level),
            "energy": settings.energy if level == loaded else None,
            "sustained_s": self.config.peak_flops.sustained_s if level == loaded else None,
        }

    def operator_settings(self, rule: str, device: str, case: str) -> dict[str, Any]:
        """Return the settings of a job of an operator; those of its other jobs and other devices are not among them.

        Drawn shapes are many and of sizes that nobody asked for: they are timed as briefly as by the effort `quick`.
        """
        if case == DRAWN:
            quick = fill_by_effort(self.operators[rule].Settings(), "quick")
            return {"timing": timing(quick), **self._drawn_task(rule, device)}
        peer = {"peer": discovery.peer_name(level)} if (level := self.peer_level(rule, device)) else {}
        return {"timing": timing(getattr(self.config, rule)), **self._task(rule, device, self.jobs[rule][case]), **peer}

    def _drawn_task(self, rule: str, device: str) -> dict[str, Any]:
        """Return how many shapes of an operator are drawn and how they are measured: in its first scope."""
        task = self._task(rule, device, Job(DRAWN, ()))
        return task | {"scopes": [self.operators[rule].first_scope], "shapes": self.config.drawn}

    def _task(self, rule: str, device: str, job: Job) -> dict[str, Any]:
        """Return what is measured in a job of an operator, without the limits of its time."""
        settings, kind = getattr(self.config, rule), discovery.kind_from_name(device)
        implementations = self.operators[rule].implementations_on(kind, settings.implementations)
        return {
            "job": job.to_json(),
            "implementations": [implementation.name for implementation in implementations],
            "scopes": getattr(settings, "scopes", None),  # of operators that have several
            "cache": settings.cache,
        }

    def planned_tasks(self, device: str) -> list[str]:
        """Return all jobs of operators on a device, as JSON, the way workflow/scripts/predictions.py reads them."""
        tasks = {
            rule: [self._task(rule, device, self.jobs[rule][case]) for case in sorted(self.cases(rule, device))]
            for rule in self.timed
        }
        for rule in self.drawn(device):
            tasks[rule].append(self._drawn_task(rule, device))
        return [
            json.dumps({"operator": rule, "operators": self.own_file(rule), **task})
            for rule in tasks
            for task in tasks[rule]
        ]

    def counted_tasks(self) -> list[str]:
        """Return the jobs whose counters are read, as JSON, the way workflow/scripts/counter_program.py reads them."""
        tasks = []
        for rule, job in self.counted:
            cold = rule in self.timed and getattr(self.config, rule).cache == "cold"
            task = {"operator": rule, "operators": self.own_file(rule), "job": job.to_json(), "cold": cold}
            tasks.append(json.dumps({**task, "every": self.config.effort == "thorough"}))
        return tasks

    def operator_seals(self, device: str) -> list[str]:
        """Return the record names of the seals of operators that are timed on a device."""
        rules = ["peak_flops", *(rule for rule in self.timed if device in self.on[rule])]
        return [f"{device}/{rule}/prediction" for rule in rules]

    def own_file(self, rule: str) -> list[str]:
        """Return the user's file that defines an operator, in a list; [] for an operator of the library."""
        path = self.operators[rule].path
        return [path] if path else []

    def known_cards(self) -> list[str]:
        """Return the files with earlier runs of GPUs, if any is measured."""
        return [os.path.relpath(path) for path in sorted(cards.CARDS.glob("*.json")) if self.gpus]

    # -- what comes of it

    def pictures(self) -> list[str]:
        """Return the file names of the pictures for which something is measured."""
        kinds = {device: discovery.kind_from_name(device) for device in self.devices}
        names = [name for files in picture_names(kinds).values() for name in files]
        names += [f"{operator.picture}.png" for rule, operator in self.operators.items() if self.on.get(rule, True)]
        names += ["sweep.png"] if any(name.endswith("/bandwidth/sweep") for name in self.bandwidths()) else []
        peaks = (peak.split("/peak_flops/") for peak in self.peaks())
        names += ["energy.png"] if self.config.bandwidth.energy and self.gpus else []
        names += ["all_reduce.png"] if self.all_reduces() else []
        names += ["load.png"] if any(self.sustained_s(*peak) for peak in peaks) else []
        return names + (["instruction_roofline.png"] if self.instructions() else [])

    def deliverables(self) -> list[str]:
        """Return all files of a run but the manifest, which holds a checksum of each. A deleted file is made again."""
        names = ["roofline.json", "roofline.schema.json", "ceilings.csv", "cells.csv", "known_cards.json"]
        names += ["report.html", "ROOFLINE.md", "interpretation.md", "verification.md", *self.pictures()]
        predictions = ("predictions.json", "predictions.md", "first_predictions.md")
        names += [f"{device}/{name}" for device in self.devices for name in predictions]
        return files(self.records()) + [f"{RESULTS}/{name}" for name in names]


def timing(settings: Settings) -> dict[str, Any]:
    """Return the settings of a section that say how often and for how long its work is timed."""
    return {key: getattr(settings, key) for key in ("warmup", "iterations", "time_budget_s")}


def files(record_names: Iterable[str]) -> list[str]:
    """Return the paths of these records."""
    return [f"{RESULTS}/{name}.json" for name in record_names]


def measures_all(config: Config, gpus: Collection[str], device: str) -> bool:
    """Return whether more is measured than comparing a CPU with a GPU needs. By default it is not on a CPU that has a
    GPU next to it, nor with the effort `quick`."""
    return device in gpus or config.cpu == "all" or (not gpus and config.effort != "quick")


def devices_with(operator: Operator, config: Config, devices: Iterable[str]) -> list[str]:
    """Return those of these devices that have one of the operator's implementations in the config."""
    names = getattr(config, operator.rule).implementations
    return [device for device in devices if operator.implementations_on(discovery.kind_from_name(device), names)]


def build_request(checked: Checked, devices: Sequence[str]) -> dict:
    """Return the parts of the configuration that roofline.json depends on apart from the records."""
    config, without = checked.config, []
    for operator in checked.operators.values():
        lacking = [device for device in devices if operator.path and not devices_with(operator, config, [device])]
        for device in lacking:  # users' operators only: RMSNorm + matmul is of GPUs alone
            reason = f"no implementation for {discovery.kind_from_name(device)}"
            without.append({"device": device, "operator": operator.name, "reason": reason})
    operations = [operation.model_dump() for operation in config.operations]
    shapes = {
        operator.name: [case.shape for job in operator.jobs(config) for case in job.cases]
        for operator in checked.operators.values()
        if not operator.measured_with_ceilings
    }
    request = {"effort": config.effort, "dtypes": config.peak_flops.dtypes, "shapes": shapes}
    return request | {"operations": operations, "without": without}
