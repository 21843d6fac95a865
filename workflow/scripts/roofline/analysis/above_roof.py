"""No operator may lie above the roof that was declared for it: those that do, with what is wrong and the evidence."""

from collections.abc import Iterable

from roofline.analysis.table import AboveRoof, ComputeCeiling, MemoryCeiling, Operator
from roofline.core.formatting import number, traffic

ROUNDING = 1e-9
# Too few samples for an interval place a median within 5 % at best; the user's own figure is taken at its word.
WITHOUT_INTERVAL = 1.05


def above_roofs(operators: Iterable[Operator], ceilings: Iterable[ComputeCeiling | MemoryCeiling]) -> list[AboveRoof]:
    """An entry for every ceiling that an operator exceeds even at the slow end of its interval.

    Both of an operator's latencies count, the caller's and the device's alone: the faster is held against the compute
    and the memory ceiling that the operator names. Ceilings that were not measured forbid nothing.
    """
    of_device = {(one.device, one.name): one for one in ceilings}
    return [entry for operator in operators for entry in _above(operator, of_device)]


def _above(operator: Operator, ceilings: dict) -> list[AboveRoof]:
    slow_end, seconds, whose = _fastest(operator)
    if not seconds:
        return []
    compute = ceilings.get((operator.device, operator.compute_ceiling))
    memory = ceilings.get((operator.device, operator.memory_ceiling))
    tflops, gb_per_s = operator.flops / seconds / 1e12, operator.bytes / seconds / 1e9
    of_peak = tflops / compute.tflops if compute else 0.0
    of_slope = gb_per_s / memory.gb_per_s if memory else 0.0
    users_own = operator.operator == "operation"
    unsure = operator.latency_ci95_s is None and not users_own
    allowed = (WITHOUT_INTERVAL if unsure else 1 + ROUNDING) * slow_end / seconds
    found = []
    if of_peak > allowed:
        words = f"{number(tflops)} TFLOPS {whose}: {_times(of_peak, compute.name, compute.tflops, 'TFLOPS')}"
        found.append((compute.name, words))
    if of_slope > allowed:
        moved = f"{traffic(operator.bytes)} at {number(gb_per_s)} GB/s {whose}"
        found.append((memory.name, f"{moved}: {_times(of_slope, memory.name, memory.gb_per_s, 'GB/s')}"))
    return [
        AboveRoof(
            device=operator.device,
            operator=operator.full_name,
            record=operator.record,
            fraction_of_roof=max(of_peak, of_slope),
            users_own=users_own,
            wrong_roof=name,
            evidence=words,
        )
        for name, words in found
    ]


def _fastest(operator: Operator) -> tuple[float | None, float | None, str]:
    """The operator's latency whose interval ends sooner: that slow end and the median in seconds, and whose it is."""
    slow_ends = [
        (interval[1] if interval else latency, latency, whose)
        for latency, interval, whose in (
            (operator.latency_s, operator.latency_ci95_s, "in the caller's time"),
            (operator.device_latency_s, operator.device_latency_ci95_s, "in the device's own time"),
        )
        if latency
    ]
    return min(slow_ends, default=(None, None, ""))


def _times(fraction: float, name: str, value: float, unit: str) -> str:
    return f"{fraction:.5g} times the {number(value)} {unit} of {name}"
