"""Rows of all-reduces: ours next to NCCL's, the bound of the link and the sealed prediction."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from roofline.core.all_reduce_model import bound_time_s
from roofline.core.grouping import group_by
from roofline.core.repeatability import Doubt, find_doubt
from roofline.records.all_reduce_record import (
    AllReducePredictionRecord,
    AllReduceRecord,
    TimedAllReduce,
)
from roofline.records.base import copy_fields
from roofline.table.ceiling_rows import is_record_disturbed
from roofline.table.rows import AllReduceRow, AllReduceSize, MemoryCeiling
from roofline.table.run_records import Results


def all_reduce_rows(results: Results, memory: Sequence[MemoryCeiling]) -> Iterator[AllReduceRow]:
    """Yield a row for each pair of GPUs whose all-reduces were measured; `memory` has the ceilings of all devices."""
    for path, record in results.of_kind(AllReduceRecord):
        if record.skipped_reason:
            continue
        of_link = [row for row in memory if (row.device, row.peer) == (record.device, record.peer.peer)]
        rates = [row.gb_per_s / 2 for row in of_link if row.both_ways and not row.doubt]
        seals = results.seals_of(record.device, AllReducePredictionRecord).values()
        seal = next((seal for seal in seals if seal.peer == record.peer.peer), None)
        sizes = list(_sizes(record, seal, max(rates, default=None)))
        errors = [abs(row.sealed_time_error) for row in sizes if row.sealed_time_error is not None and not row.doubt]
        yield AllReduceRow(
            **copy_fields(record, "device", "nccl_version", "nccl_skipped_reason"),
            after_product=record.after_product if _is_quiet(record) else None,
            peer=record.peer.peer,
            sizes=sizes,
            median_sealed_error=median(errors) if errors else None,
            record=path,
        )


def _sizes(
    record: AllReduceRecord, seal: AllReducePredictionRecord | None, link_gb_per_s: float | None
) -> Iterator[AllReduceSize]:
    sealed_s = {prediction.size_bytes: prediction.time_s for prediction in seal.sizes} if seal else {}
    latency_s = (seal and seal.latency_s) or 0.0
    by_implementation = group_by(record.all_reduces, lambda timed: timed.implementation)
    in_graphs_s = _undoubted_s(record, by_implementation.get("nccl_graph", []))
    eager_s = _undoubted_s(record, by_implementation.get("nccl_eager", [])) if _is_quiet(record) else {}
    for ours in by_implementation.get("ours", []):
        size, time_s, predicted_s = ours.size_bytes, ours.timing.median_s, sealed_s.get(ours.size_bytes)
        bound_s = bound_time_s(size, link_gb_per_s, latency_s=latency_s) if link_gb_per_s else None
        yield AllReduceSize(
            size_bytes=size,
            **copy_fields(ours.trials[0], "kernel", "blocks", "threads"),
            time_s=time_s,
            time_ci95_s=ours.timing.ci95_s,
            sample_count=len(ours.timing.samples_s),
            gb_per_s=size / time_s / 1e9,
            bound_time_s=bound_s,
            fraction_of_bound=bound_s and bound_s / time_s,
            sealed_time_s=predicted_s,
            sealed_time_error=predicted_s and predicted_s / time_s - 1,
            nccl_graph_time_s=in_graphs_s.get(size),
            nccl_eager_time_s=eager_s.get(size),
            largest_relative_error=ours.largest_relative_error,
            doubt=_find_doubt(record, ours),
        )


def _undoubted_s(record: AllReduceRecord, timed: Iterable[TimedAllReduce]) -> dict[int, float]:
    """The times in seconds that may be relied on, by size."""
    return {one.size_bytes: one.timing.median_s for one in timed if not _find_doubt(record, one)}


def _find_doubt(record: AllReduceRecord, timed: TimedAllReduce) -> Doubt | None:
    return find_doubt(
        kind="gpu",
        samples=len(timed.timing.samples_s),
        disturbed=is_record_disturbed(record, timed.timing.contention, timed.states, "gpu"),
        throttled=timed.timing.all_throttled,
    )


def _is_quiet(record: AllReduceRecord) -> bool:
    """Return whether nothing disturbed any all-reduce of a record. Eager ones and those after a product count only
    then: other load is not read next to them."""
    return not any(_find_doubt(record, timed) for timed in record.all_reduces)
