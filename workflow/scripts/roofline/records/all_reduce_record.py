"""All-reduces between two GPUs: their prediction, and what was measured of them."""

from typing import Literal

from pydantic import Field

from roofline.records.bandwidth_record import Peer
from roofline.records.base import AtLeastOne, Mhz, NotNegative, Positive, Rate, Record, Seconds
from roofline.records.operator_record import JobRecord
from roofline.records.seal_records import Seal
from roofline.records.timing_record import DeviceState, Timing

AllReduceImplementation = Literal["ours", "nccl_graph", "nccl_eager"]


class PredictedAllReduce(Record):
    """The predicted time of an all-reduce of a size."""

    size_bytes: AtLeastOne
    time_s: Positive


class AllReducePredictionRecord(Seal):
    """results/{device}/all_reduce_{peer}/prediction.json: what the record of the link predicts."""

    kind: Literal["all_reduce_prediction"] = "all_reduce_prediction"
    peer: str
    link_record: str = Field(description="path in results/ of the record that latency and rate are from")
    link_sha256: str = Field(description="of that record")
    start_s: Seconds = Field(description="of a kernel in a graph")
    start_source: str
    latency_s: Positive | None = Field(description="of a load from the peer; null if the link was not measured")
    both_ways_gb_per_s: Rate | None = Field(description="of writes, both directions at once")
    sizes: list[PredictedAllReduce]


class AllReduceTrial(Record):
    """A kernel and a grid that were tried."""

    kernel: Literal["one_shot", "two_shot"]
    blocks: AtLeastOne
    threads: AtLeastOne
    time_s: Positive


class TimedAllReduce(Record):
    """All-reduces of one size by one implementation; a sample is the mean of those of a replay, or of a block."""

    implementation: AllReduceImplementation
    size_bytes: AtLeastOne
    launches: AtLeastOne = Field(description="all-reduces of a sample")
    trials: list[AllReduceTrial] = Field(default=[], description="of ours, the fastest first")
    timing: Timing
    states: list[DeviceState] = Field(default=[])
    largest_relative_error: NotNegative | None = Field(
        default=None, description="of all sums, before and after the timing, from those in fp64; null if not compared"
    )
    checked_against: str | None = None


class AfterProduct(Record):
    """All-reduces that each follow a product of matrices, in one graph."""

    product: str
    size_bytes: AtLeastOne
    product_time_s: Positive = Field(description="of the product alone")
    together_time_s: Positive
    entry_skew_s: NotNegative | None = Field(
        description="by which one card begins later than the other, the median; null without the clock"
    )
    sm_clock_mhz: Mhz | None = Field(description="by which cycles of waiting become seconds")


class AllReduceRecord(JobRecord):
    """results/{device}/bandwidth/all_reduce_{peer}.json: all-reduces of bf16 between a GPU and another."""

    kind: Literal["all_reduce"] = "all_reduce"
    name: str = Field(description="of the job: all_reduce_gpu1")
    peer: Peer
    skipped_reason: str | None = Field(default=None, description="why nothing could be measured")
    nccl_version: str | None = None
    nccl_skipped_reason: str | None = Field(default=None, description="why NCCL was not timed")
    all_reduces: list[TimedAllReduce] = Field(default=[])
    after_product: AfterProduct | None = None
