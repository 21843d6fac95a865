"""What the sealed model has to beat: the promised roof and one start-up time for each kind of implementation."""

from roofline.core.prediction import Costs, predict_cell
from roofline.records.prediction import CellPrediction, CostTerms

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


def baseline(
    flops: float, traffic_bytes: float, rates: tuple[float | None, float | None], terms: CostTerms
) -> CellPrediction:
    """By the promised rates, in TFLOPS and GB/s, and the start-up time of its kind."""
    tflops, gb_per_s = rates
    found = predict_cell(
        flops=flops,
        traffic_bytes=traffic_bytes,
        peak_tflops=tflops,
        bandwidth_gb_per_s=gb_per_s,
        costs=Costs(call_s=START_S[kind_of(terms)], start_s=None),
    )
    return CellPrediction(**found._asdict())
