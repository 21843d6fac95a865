"""Seals: the ceilings that the datasheet of a device promises, the constants of an operator's costs, and what the user
predicts."""

from collections.abc import Iterable, Mapping

import roofline.devices.cpu.topology as cpu_topology  # not by `from`, which sources.py takes for code of a CPU alone
from roofline.core.levels import main_memory_ceiling, memory_ceiling_names
from roofline.core.terms import ACCESS_PATTERNS
from roofline.devices import datasheets
from roofline.records.base import shared_fields
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.operator_record import OwnPrediction, SealedOwnPrediction
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord, PromisedCeiling

MEASURED_SOURCE = "measured on this host before any operator"
# Of an operator: (value, source, meaning) by kind of device and name. Not its class: with operators/base.py the seals
# of devices would follow from it too.
CostConstants = Mapping[str, Mapping[str, tuple]]


def seal_operator(
    name: str, costs: CostConstants, device: DeviceRecord, sealed_at: str, calibration: CalibrationRecord | None = None
) -> OperatorPredictionRecord:
    """Return the seal of the cost constants of the operator of this name, on this kind of device.

    Constants that the calibration measured on this host replace those that the operator assumes.
    """
    values, sources = {}, {}
    measured = calibration.constants if calibration else {}
    for constant, (value, source, *_) in costs.get(device.device_kind, {}).items():
        values[constant] = measured.get(constant, value)
        sources[constant] = MEASURED_SOURCE if constant in measured else source
    return OperatorPredictionRecord(
        device=device.device,
        device_kind=device.device_kind,
        sealed_at=sealed_at,
        operator=name,
        constants=values,
        constant_sources=sources,
    )


def seal_own_prediction(
    prediction: OwnPrediction, earlier: Iterable[SealedOwnPrediction], sealed_at: str, started_at: str | None
) -> SealedOwnPrediction:
    """Return the user's prediction with the time of its seal: its earlier one, if it has not changed since.

    `started_at` is the start of its cell's measurement, if there is one already.
    """
    fields = shared_fields(prediction, OwnPrediction)
    same = (sealed for sealed in earlier if shared_fields(sealed, OwnPrediction) == fields)
    return next(same, None) or SealedOwnPrediction(**fields, sealed_at=sealed_at, started_at=started_at)


def seal_device(device: DeviceRecord, sealed_at: str) -> PredictionRecord:
    """Return the seal of the ceilings that the datasheet of a device promises."""
    return PredictionRecord(
        device=device.device, device_kind=device.device_kind, sealed_at=sealed_at, ceilings=promise_ceilings(device)
    )


def promise_ceilings(device: DeviceRecord) -> list[PromisedCeiling]:
    """Return the peaks and the bandwidth of the datasheet by the ceilings that they promise.

    The bandwidth of a CPU's memory is a rule of thumb.
    """
    promised = datasheets.promise_gpu_ceilings(device.datasheet)
    if device.device_kind != "cpu":
        return promised
    names = dict.fromkeys(name for mix in ACCESS_PATTERNS for name in memory_ceiling_names(device.device_kind, mix))
    source = {"source": cpu_topology.RULE_OF_THUMB_SOURCE, "verified": False, "derived": True}
    rates = _rule_of_thumb_rates(device, names)
    return promised + [
        PromisedCeiling(kind="memory", name=name, gb_per_s=rate, **source) for name, rate in rates.items()
    ]


def _rule_of_thumb_rates(device: DeviceRecord, names: Iterable[str]) -> dict[str, float]:
    """Return the GB/s of a CPU's memory ceilings: those of all cores, and reads on fewer cores."""
    all_cores, *fewer_cores = cpu_topology.measured_core_counts(device.hardware.get("cores_usable", 1))
    rates = dict.fromkeys(names, cpu_topology.rule_of_thumb_gb_per_s(all_cores, device.name))
    for cores in fewer_cores:
        name = cpu_topology.ceiling_name_on_cores(main_memory_ceiling("cpu", "read"), cores)
        rates[name] = cpu_topology.rule_of_thumb_gb_per_s(cores, device.name)
    return rates
