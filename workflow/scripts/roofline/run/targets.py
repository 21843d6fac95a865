"""What a configuration asks for. A cell is one of its records: the path below results/, without .json."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel

from roofline.core.terms import UserError, select_accelerators
from roofline.devices import discovery
from roofline.devices.base import Identity
from roofline.measure.hardware_counters import choose_representative_jobs
from roofline.operators.base import Operator
from roofline.records.files import RESULTS
from roofline.report.roofline_content import picture_names
from roofline.run.machine_checks import choose_devices, profiler
from roofline.run.settings import Checked

COMPARED = ("fp32", "fp32_fma", "dram")  # of a CPU: what comparing it with a GPU needs
OF_EACH_DEVICE = ("device_query", "prediction", "calibration", "peak_flops/prediction")


class Cells:
    """The devices, jobs and records of a configuration on this machine. Raises UserError for what it cannot do."""

    def __init__(self, checked: Checked, present: Mapping[str, Identity]):
        self.config, self.operators, self.present = checked.config, checked.operators, present
        self.devices = choose_devices(checked, present)
        self.gpus = select_accelerators(self.devices, discovery.kind_from_name)
        # Operators with rules of their own, their jobs by case, and the devices that they are measured on.
        self.timed = {rule: one for rule, one in self.operators.items() if not one.measured_with_ceilings}
        self.jobs = {rule: {job.path: job for job in one.jobs(self.config)} for rule, one in self.timed.items()}
        self.on = {rule: [device for device in self.devices if self.cases(rule, device)] for rule in self.timed}
        # Nsight Compute, where counters are wanted; the jobs whose counters are read, with their rules.
        self.ncu = profiler(self.config)
        self.counted_on = [] if self.config.counters == "off" else self.gpus
        on_gpus = (
            operator
            for rule, operator in self.operators.items()
            if self.ncu and set(self.counted_on) & set(self.on.get(rule, self.devices))
        )
        self.counted = choose_representative_jobs((one, job) for one in on_gpus if (job := one.profiled(self.config)))

    def everything(self, device: str) -> bool:
        """Whether more is measured than comparing a CPU with a GPU needs: not on a CPU next to one, or by quick."""
        alone = not self.gpus and self.config.effort != "quick"
        return device in self.gpus or self.config.cpu == "all" or alone

    def wanted(self, device: str, what: str) -> bool:
        """Whether a dtype or a level is measured."""
        return self.everything(device) or what in COMPARED

    def cases(self, rule: str, device: str) -> list[str]:
        """The cases of an operator's jobs on a device; none if it has no implementation there, or is not asked for."""
        one = self.timed[rule]
        if not (one.compared or self.everything(device)) or not devices_with(one, self.config, [device]):
            return []
        return [path for path, job in self.jobs[rule].items() if any(self.wanted(device, c.dtype) for c in job.cases)]

    def peaks(self) -> list[str]:
        """The compute ceilings that the devices have; the device records name the others."""
        return [
            f"{device}/peak_flops/{dtype}"
            for device in self.devices
            for dtype in self.config.peak_flops.dtypes
            if self.wanted(device, dtype) and not discovery.unsupported_reason(self.present[device], dtype)
        ]

    def bandwidths(self) -> list[str]:
        return [
            f"{device}/bandwidth/{level}"
            for device in self.devices
            for level in discovery.memory_levels(device, self.devices)
            if discovery.level_name(level) in self.config.bandwidth.levels and self.wanted(device, level)
        ]

    def instructions(self) -> list[str]:
        return [f"{device}/instructions/rates" for device in self.gpus if self.config.effort != "quick"]

    def measured(self) -> list[str]:
        operators = [
            f"{device}/{rule}/{case}"
            for rule in self.timed
            for device in self.on[rule]
            for case in self.cases(rule, device)
        ]
        return self.peaks() + self.bandwidths() + self.instructions() + operators

    def records(self) -> list[str]:
        """Everything that tables, pages and pictures are made from."""
        found = [f"{device}/{name}" for name in OF_EACH_DEVICE for device in self.devices]
        found += [f"{device}/{rule}/prediction" for rule in self.timed for device in self.on[rule]]
        found += self.measured() + [f"{device}/profiler" for device in self.counted_on]
        found += [f"{device}/counters/{rule}/{job.path}" for device in self.counted_on for rule, job in self.counted]
        return found + [f"operators/{rule}" for rule, one in self.timed.items() if one.path and self.on[rule]]

    def sustained_s(self, device: str, dtype: str) -> float | None:
        """How long a compute ceiling is put under sustained load: GEMMs on a GPU."""
        loaded = device in self.gpus and not dtype.endswith("_fma")
        return self.config.peak_flops.sustained_s if loaded else None

    def pictures(self) -> list[str]:
        """Only those of which something will be measured."""
        kinds = {device: discovery.kind_from_name(device) for device in self.devices}
        names = [name for files in picture_names(kinds).values() for name in files]
        names += [f"{one.picture}.png" for rule, one in self.operators.items() if self.on.get(rule, True)]
        names += ["sweep.png"] if any(cell.endswith("/bandwidth/sweep") for cell in self.bandwidths()) else []
        peaks = (peak.split("/peak_flops/") for peak in self.peaks())
        names += ["energy.png"] if self.config.bandwidth.energy and self.gpus else []
        names += ["load.png"] if any(self.sustained_s(*peak) for peak in peaks) else []
        return names + (["instruction_roofline.png"] if self.instructions() else [])

    def deliverables(self) -> list[str]:
        """All files of a run but the manifest, which holds a checksum of each. A deleted one is made again."""
        names = [
            "roofline.json",
            "roofline.schema.json",
            "ceilings.csv",
            "cells.csv",
            "known_cards.json",
            "report.html",
            "ROOFLINE.md",
        ]
        names += ["interpretation.md", "verification.md", *self.pictures()]
        names += [f"{device}/predictions.{format}" for device in self.devices for format in ("json", "md")]
        return files(self.records()) + [f"{RESULTS}/{name}" for name in names]


def files(cells: Sequence[str]) -> list[str]:
    return [f"{RESULTS}/{cell}.json" for cell in cells]


def find(text: str, known: Sequence[str]) -> str:
    """The cell that a text names, by its path with or without results/ and .json. Raises UserError."""
    cell = text.strip().removeprefix(f"{RESULTS}/").removesuffix(".json")
    if cell not in known:
        near = difflib.get_close_matches(cell, known)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UserError(f"CELL: {text!r} is unknown{hint} (`make plan ARGS=--forceall` lists every record)")
    return cell


def devices_with(operator: Operator, config: BaseModel, chosen: Iterable[str]) -> list[str]:
    """The devices that have an implementation of an operator, of those that the config names."""
    wanted = getattr(config, operator.rule).implementations
    return [device for device in chosen if operator.implementations_on(discovery.kind_from_name(device), wanted)]


def asked(checked: Checked, chosen: Sequence[str]) -> dict:
    """What roofline.json depends on apart from the records."""
    config = checked.config
    without = [
        {"device": device, "operator": one.name, "reason": f"no implementation for {discovery.kind_from_name(device)}"}
        for one in checked.operators.values()
        if one.path  # RMSNorm + matmul is of GPUs alone
        for device in chosen
        if not devices_with(one, config, [device])
    ]
    operations = [operation.model_dump() for operation in config.operations]
    shapes = {
        operator.name: [case.shape for job in operator.jobs(config) for case in job.cases]
        for operator in checked.operators.values()
        if not operator.measured_with_ceilings
    }
    wanted = {"effort": config.effort, "dtypes": config.peak_flops.dtypes, "shapes": shapes}
    return wanted | {"operations": operations, "without": without}
