"""A trace's operators under measured ceilings: a row per operator and shape, a section per GPU."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

import placing
from collectives import PAIR_ALL_REDUCE, Link, find_link
from trace_calls import CallLabel, label_events
from trace_events import Event, Trace
from trace_steps import LOST, TraceSteps, find_step, overlap_s

from roofline.api import Run, UserError, group_by

UNNAMED_CARD = "a GPU without a name"
START_S = 2.5e-6  # of each kernel of a call: half of the time of a kernel of 5 us
PARTLY = 0.05  # overlapped: less is a kernel that starts as the one before it ends
WITHOUT_BLOCKS = {"fp8_block": "fp8_e4m3"}  # the ceiling if the other was not measured
SHORTEST_GAP_S = 1e-8  # with a row
LONGEST_KERNEL_NAME = 60  # characters, without an operator


class RowEvent(NamedTuple):
    """An event of the step, in a row with the others of its label."""

    label: CallLabel
    is_call: bool
    seconds: float
    overlap_s: float  # in which another ran too


@dataclass(frozen=True, kw_only=True)
class TracedOperation(placing.Placed):
    """The calls of an operator with one shape. Its launches are calls; a call may launch several kernels."""

    label: CallLabel
    overlapped: float  # share of its time in which another kernel ran too


@dataclass(frozen=True)
class Section:
    """One GPU of a trace: its step; operators and gaps by what they would save, or by their time."""

    report: str
    device: str
    card: str
    rank: str  # of the process, in a file of several
    gpu: int
    step: TraceSteps
    roofs_s: float  # the step at the roofs, without gaps; an operator without a roof counts as it is
    unsized_s: float  # exposed, of collectives without a roof, which do not count
    mfu: float  # products at the ceilings of their dtypes, over the step
    kernels: list[TracedOperation]

    @property
    def title(self) -> str:
        """The rank, if the file holds several, and the GPU."""
        return f"{self.rank} GPU {self.gpu}".strip()


def place_trace(traces: Sequence[Trace], run: Run, others: Sequence[Trace] = ()) -> list[Section]:
    """Return a section for each GPU of each rank of a trace.

    Kernels of CUDA graphs have the shapes that the same kernels have in `others`, if the trace lacks them. Raises
    UserError for a card that the run did not measure, and for a step_s that cannot be the time of a step.
    """
    sections = []
    for trace in traces:
        events = group_by(trace.gpu, lambda event: event.args.get("device", 0))
        sections += [_place_gpu(trace, gpu, events[gpu], run, others) for gpu in sorted(events)]
    return sections


class CardRoofs(NamedTuple):
    """What the roofs of a card follow from."""

    ceilings: placing.Ceilings
    l2_bytes: int
    link: Link | None


def _place_gpu(trace: Trace, gpu: int, events: Iterable[Event], run: Run, others: Sequence[Trace]) -> Section:
    name = trace.cards.get(gpu) or next(iter(trace.cards.values()), "") or UNNAMED_CARD
    device, ceilings = placing.find_ceilings(trace.path, name, run)
    card = CardRoofs(ceilings, run.devices[device].hardware.get("l2_bytes") or 0, find_link(run, device))
    events = sorted(events, key=lambda event: event[:2])
    step = find_step(trace, events)
    computing_s = step.busy_s - step.exposed_s  # a collective may wait for another GPU under the profiler alone
    if step.name and trace.step_s and not computing_s / 2 < trace.step_s < 2 * step.profiled_s:
        raise UserError(f"{trace.path}: step_s is {trace.step_s:g} s; its steps take {step.profiled_s:.3g} s")
    labels, overlaps = label_events(trace, events, others), overlap_s([events[place] for place in step.places])
    row_events = [
        RowEvent(*labels[place], (events[place].end - events[place].start) / 1e6, overlap)
        for place, overlap in zip(step.places, overlaps, strict=True)
    ]
    whole_s = max(step.seconds, step.busy_s)
    groups = group_by(row_events, lambda event: event.label).values()
    operations = [_operation(group, card, whole_s) for group in groups]
    savings_s = fsum(operation.saving_s[0] for operation in operations if operation.saving_s)
    unsized = [row for row in operations if row.label.kind == "collective" and not row.saving_s]
    unsized_s = fsum(row.total_s * (1 - row.overlapped) for row in unsized)
    idle = [_idle(kind, seconds, whole_s) for kind, seconds in step.gaps.items() if seconds > SHORTEST_GAP_S]
    rows = sorted([*operations, *idle], key=lambda row: -(row.saving_s[0] if row.saving_s else row.total_s))
    roofs_s, mfu = max(0.0, step.busy_s - savings_s - unsized_s), _products_s(operations) / step.seconds
    return Section(trace.path, device, name, trace.rank, gpu, step, roofs_s, unsized_s, mfu, rows)


def _products_s(operations: Iterable[TracedOperation]) -> float:
    """Return the seconds that matrix products, attentions and convolutions would take at their compute ceilings."""
    products = [operation for operation in operations if operation.label.work and operation.label.work.product]
    shares = [(operation.total_s, operation.roof_at("compute")) for operation in products]
    return fsum(total_s * min(1.0, roof.share) for total_s, roof in shares if roof and roof.share)


def _idle(kind: str, seconds: float, step_s: float) -> TracedOperation:
    """Return the row of the gaps of one kind, which would take no time at the roof."""
    fields = placing.rate_launches(1, seconds, step_s, flops=None, roofs=[])
    saving_s = () if kind == LOST else (seconds,)
    fields |= {"name": "idle", "signature": f"idle: {kind}", "regime": "idle", "saving_s": saving_s}
    return TracedOperation(label=CallLabel(kind, kind="idle"), overlapped=0.0, **fields)


def _operation(events: Sequence[RowEvent], card: CardRoofs, step_s: float) -> TracedOperation:
    """Return the row of the events with one label."""
    label = events[0].label
    work = label.work
    total_s, calls = fsum(event.seconds for event in events), max(1, sum(event.is_call for event in events))
    overlapped = min(1.0, fsum(event.overlap_s for event in events) / total_s) if total_s else 0.0
    model = placing.RoofModel(card.ceilings, total_s / calls)
    roofs = list(list_roofs(label, model, card)) if work and total_s else []
    fields = placing.rate_launches(calls, total_s, step_s, work and work.flops, roofs)
    fields |= placing.find_limit(total_s / calls, roofs, START_S * len(events) / calls, complete=bool(roofs))
    savings_s = [max(0.0, total_s - calls * bound_s) * (1 - overlapped) for bound_s in _bounds_s(roofs)]
    fields |= {"least_bytes": work and work.moved_bytes, "saving_s": tuple(savings_s)}
    signature = _signature(label, overlapped)
    return TracedOperation(name=label.name, signature=signature, label=label, overlapped=overlapped, **fields)


def _bounds_s(roofs: Sequence[placing.LaunchRoof]) -> list[float]:
    """Return the least seconds of a call: by the compute roof and that of memory, then that of the L2 if it has one.

    There are none if a ceiling was not measured.
    """
    if not all(roof.ceiling for roof in roofs):
        return []
    compute_s = max((roof.least_s for roof in roofs if roof.level == "compute"), default=0.0)
    return [max(compute_s, roof.least_s) for roof in roofs if roof.level != "compute"]


def _signature(label: CallLabel, overlapped: float) -> str:
    """Return name and shape of a row; * marks an inferred shape, + that other kernels ran too."""
    name = label.name.replace("(anonymous namespace)::", "").replace("void ", "")
    if label.kind != "copy":
        name = name.partition("(")[0].strip()
        name = name if label.work else name[:LONGEST_KERNEL_NAME]
    inferred_mark, overlap_mark = "*" if label.inferred else "", "+" if overlapped > PARTLY else ""
    return f"{name}{inferred_mark}{overlap_mark} {label.shape}"


def list_roofs(label: CallLabel, model: placing.RoofModel, card: CardRoofs) -> Iterable[placing.LaunchRoof]:
    """Yield the roofs of a call: compute, memory, L2.

    Bytes that fit in the L2 are under its roof too: they may have been there already.
    """
    work = label.work
    if work.flops:
        roof = model.roof_of_flops(work.flops, work.dtype)
        yield roof if roof.ceiling else model.roof_of_flops(work.flops, WITHOUT_BLOCKS.get(work.dtype, work.dtype))
    if label.kind == "collective":
        if card.link:
            yield model.roof_of_link(work.moved_bytes, card.link, label.family == PAIR_ALL_REDUCE)
        return
    if label.kind == "copy":
        yield model.roof_of_bytes("memory", work.moved_bytes, [_copy_ceiling(label.name)])
        return
    yield model.roof_of_bytes("memory", work.moved_bytes, placing.memory_ceilings(work.read_bytes, work.write_bytes))
    l2_roof = model.roof_of_bytes("l2", work.moved_bytes, ["l2"])
    if work.moved_bytes < card.l2_bytes and l2_roof.ceiling:
        yield l2_roof


def _copy_ceiling(name: str) -> str:
    """Return the ceiling of a copy between host and device, by the name of its event."""
    direction = "h2d" if "HtoD" in name else "d2h"
    return f"{direction}_pageable" if "Pageable" in name else direction
