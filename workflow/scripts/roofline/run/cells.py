"""What a configuration asks for. A cell is one of its records: the path below results/, without .json."""

import difflib
from collections.abc import Mapping, Sequence

from roofline.core.device_kinds import accelerators
from roofline.devices import discovery
from roofline.devices.base import Identity
from roofline.run.paths import RESULTS
from roofline.run.settings import Checked, Faults, choose_devices, devices_with, profiler

NEAREST = 3
COMPARED = ("fp32", "fp32_fma", "dram")  # of a CPU: what comparing it with a GPU needs
OF_EACH_DEVICE = ("device_query", "prediction", "calibration", "peak_flops/prediction")


class Cells:
    """The devices, jobs and records of a configuration on this machine. Raises Faults for what it cannot do."""

    def __init__(self, checked: Checked, present: Mapping[str, Identity]):
        self.config, self.operators, self.present = checked.config, checked.operators, present
        self.devices = choose_devices(checked, present)
        self.gpus = accelerators(self.devices, discovery.kind_of)
        # Operators with rules of their own, their jobs by case, and the devices that they are measured on.
        self.timed = {rule: one for rule, one in self.operators.items() if not one.measured_with_ceilings}
        self.jobs = {rule: {job.path: job for job in one.jobs(self.config)} for rule, one in self.timed.items()}
        self.on = {rule: [device for device in self.devices if self.cases(rule, device)] for rule in self.timed}
        # Nsight Compute, where counters are wanted; the jobs whose counters are read, by operator.
        self.ncu = profiler(self.config)
        self.counted_on = [] if self.config.counters == "off" else self.gpus
        self.counted = [
            (rule, job)
            for rule, operator in self.operators.items()
            if self.ncu and set(self.counted_on) & set(self.on.get(rule, self.devices))
            for job in {job.path: job for job in operator.profiled(self.config)}.values()
        ]

    def wanted(self, device: str, what: str) -> bool:
        """Whether a dtype or a level is measured: on a CPU beside a GPU, or by effort quick, only what both are
        compared by."""
        everything = self.config.cpu == "all" or (not self.gpus and self.config.effort != "quick")
        return everything or device in self.gpus or what in COMPARED

    def cases(self, rule: str, device: str) -> list[str]:
        """The cases of an operator's jobs on a device; none if it has no implementation there."""
        if not devices_with(self.timed[rule], self.config, [device]):
            return []
        return [path for path, job in self.jobs[rule].items() if any(self.wanted(device, c.dtype) for c in job.cases)]

    def peaks(self) -> list[str]:
        """The compute ceilings that the devices have; the device records name the others."""
        return [
            f"{device}/peak_flops/{dtype}"
            for device in self.devices
            for dtype in self.config.peak_flops.dtypes
            if self.wanted(device, dtype) and not discovery.unsupported(self.present[device], dtype)
        ]

    def bandwidths(self) -> list[str]:
        return [
            f"{device}/bandwidth/{level}"
            for device in self.devices
            for level in discovery.memory_levels(device, self.devices)
            if discovery.level_of(level) in self.config.bandwidth.levels and self.wanted(device, level)
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


def files(cells: Sequence[str]) -> list[str]:
    return [f"{RESULTS}/{cell}.json" for cell in cells]


def every(checked: Checked, present: Mapping[str, Identity]) -> list[str]:
    """All that is measured but calibrations. Raises Faults."""
    return Cells(checked, present).measured()


def find(text: str, known: Sequence[str]) -> str:
    """The cell that a text names, by its path with or without results/ and .json. Raises Faults."""
    cell = text.strip().removeprefix(f"{RESULTS}/").removesuffix(".json")
    if cell not in known:
        near = difflib.get_close_matches(cell, known, NEAREST)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise Faults([f"CELL: {text!r} is unknown{hint} (`make plan ARGS=--forceall` lists every record)"])
    return cell
