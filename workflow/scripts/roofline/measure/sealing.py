"""Seals: the ceilings that the datasheet of a device promises, and the constants of an operator's costs."""

from collections.abc import Mapping

import roofline.devices.cpu.topology as of_cpu  # not by `from`, which sources.py takes for code of a CPU alone
from roofline.core.terms import ACCESS_PATTERNS
from roofline.devices.levels import PEER_LEVEL, memory_ceiling_names
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord, PromisedCeiling

MEASURED_SOURCE = "measured on this host before any operator"
SOURCE_FIELDS = {"source", "verified", "derived"}  # fields


def seal_operator(
    operator, device: DeviceRecord, sealed_at: str, calibration: CalibrationRecord | None = None
) -> OperatorPredictionRecord:
    """The constants of an operator's costs on this kind of device, of a host as far as they were measured there."""
    assumed: Mapping = operator.constants.get(device.device_kind, {})
    calibrated = calibration.constants if calibration else {}
    measured = {name: value for name, value in calibrated.items() if name in assumed}
    return OperatorPredictionRecord(
        device=device.device,
        device_kind=device.device_kind,
        sealed_at=sealed_at,
        operator=operator.name,
        constants={name: value for name, (value, *_) in assumed.items()} | measured,
        constant_sources={name: source for name, (_, source, *_) in assumed.items()}
        | dict.fromkeys(measured, MEASURED_SOURCE),
    )


def seal_device(device: DeviceRecord, sealed_at: str) -> PredictionRecord:
    """The ceilings that the datasheet of a device promises."""
    return PredictionRecord(
        device=device.device,
        device_kind=device.device_kind,
        sealed_at=sealed_at,
        ceilings=promise_ceilings(device),
    )


def promise_ceilings(device: DeviceRecord) -> list[PromisedCeiling]:
    """The vendor's peaks and bandwidth by the ceilings that they promise; of a CPU's memory a rule of thumb."""
    compute = [
        PromisedCeiling(kind="compute", name=name, tflops=peak.tflops, **peak.model_dump(include=SOURCE_FIELDS))
        for name, peak in device.datasheet.peaks.items()
    ]
    bandwidth = device.datasheet.bandwidth
    names = dict.fromkeys(name for mix in ACCESS_PATTERNS for name in memory_ceiling_names(device.device_kind, mix))
    if device.device_kind == "cpu":
        whole, *fewer = of_cpu.measured_core_counts(device.hardware.get("cores_usable", 1))
        rates = dict.fromkeys(names, of_cpu.rule_of_thumb_gb_per_s(whole, device.name))
        rates |= {
            of_cpu.ceiling_name_on_cores("dram_read", count): of_cpu.rule_of_thumb_gb_per_s(count, device.name)
            for count in fewer
        }
        source = {"source": of_cpu.RULE_OF_THUMB_SOURCE, "verified": False, "derived": True}
    elif bandwidth:
        rates = dict.fromkeys(names, bandwidth.gb_per_s)
        source = bandwidth.model_dump(include=SOURCE_FIELDS)
    else:
        return compute  # neither the table nor the driver reports a bandwidth: none is promised
    memory = [PromisedCeiling(kind="memory", name=name, gb_per_s=rate, **source) for name, rate in rates.items()]
    if link := device.datasheet.nvlink:
        memory.append(PromisedCeiling(kind="memory", name=PEER_LEVEL, **link.model_dump()))
    return compute + memory
