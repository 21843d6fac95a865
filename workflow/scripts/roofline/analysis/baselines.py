"""What the sealed model has to beat: the promised roof alone, and that roof with one start-up time for each kind of
implementation."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from roofline.core.prediction import Costs, predict_cell
from roofline.records.prediction import CellPrediction, CostTerms

FITTED = Path(__file__).with_name("fitted_cells.json")
# Seconds by kind of implementation: what cells drawn at random on hosts of an H200 took beyond their roof, and cells of
# the default config on their CPUs, in the median.
START_S = {
    "graph": 1.8e-6,
    "kernel": 9.4e-6,
    "library": 11e-6,
    "arrays": 260e-6,
    "loops of a CPU": 100e-6,
    "product on a CPU": 30e-6,
    "arrays of a CPU": 400e-6,
}
SEVERAL = 3  # calls of the array library from which on they are several operations, not one product


def kind_of(terms: CostTerms) -> str:
    """Of an implementation, by what its cells declare of their calls."""
    operations = terms.calls.get("array_operation_s", 0.0)
    if terms.start is None and "loop_s" in terms.calls:
        return "loops of a CPU"
    if terms.start is None:
        return "product on a CPU" if terms.compute_share else "arrays of a CPU"
    if "graph_launch_s" in terms.calls:
        return "graph"
    if operations >= SEVERAL:
        return "arrays"
    return "kernel" if "kernel_launch_s" in terms.calls else "library"


def baselines(
    flops: float, traffic_bytes: float, rates: tuple[float | None, float | None], terms: CostTerms
) -> tuple[CellPrediction, CellPrediction]:
    """By the promised rates, in TFLOPS and GB/s: the roof alone, and with the start-up time of its kind."""

    def predicted(call_s: float | None) -> CellPrediction:
        tflops, gb_per_s = rates
        found = predict_cell(
            flops=flops,
            traffic_bytes=traffic_bytes,
            peak_tflops=tflops,
            bandwidth_gb_per_s=gb_per_s,
            costs=Costs(call_s=call_s, start_s=None),
        )
        return CellPrediction(**found._asdict())

    return predicted(None), predicted(START_S[kind_of(terms)])


@cache
def _fitted() -> frozenset[str]:
    return frozenset(json.loads(FITTED.read_text(encoding="utf-8")))


def fitted_name(operator: str, dtype: str, shape: Mapping[str, int], preset: str | None = None) -> str:
    """As the list of cells that constants were fitted on has it: the beginning of a hash, since it is long. `preset`
    where the shape alone does not tell the work: of a model's step."""
    words = f"{operator} {dtype} {', '.join(f'{name} {size}' for name, size in sorted(shape.items()))}"
    words += f" {preset}" if preset else ""
    return hashlib.sha256(words.encode()).hexdigest()[:10]


def is_fitted(device_kind: str, operator: str, dtype: str, shape: Mapping[str, int], preset: str | None = None) -> bool:
    """Whether a constant of a GPU was fitted on this shape: its score says nothing."""
    names = {fitted_name(operator, dtype, shape, one) for one in (None, preset)}
    return device_kind == "gpu" and not names.isdisjoint(_fitted())
