"""Margins within which a change of a figure does not matter, for the fleet."""

from roofline.core.terms import QuantityKind

MARGINS: dict[QuantityKind, float] = {
    "burst": 0.02,
    "sustained": 0.03,
    "issue": 0.02,
    "memory": 0.01,
    "cache": 0.02,
    "link": 0.02,
    "pageable": 0.10,
    "device_time": 0.03,
    "caller_time": 0.05,
}
