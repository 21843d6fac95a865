"""Operators as they were measured: one record per job, one measurement per implementation, case and scope."""

from collections.abc import Hashable
from typing import Any, Literal

from pydantic import Field

from roofline.core.terms import Cache, Regime, RegimeLevel
from roofline.records.base import AtLeastOne, NotNegative, Positive, Record, RunRecord, Seconds, Share, Time, Whole
from roofline.records.seal_records import CellPrediction, CostTerms, SealedEntry
from roofline.records.timing_record import Check, Contention, DeviceState, Timing


class DataFile(Record):
    """A file that was measured with, such as weights."""

    path: str
    sha256: str
    generated: bool
    description: str


class CellKey(Record):
    """What distinguishes a cell from the other cells of a device."""

    operator: str
    implementation: str
    preset: str | None = None
    scope: str | None = None
    dtype: str
    cache: Cache | None = None
    shape: dict[str, int] = Field(description="sizes of the case, by the names of its dimensions")

    @property
    def planned_identity(self) -> tuple[Hashable, ...]:
        """A key that no other cell of the device has in one run, where its inputs are either cold or warm."""
        names = (self.operator, self.implementation, self.preset, self.scope, self.dtype)
        return *names, *sorted(self.shape.items())


class CellRecord(CellKey):
    """A cell of a device of this run, with its inputs cold or warm."""

    cache: Cache

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """A key that no other cell of the device has."""
        return *self.planned_identity, self.cache


class Measurement(CellRecord):
    """A timed cell: its counts, ceilings, sealed prediction, times, check and readings of the device."""

    flops: Whole
    bytes: Whole
    compute_ceiling: str
    memory_ceilings: list[str] = Field(description="the declared memory ceiling, best first, until one exists")
    memory_level: RegimeLevel
    level_bytes: dict[RegimeLevel, Whole] = Field(default={}, description="that pass through other memory levels")
    level_ceilings: dict[RegimeLevel, str] = Field(
        default={}, description="the ceilings that these bytes are under, where not that of the level's name"
    )
    costs: CostTerms
    sealed: CellPrediction = Field(description="the prediction that was sealed before the cell was timed")
    entry_sha256: str | None = Field(default=None, description="of what determines it, in predictions.json")
    check: Check
    cpu_time: Timing = Field(description="what a caller waits for a step, launches included")
    gpu_time: Timing | None = Field(description="the kernels alone; null on a CPU")
    overhead_s: NotNegative | None = Field(
        description="CPU time of the smallest case: what a call costs, at most what this cell takes"
    )
    start_s: NotNegative | None = Field(default=None, description="GPU time of the smallest case")
    per_call: AtLeastOne = Field(default=1, description="times that one call applies the operator; times are of one")
    plan: dict[str, Any] = Field(default={}, description="how the implementation divides the work")
    remarks: list[str] = Field(default=[], description="what does not fit, but is not an error")
    states: list[DeviceState]


class PredictedCell(CellRecord):
    """A planned cell as the seals predict it; its measurement holds the same prediction."""

    sealed: CellPrediction | None
    entry: SealedEntry | None = Field(default=None, description="what determines it; null in runs before 2026-11-29")
    reason: str | None = Field(default=None, description="why there is no prediction without arrays")
    started_at: Time | None = Field(default=None, description="of a record that was there before, when it was begun")


class DrawnShapes(Record):
    """The shapes of an operator that were drawn after its constants were sealed, and what they follow from."""

    seals: list[str] = Field(description="paths in results/ of the files whose hashes are in the seed")
    seed: str = Field(description="SHA-256 of the seals' hashes and of the code's")
    code_sha256: str = Field(description="of the files that draw and predict")
    shapes: list[str] = Field(description="in words, with the dtype")


class PredictionsRecord(RunRecord):
    """results/{device}/predictions.json: the predictions of all planned cells, written before they are measured."""

    kind: Literal["predictions"] = "predictions"
    device: str
    predicted_at: Time
    seals: dict[str, str] = Field(description="SHA-256 of each, by its path in results/")
    cells: list[PredictedCell]
    what_if: list[PredictedCell] = Field(default=[], description="of no job: cases that a reader may choose from")
    drawn: dict[str, DrawnShapes] = Field(default={}, description="by rule: the shapes that follow from the seals")


class OwnPrediction(CellKey):
    """A cell as the user predicts it, in one respect or more."""

    regime: Regime | None = None
    cpu_time_s: Positive | None = Field(default=None, description="what a caller waits for a step")
    fraction_of_compute_peak: Share | None = Field(default=None, description="FLOP rate by the CPU time over the peak")


class SealedOwnPrediction(OwnPrediction):
    """The user's prediction of a cell, with the time from which on it has been as it is."""

    sealed_at: Time
    started_at: Time | None = Field(default=None, description="of a record that was there before, when it was begun")


class OwnPredictionsRecord(RunRecord):
    """results/{device}/own_predictions.json: what the user predicts, sealed before what a run measures."""

    kind: Literal["own_predictions"] = "own_predictions"
    device: str
    cells: list[SealedOwnPrediction]


class JobRecord(RunRecord):
    """The part that records of all measuring jobs have in common."""

    device: str
    seals: dict[str, str] = Field(description="SHA-256 of each seal that holds for this job, by its path in results/")
    started_at: Time
    elapsed_s: Seconds
    whole_job: Contention | None = Field(default=None, description="what else ran from its start to its end")
    measurements: list[Measurement] = Field(default=[])


class OperatorRecord(JobRecord):
    """results/{device}/{rule}/{case}.json: the measurements of an operator on one case."""

    kind: Literal["operator"] = "operator"
    case: str = Field(description="of the file's path: results/{device}/{rule}/{case}.json")
    data: list[DataFile] = Field(default=[])
    sources: dict[str, str] = Field(default={}, description="SHA-256 of the operator's own files outside the library")
    notes: list[str] = Field(default=[])
