"""What tests of measurements share: a device whose clock the test turns, and records and seals made by hand."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from roofline.devices.host import HostUsage
from roofline.measure import compute_ceiling, protocol, search, undisturbed
from roofline.measure.sealing import promise_ceilings, seal_device, seal_operator
from roofline.operators.predicting import Seals
from roofline.records.base import write
from roofline.records.cards import METHOD
from roofline.records.compute import WorkloadSpec
from roofline.records.device_record import DatasheetFigures, DatasheetPeak, DeviceRecord
from roofline.records.seal_records import PredictionRecord

AT = "2026-11-05T12:00:00+00:00"
JOB = {"device": "gpu0", "seals": {"gpu0/prediction.json": "0" * 64}, "started_at": AT, "elapsed_s": 1000.0}
HEAT, POWER_CAP = ["sw_thermal_slowdown"], ["sw_power_cap"]


class FakeDevice:
    """A device whose clock is its own: each step returns the seconds that it takes.

    `reasons(now)` is what throttles it, None where it does not report that. A CPU is its own caller.
    """

    name, memory_level, cache_level, cache_ceilings, last_level_cache_bytes = "gpu0", "hbm", "l2", ["l2"], 1 << 20
    multiprocessors = 132

    def read_energy_j(self): ...

    def __init__(self, kind: str = "gpu", reasons=lambda now: []):
        self.kind, self.reasons = kind, reasons
        self.now, self.numbers = 0.0, []

    def time_steps(self, step, count, first=0, read_during=None):
        times = []
        for number in range(first, first + count):
            if read_during and number == first + count // 2:
                read_during()
            times.append(step(number))
            self.numbers.append(number)
            self.now += times[-1]
        return times

    def time_steps_on_device(self, step, count, first=0, at_once=None):
        if self.kind == "cpu":
            return None
        return [seconds / 2 for seconds in self.time_steps(step, count, first)]

    def block_clock_mhz(self):
        return None if self.kind == "cpu" else 1500.0

    def read_state(self) -> dict:
        reasons = self.reasons(self.now)
        return {} if reasons is None else {"throttle_reasons": list(reasons)}

    def count_other_processes(self) -> int | None:
        return None

    def synchronize(self):
        pass

    def sleep(self, seconds):
        self.now += seconds

    def compute_unit(self, ceiling):
        return "cpu" if self.kind == "cpu" else "tensor_core"

    def compute_ceiling_name(self, dtype, unit):
        return dtype

    def memory_ceiling_names(self, mix):
        return [f"{self.memory_level}_{mix}"]


@contextlib.contextmanager
def clock_of(device: FakeDevice) -> Iterator[None]:
    """Have everything that measures go by the device's clock."""
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: device.now, sleep=device.sleep)
        for module in (compute_ceiling, protocol, search, undisturbed):
            patch.setattr(module, "time", clock)
        patch.setattr(
            undisturbed.host, "read_usage", lambda list_other_processes=True: HostUsage(device.now, device.now)
        )
        yield


def datasheet_peak(tflops: float = 160.0, **fields) -> DatasheetPeak:
    known = {"compute_unit": "tensor_core", "operations_per_clock_per_multiprocessor": 1024.0, "source": "made up"}
    return DatasheetPeak(tflops=tflops, **known | {"verified": True, "derived": False} | fields)


def datasheet_figures(**fields) -> DatasheetFigures:
    known = dict.fromkeys(name for name, field in DatasheetFigures.model_fields.items() if field.is_required())
    known |= {"peaks_by": "datasheet", "reason": "made up", "rate_class": "full", "peaks": {}, "absent": {}}
    return DatasheetFigures(**known | fields)


def device_record(device: str = "gpu0", **fields) -> DeviceRecord:
    """A card of 132 multiprocessors at 1980 MHz, or a CPU of two cores."""
    kind = device.rstrip("0123456789")
    hardware = {"gpu": {"multiprocessors": 132, "sm_clock_max_mhz": 1980}, "cpu": {"cores_usable": 2}}
    known = {"device": device, "device_kind": kind, "name": {"cpu": "A CPU", "gpu": "NVIDIA H200"}[kind]}
    known |= {"uuid": f"uuid-of-{device}", "memory_total_bytes": 1 << 34, "memory_free_bytes": 1 << 33}
    known |= {"last_level_cache_bytes": 1 << 25, "hardware": hardware[kind], "timer_ratio": None}
    known |= {"software": {"numpy": "2.4.6"}, "datasheet": datasheet_figures(), "unsupported": {}}
    known |= {"host": {"os": "Linux"}, "queried_at": AT, "method": METHOD}
    return DeviceRecord(**known | fields)


def seals_for(device: DeviceRecord, operator) -> Seals:
    """What is sealed of a device and of an operator's constants there."""
    constants = operator.constants.get(device.device_kind, {})
    sealed = PredictionRecord(
        device=device.device, device_kind=device.device_kind, sealed_at=AT, ceilings=promise_ceilings(device)
    )
    return Seals(sealed, {name: value for name, (value, *_) in constants.items()})


def write_seals(device: DeviceRecord, operator) -> tuple[str, dict[str, str]]:
    """The files that a measuring job reads, below results/ here: the device's record, and the paths of both seals."""
    folder = f"results/{device.device}"
    path = f"{folder}/device_query.json"
    write(device, path)
    seals = {"device": f"{folder}/prediction.json", "operator": f"{folder}/{operator.rule}/prediction.json"}
    write(seal_device(device, AT), seals["device"])
    write(seal_operator(operator.name, operator.constants, device, AT), seals["operator"])
    return path, seals


def product(size: int = 8, **fields) -> WorkloadSpec:
    known = {"library": "cupy.matmul", "layout": None, "algorithm": None, "accumulation": "fp32", "output": "fp16"}
    return WorkloadSpec(shape=dict.fromkeys("mnk", size), **known | fields)
