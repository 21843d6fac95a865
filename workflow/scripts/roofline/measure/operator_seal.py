"""The seal of an operator: the constants of its costs."""

from roofline.operators.base import Operator
from roofline.operators.constants import sealed
from roofline.records.calibration import CalibrationRecord
from roofline.records.device import DeviceRecord
from roofline.records.prediction import OperatorPredictionRecord


def seal_operator(
    operator: Operator, device: DeviceRecord, sealed_at: str, calibration: CalibrationRecord | None = None
) -> OperatorPredictionRecord:
    """The constants of an operator's costs on this kind of device, of a host as far as they were measured there."""
    measured = calibration.constants if calibration else {}
    assumed = sealed(operator.constants.get(device.device_kind, {}), measured)
    return OperatorPredictionRecord(
        device=device.device,
        device_kind=device.device_kind,
        sealed_at=sealed_at,
        operator=operator.name,
        constants={name: value for name, (value, _) in assumed.items()},
        constant_sources={name: source for name, (_, source) in assumed.items()},
    )
