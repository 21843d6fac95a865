"""Seals: what is assumed and promised of a device and of an operator, and what follows from them for a cell."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from roofline.core.cell_prediction import CellCosts, predict_cell, weighted_sum
from roofline.core.terms import DeviceKind, Regime, RegimeLevel
from roofline.records.base import NotNegative, Rate, Record, RunRecord, Share

Multiple = Annotated[float, Field(ge=0, le=1e15)]  # of constants, and these themselves


class PromisedCeiling(Record):
    kind: Literal["compute", "memory"]
    name: str
    tflops: Rate | None = None
    gb_per_s: Rate | None = None
    source: str
    verified: bool
    derived: bool


class Seal(RunRecord):
    """Written before any record that carries its hash is begun."""

    device: str
    device_kind: DeviceKind
    sealed_at: str


class PredictionRecord(Seal):
    """A device's seal: the ceilings that its datasheet promises."""

    kind: Literal["prediction"] = "prediction"
    ceilings: list[PromisedCeiling]

    def rates(self, compute_ceiling: str, memory_ceilings: list[str]) -> tuple[float | None, float | None]:
        """TFLOPS and GB/s that are promised for a cell's ceilings.

        Where no bandwidth is promised for the declared ones, the first promised one counts.
        """
        tflops = {one.name: one.tflops for one in self.ceilings if one.kind == "compute"}
        gb_per_s = {one.name: one.gb_per_s for one in self.ceilings if one.kind == "memory"}
        declared = [gb_per_s[name] for name in memory_ceilings if name in gb_per_s]
        return tflops.get(compute_ceiling), next(iter([*declared, *gb_per_s.values()]), None)


class OperatorPredictionRecord(Seal):
    """An operator's seal: the constants of its costs on this kind of device, each with its source."""

    kind: Literal["operator_prediction"] = "operator_prediction"
    operator: str
    constants: dict[str, Multiple]
    constant_sources: dict[str, str]


class CellPrediction(Record):
    regime: Regime
    latency_s: NotNegative | None = Field(description="the caller's")
    device_latency_s: NotNegative | None = Field(default=None, description="the device's part; null where it is all")
    fraction_of_compute_peak: NotNegative | None
    level: RegimeLevel | None = Field(default=None, description="of memory, that sets the time of a memory-bound cell")


class CostTerms(Record):
    """What a cell costs besides its work, as multiples of the constants in its operator's seal (core/cell_prediction.py)."""

    calls: dict[str, Multiple] = Field(default={}, description="seconds of the host")
    start: dict[str, Multiple] | None = Field(default=None, description="seconds of the device; null if synchronous")
    extra: dict[str, Multiple] = Field(default={})
    floor: dict[str, Multiple] = Field(default={})
    waits: dict[str, Multiple] = Field(default={})
    levels: dict[RegimeLevel, dict[str, Multiple]] = Field(
        default={}, description="what passes through memory levels other than the declared one"
    )
    share: str | None = Field(default=None, description="the constant that is the share of the memory ceiling; null: 1")
    compute_share: str | None = Field(default=None, description="the same of the compute ceiling")
    filled: Share = Field(default=1.0, description="of the compute units, those that have work on average")

    def costs(self, constants: Mapping[str, float]) -> CellCosts:
        """In seconds, by these constants. Raises KeyError for one that is missing."""
        return CellCosts(
            overhead_s=weighted_sum(self.calls, constants) if self.calls else None,
            start_s=None if self.start is None else weighted_sum(self.start, constants),
            share=constants[self.share] if self.share else 1.0,
            extra_s=weighted_sum(self.extra, constants),
            floor_s=weighted_sum(self.floor, constants),
            waits_s=weighted_sum(self.waits, constants),
            compute_share=self.filled * (constants[self.compute_share] if self.compute_share else 1.0),
            levels_s={level: weighted_sum(terms, constants) for level, terms in self.levels.items()},
        )


def predict_sealed(
    device: PredictionRecord,
    constants: Mapping[str, float],
    *,
    flops: float,
    traffic_bytes: float,
    compute_ceiling: str,
    memory_ceilings: list[str],
    memory_level: RegimeLevel,
    terms: CostTerms,
) -> CellPrediction:
    """A cell's regime, times and share of peak from two seals alone: the device's and its operator's constants."""
    tflops, gb_per_s = device.rates(compute_ceiling, memory_ceilings)
    predicted = predict_cell(
        flops=flops,
        traffic_bytes=traffic_bytes,
        tflops=tflops,
        gb_per_s=gb_per_s,
        costs=terms.costs(constants),
        memory_level=memory_level,
    )
    return CellPrediction(
        regime=predicted.regime,
        latency_s=predicted.cpu_time_s,
        device_latency_s=predicted.gpu_time_s,
        fraction_of_compute_peak=predicted.fraction_of_compute_peak,
        level=predicted.regime_level,
    )
