"""Seals: the promised ceilings of a device, the constants of an operator, and the prediction of a cell from both."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from roofline.core import cell_prediction, regimes, roofline_model
from roofline.core.cell_prediction import CellCosts, predict_cell, weighted_sum
from roofline.core.terms import DeviceKind, Regime, RegimeLevel
from roofline.records.base import NotNegative, Rate, Record, RunRecord, Share

Multiple = Annotated[float, Field(ge=0, le=1e15)]  # a constant, or how often one counts


class PromisedCeiling(Record):
    """A compute peak or a bandwidth that the datasheet promises, with its source."""

    kind: Literal["compute", "memory"]
    name: str
    tflops: Rate | None = None
    gb_per_s: Rate | None = None
    source: str
    verified: bool
    derived: bool


class Seal(RunRecord):
    """A file that is written before any record that carries its hash is begun."""

    device: str
    device_kind: DeviceKind
    sealed_at: str


class PredictionRecord(Seal):
    """A device's seal: the ceilings that its datasheet promises."""

    kind: Literal["prediction"] = "prediction"
    ceilings: list[PromisedCeiling]

    def rates(self, compute_ceiling: str, memory_ceilings: list[str]) -> tuple[float | None, float | None]:
        """Return the promised TFLOPS and GB/s for a cell's ceilings; None where nothing is promised.

        If no bandwidth is promised for the declared memory ceilings, the first promised one counts.
        """
        tflops = {ceiling.name: ceiling.tflops for ceiling in self.ceilings if ceiling.kind == "compute"}
        gb_per_s = {ceiling.name: ceiling.gb_per_s for ceiling in self.ceilings if ceiling.kind == "memory"}
        declared = [gb_per_s[name] for name in memory_ceilings if name in gb_per_s]
        candidates = [*declared, *gb_per_s.values()]
        return tflops.get(compute_ceiling), candidates[0] if candidates else None


class OperatorPredictionRecord(Seal):
    """An operator's seal: the constants of its costs on this kind of device, each with its source."""

    kind: Literal["operator_prediction"] = "operator_prediction"
    operator: str
    constants: dict[str, Multiple]
    constant_sources: dict[str, str]


class CellPrediction(Record):
    """The predicted regime, times and share of peak of a cell."""

    regime: Regime
    cpu_time_s: NotNegative | None = Field(description="what a caller waits for a step")
    gpu_time_s: NotNegative | None = Field(default=None, description="the kernels alone; null on a CPU")
    fraction_of_compute_peak: NotNegative | None = Field(description="FLOP rate by the CPU time over the promised peak")
    regime_level: RegimeLevel | None = Field(
        default=None, description="the memory level that sets the time of a memory-bound cell"
    )


class CostTerms(Record):
    """The costs of a cell besides its work, as multiples of the constants in its operator's seal.

    core/cell_prediction.py says how they make up a time.
    """

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
    compute_adds: bool = Field(default=False, description="the FLOPs' time adds to the waits")

    @property
    def constant_names(self) -> set[str]:
        """The names of all constants that these costs are multiples of, or that are a share."""
        terms = [self.calls, self.start or {}, self.extra, self.floor, self.waits, *self.levels.values()]
        shares = {self.share, self.compute_share} - {None}
        return {name for multiples in terms for name in multiples} | {str(name) for name in shares}

    def costs(self, constants: Mapping[str, float]) -> CellCosts:
        """Return the costs in seconds by these constants. Raises KeyError for a missing constant."""
        return CellCosts(
            overhead_s=weighted_sum(self.calls, constants) if self.calls else None,
            start_s=None if self.start is None else weighted_sum(self.start, constants),
            share=constants[self.share] if self.share else 1.0,
            extra_s=weighted_sum(self.extra, constants),
            floor_s=weighted_sum(self.floor, constants),
            waits_s=weighted_sum(self.waits, constants),
            compute_share=self.filled * (constants[self.compute_share] if self.compute_share else 1.0),
            compute_adds=self.compute_adds,
            levels_s={level: weighted_sum(terms, constants) for level, terms in self.levels.items()},
        )


class SealedEntry(Record):
    """All that determines a cell's prediction next to the promised rates of its ceilings, which its device's seal has:
    whoever has both computes the prediction again."""

    flops: NotNegative
    bytes: NotNegative
    compute_ceiling: str
    memory_ceilings: list[str]
    memory_level: RegimeLevel
    costs: CostTerms
    constants: dict[str, Multiple] = Field(description="of the operator's seal, those that the costs name")
    code_sha256: str = Field(description="of the files that compute the prediction")

    @property
    def sha256(self) -> str:
        """The hash of what the file holds of the entry, which the record of the cell carries. A field that the format
        gains later does not change it."""
        return hashlib.sha256(self.model_dump_json(exclude_unset=True).encode()).hexdigest()

    def predict(self, device: PredictionRecord) -> CellPrediction:
        """Return the prediction that follows from this entry and the seal of the device."""
        return predict_sealed(
            device,
            self.constants,
            flops=self.flops,
            traffic_bytes=self.bytes,
            compute_ceiling=self.compute_ceiling,
            memory_ceilings=self.memory_ceilings,
            memory_level=self.memory_level,
            terms=self.costs,
        )


@cache
def prediction_code_sha256() -> str:
    """Return one SHA-256 of the files that compute a prediction from an entry."""
    files = [Path(__file__), *(Path(str(module.__file__)) for module in (cell_prediction, regimes, roofline_model))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


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
    """Return a cell's regime, times and share of peak from two seals alone: the device's and its operator's.

    `device` is the seal of the device, `constants` are those of the operator's seal.
    """
    tflops, gb_per_s = device.rates(compute_ceiling, memory_ceilings)
    predicted = predict_cell(
        flops=flops,
        traffic_bytes=traffic_bytes,
        tflops=tflops,
        gb_per_s=gb_per_s,
        costs=terms.costs(constants),
        memory_level=memory_level,
    )
    return CellPrediction(**predicted._asdict())
