"""The prediction of all-reduces between two GPUs by the record of their link."""

from roofline.core.all_reduce_model import SIZES, predict_time_s
from roofline.core.terms import DeviceKind
from roofline.records.all_reduce_record import AllReducePredictionRecord, PredictedAllReduce
from roofline.records.bandwidth_record import BandwidthRecord

START_S = 1.15e-6
START_SOURCE = "all-reduces of 1 KiB to 1 MiB on two H200s, 2026-11-30, less the latency of their link"


def seal_all_reduces(
    link: BandwidthRecord, link_path: str, link_sha256: str, device_kind: DeviceKind, sealed_at: str
) -> AllReducePredictionRecord:
    """Return the seal of all sizes; it has none if the link was not measured."""
    assert link.peer is not None, "it is of a link between two cards"
    latency_s, gb_per_s = _read_link(link)
    times_s = predict_by_link(link, START_S)
    return AllReducePredictionRecord(
        device=link.device,
        device_kind=device_kind,
        sealed_at=sealed_at,
        peer=link.peer.peer,
        link_record=link_path,
        link_sha256=link_sha256,
        start_s=START_S,
        start_source=START_SOURCE,
        latency_s=latency_s,
        both_ways_gb_per_s=gb_per_s,
        sizes=[PredictedAllReduce(size_bytes=size, time_s=time_s) for size, time_s in times_s.items()],
    )


def predict_by_link(link: BandwidthRecord, start_s: float) -> dict[int, float]:
    """Return the seconds of an all-reduce of each size in bytes, by the record of a link; {} if it has no rate."""
    latency_s, gb_per_s = _read_link(link)
    if latency_s is None or gb_per_s is None:
        return {}
    return {size: predict_time_s(size, latency_s, gb_per_s, start_s) for size in SIZES}


def _read_link(link: BandwidthRecord) -> tuple[float | None, float | None]:
    """The latency of a load in seconds, and the GB/s of writes in both directions at once; None if not measured."""
    loads = [latency.timing.median_s for latency in link.latencies if latency.name == "load"]
    rates = [ceiling.gb_per_s for ceiling in link.bandwidths if (ceiling.mix, ceiling.both_ways) == ("write", True)]
    return next(iter(loads), None), next(iter(rates), None)
