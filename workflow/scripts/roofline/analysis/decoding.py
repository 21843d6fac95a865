"""The floor of decoding a model on a card: rows of the table, from the ceilings that were measured of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from roofline.analysis.table import ComputeCeiling, DecodeContext, DecodedModel, DecodeStep, MemoryCeiling, Operator
from roofline.core.terms import DeviceKind
from roofline.devices import memory_ceilings
from roofline.models import decoding, floor
from roofline.models.architecture import Model
from roofline.models.floor import Ceilings, NoCeiling
from roofline.models.number_formats import PLAIN, NumberFormat
from roofline.records.operator import OperatorRecord

OPERATOR = "model_decode"  # whose cells are whole steps
SKIPPED = " skipped: "  # in a record's note, between an implementation and the reason


@dataclass(frozen=True)
class Card:
    """A device with its ceilings; `sustained` has those of the dtypes that were held under load, if any were."""

    name: str
    memory_bytes: int | None
    memory_ceiling: str
    burst: Ceilings
    sustained: Ceilings | None


def card(
    device: str, memory_bytes: int | None, kind: DeviceKind, ceilings: Iterable[ComputeCeiling | MemoryCeiling]
) -> Card | None:
    """None where neither reads of its memory nor products were measured."""
    mine = {one.name: one for one in ceilings if one.device == device}
    read = next((mine[name] for name in memory_ceilings(kind, "read") if name in mine), None)
    products = {name: one for name, one in mine.items() if one.kind == "compute" and one.method == "gemm"}
    if not read or not products:
        return None
    burst = {name: one.burst_tflops or one.tflops for name, one in products.items()}
    sustained = {name: one.sustained_tflops for name, one in products.items() if one.sustained_tflops}
    return Card(device, memory_bytes, read.name, Ceilings(read.gb_per_s, burst), Ceilings(read.gb_per_s, sustained))


def timed_steps(operators: Iterable[Operator], device: str) -> list[Operator]:
    """The steps of models that were timed on a device."""
    return [one for one in operators if (one.device, one.operator) == (device, OPERATOR)]


def skipped(record: OperatorRecord) -> list[str]:
    """Why steps of a job were left out."""
    return [note.partition(SKIPPED)[2] for note in record.notes if SKIPPED in note]


def decode(
    model: Model,
    on: Card,
    batch_sizes: Sequence[int],
    contexts: Sequence[int],
    cache_dtype: str,
    timed: Sequence[Operator] = (),
    further: bool = False,
) -> DecodedModel | None:
    """None where the card has no ceiling of the model's products.

    Steps that were `timed`, of this model and with as many bytes, stand beside their floor; with `further` also those
    at batches and contexts that were not asked for.
    """
    cache, routed = PLAIN[cache_dtype], any(one.copies > one.per_token for one in model.linears)
    try:
        first = decoding.step(model, 1, 1, cache)
        arithmetic = {one.arithmetic: on.burst.dtype(one.arithmetic) for one in first if one.flops}
    except NoCeiling:
        return None
    asked = [(batch, context) for context in contexts for batch in batch_sizes]
    mine = {(one.shape["batch"], one.shape["context"]): one for one in timed if one.preset == model.name}
    steps = [_step(model, on, *size, cache, routed, mine.get(size)) for size in asked]
    if further:
        others = (_step(model, on, *size, cache, routed, one) for size, one in mine.items() if size not in asked)
        steps += [one for one in others if one.measured_s]
    return DecodedModel(
        device=on.name,
        model=model.name,
        source=model.source,
        model_type=model.model_type,
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        weight_bytes=model.weight_bytes,
        cache_dtype=cache_dtype,
        memory_ceiling=on.memory_ceiling,
        arithmetic=arithmetic,
        assumed=model.assumed,
        contexts=[_context(model, on, one, cache, routed) for one in dict.fromkeys(step.context for step in steps)],
        steps=steps,
    )


def _context(model: Model, on: Card, context: int, cache: NumberFormat, routed: bool) -> DecodeContext:
    fits = on.memory_bytes and floor.largest_batch(model, context, cache, on.memory_bytes)
    return DecodeContext(
        context=context,
        cache_bytes=model.cache_bytes(context, cache),
        largest_batch=fits,
        compute_bound_from=floor.compute_bound_from(model, context, cache, on.burst, expected=routed),
    )


def _step(
    model: Model, on: Card, batch: int, context: int, cache: NumberFormat, routed: bool, timed: Operator | None
) -> DecodeStep:
    operations = decoding.step(model, batch, context, cache)
    found = floor.floor(operations, on.burst)
    expected = floor.floor(decoding.step(model, batch, context, cache, expected=True), on.burst) if routed else None
    memory_bytes = model.weight_bytes + batch * model.cache_bytes(context, cache)
    read = fsum(one.times * one.bytes for one in operations)
    if timed and timed.bytes != read:  # of another model of this name, or with another cache
        timed = None
    sealed = timed and timed.predicted.sealed
    return DecodeStep(
        batch=batch,
        context=context,
        bytes=read,
        flops=fsum(one.times * one.flops for one in operations),
        floor_s=found.seconds,
        sustained_floor_s=_sustained(operations, on),
        one_by_one_s=found.one_by_one_s,
        expected_s=expected and expected.seconds,
        limited_by=found.limited_by,
        share={part: seconds / found.seconds for part, seconds in found.by_part.items()},
        memory_bytes=memory_bytes,
        fits=None if on.memory_bytes is None else memory_bytes <= on.memory_bytes,
        predicted_s=sealed and (sealed.device_latency_s or sealed.latency_s),
        measured_s=timed and (timed.device_latency_s or timed.latency_s),
    )


def _sustained(operations: Sequence[decoding.Operation], on: Card) -> float | None:
    needed = {on.burst.dtype(one.arithmetic) for one in operations if one.flops}
    known = on.sustained is not None and needed <= on.sustained.tflops.keys()
    return floor.floor(operations, on.sustained).seconds if known else None
