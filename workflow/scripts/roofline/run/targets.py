"""What a configuration asks for. A record name is the path of a record below results/, without .json."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from roofline.core.dtypes import COMMON_DTYPE
from roofline.core.levels import MAIN_MEMORY
from roofline.core.terms import UserError, select_accelerators
from roofline.devices import discovery
from roofline.devices.base import Identity
from roofline.measure.hardware_counters import choose_representative_jobs
from roofline.operators.base import Operator
from roofline.records.files import RESULTS
from roofline.report.roofline_content import picture_names
from roofline.run.config import Config
from roofline.run.machine_checks import choose_devices, find_profiler
from roofline.run.settings import Checked

COMPARED = (COMMON_DTYPE, f"{COMMON_DTYPE}_fma", MAIN_MEMORY["cpu"])  # of a CPU: what comparing it with a GPU needs
OF_EACH_DEVICE = ("device_query", "prediction", "calibration", "peak_flops/prediction")


class Cells:
    """The devices, jobs and records of a configuration on this machine. Raises UserError if it cannot measure them."""

    def __init__(self, checked: Checked, present: Mapping[str, Identity]):
        self.config, self.operators, self.present = checked.config, checked.operators, present
        self.dtypes: list[str] = self.config.peak_flops.dtypes or []  # never null: each effort has some
        self.devices = choose_devices(checked, present)
        self.gpus = select_accelerators(self.devices, discovery.kind_from_name)
        # Operators with rules of their own, their jobs by case, and the devices that they are measured on.
        timed = [operator for operator in self.operators.values() if not operator.measured_with_ceilings]
        self.timed = {operator.rule: operator for operator in timed}
        self.jobs = {rule: {job.path: job for job in self.timed[rule].jobs(self.config)} for rule in self.timed}
        self.on = {rule: [device for device in self.devices if self.cases(rule, device)] for rule in self.timed}
        # Nsight Compute, where counters are wanted; the jobs whose counters are read, with their rules.
        self.ncu = find_profiler(self.config)
        self.counted_on = [] if self.config.counters == "off" else self.gpus
        candidates = []
        for rule, operator in self.operators.items():
            on_counted_gpu = self.ncu and set(self.counted_on) & set(self.on.get(rule, self.devices))
            if on_counted_gpu and (job := operator.profiled(self.config)):
                candidates.append((operator, job))
        self.counted = list(choose_representative_jobs(candidates))

    def measures_all(self, device: str) -> bool:
        """Return whether more is measured than comparing a CPU with a GPU needs. By default it is not on a CPU that has
        a GPU next to it, nor with the effort `quick`."""
        cpu_only = not self.gpus and self.config.effort != "quick"
        return device in self.gpus or self.config.cpu == "all" or cpu_only

    def is_wanted(self, device: str, name: str) -> bool:
        """Return whether a dtype or a level is measured on a device."""
        return self.measures_all(device) or name in COMPARED

    def cases(self, rule: str, device: str) -> list[str]:
        """Return the cases of an operator that are measured on a device; [] if it has no implementation there."""
        operator, jobs = self.timed[rule], self.jobs[rule]
        if not (operator.compared or self.measures_all(device)) or not devices_with(operator, self.config, [device]):
            return []
        return [path for path in jobs if any(self.is_wanted(device, case.dtype) for case in jobs[path].cases)]

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

    def instructions(self) -> list[str]:
        """Return the record names of the instruction rates."""
        return [f"{device}/instructions/rates" for device in self.gpus if self.config.effort != "quick"]

    def measured(self) -> list[str]:
        """Return the record names of all ceilings and operators."""
        names = self.peaks() + self.bandwidths() + self.instructions()
        for rule, devices in self.on.items():
            names += [f"{device}/{rule}/{case}" for device in devices for case in self.cases(rule, device)]
        return names

    def records(self) -> list[str]:
        """Return the names of all records that tables, pages and pictures are made from."""
        names = [f"{device}/{name}" for name in OF_EACH_DEVICE for device in self.devices]
        names += [f"{device}/{rule}/prediction" for rule in self.timed for device in self.on[rule]]
        names += self.measured() + [f"{device}/profiler" for device in self.counted_on]
        names += [f"{device}/counters/{rule}/{job.path}" for device in self.counted_on for rule, job in self.counted]
        return names + [f"operators/{rule}" for rule in self.timed if self.timed[rule].path and self.on[rule]]

    def sustained_s(self, device: str, dtype: str) -> float | None:
        """Return the seconds of sustained load for a ceiling: of a GPU, FMA loops aside; else None."""
        loaded = device in self.gpus and not dtype.endswith("_fma")
        return self.config.peak_flops.sustained_s if loaded else None

    def pictures(self) -> list[str]:
        """Return the file names of the pictures for which something is measured."""
        kinds = {device: discovery.kind_from_name(device) for device in self.devices}
        names = [name for files in picture_names(kinds).values() for name in files]
        names += [f"{operator.picture}.png" for rule, operator in self.operators.items() if self.on.get(rule, True)]
        names += ["sweep.png"] if any(name.endswith("/bandwidth/sweep") for name in self.bandwidths()) else []
        peaks = (peak.split("/peak_flops/") for peak in self.peaks())
        names += ["energy.png"] if self.config.bandwidth.energy and self.gpus else []
        names += ["load.png"] if any(self.sustained_s(*peak) for peak in peaks) else []
        return names + (["instruction_roofline.png"] if self.instructions() else [])

    def deliverables(self) -> list[str]:
        """Return all files of a run but the manifest, which holds a checksum of each. A deleted file is made again."""
        names = ["roofline.json", "roofline.schema.json", "ceilings.csv", "cells.csv", "known_cards.json"]
        names += ["report.html", "ROOFLINE.md", "interpretation.md", "verification.md", *self.pictures()]
        names += [f"{device}/predictions.{ending}" for device in self.devices for ending in ("json", "md")]
        return files(self.records()) + [f"{RESULTS}/{name}" for name in names]


def files(record_names: Iterable[str]) -> list[str]:
    """Return the paths of these records."""
    return [f"{RESULTS}/{name}.json" for name in record_names]


def find_record(text: str, record_names: Sequence[str]) -> str:
    """Return the record name that a text means, with or without results/ and .json. Raises UserError."""
    name = text.strip().removeprefix(f"{RESULTS}/").removesuffix(".json")
    if name not in record_names:
        suggestions = difflib.get_close_matches(name, record_names)
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        raise UserError(f"CELL: {text!r} is unknown{hint} (`make plan ARGS=--forceall` lists every record)")
    return name


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
