"""What Nsight Compute calls the counters, by architecture.

Names of metrics by the fields of records/counters_record.py. A name that differs from the usual one is listed under the
compute capability from which it is used; tests compare all of them with the list of NVIDIA's own library for each
architecture.
"""

from collections.abc import Mapping

from roofline.core.architectures import architecture_of
from roofline.core.dtypes import DTYPES, PRODUCT_DTYPES

PIPES = {name: dtype.pipe for name, dtype in DTYPES.items() if dtype.pipe}
FLOPS_PER_OPERATION = {"add": 1, "mul": 1, "fma": 2}  # FLOPs of an instruction of a thread
# Dtypes of operators, whose operations on tensor cores are counted.
TENSOR_DTYPES = [name for name in PRODUCT_DTYPES if DTYPES[name].is_float and 8 < DTYPES[name].bits < 64]
TENSOR_METRIC_PREFIX = "sm__ops_path_tensor_src_"

DURATION_METRIC = "gpu__time_duration.sum"

SUM_METRICS = {
    "dram_read_bytes": "dram__bytes_read",
    "l2_read_sectors": "lts__t_sectors_op_read",
    "l2_write_sectors": "lts__t_sectors_op_write",
    "sm_write_sectors": "lts__t_sectors_srcunit_tex_op_write",
    "l2_read_hit_sectors": "lts__t_sectors_op_read_lookup_hit",
    "l2_read_miss_sectors": "lts__t_sectors_op_read_lookup_miss",
    "l1_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld",
    "l1_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld",
    "l1_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",
    "warp_instructions": "smsp__inst_executed",
    "predicated_on_thread_instructions": "smsp__thread_inst_executed_pred_on",
}
SHARE_METRICS = {
    "tensor_pipe_active_fraction": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "achieved_occupancy_fraction": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
# Metrics that replace those above, from a compute capability on.
METRICS_SINCE = {
    (8, 9): {"tensor_pipe_active_fraction": "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_active"},
    (9, 0): {"tensor_pipe_active_fraction": SHARE_METRICS["tensor_pipe_active_fraction"]},
    (10, 0): {"tensor_pipe_active_fraction": "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active"},
    (12, 0): {
        "dram_read_bytes": "dram__bytes_op_read.sum",
        "tensor_pipe_active_fraction": SHARE_METRICS["tensor_pipe_active_fraction"],
    },
}


def metric_by_field(capability: tuple[int, int]) -> dict[str, str]:
    """Return the metric of each field."""
    metrics = {field: f"{name}.sum" for field, name in SUM_METRICS.items()} | SHARE_METRICS
    for since, overrides in METRICS_SINCE.items():
        if capability >= since:
            metrics |= overrides
    return metrics


def pipe_metrics(pipe: str) -> dict[str, int]:
    """Return the FLOPs per counted instruction of each metric of a CUDA-core pipe, by the metric's name."""
    letter, numbers = PIPES[pipe], DTYPES[pipe].numbers_per_instruction
    return {
        f"smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on.sum": flops * numbers
        for operation, flops in FLOPS_PER_OPERATION.items()
    }


def flops_by_metric(capability: tuple[int, int]) -> dict[str, dict[str, int]]:
    """Return the metrics of each pipe, and the FLOPs that a count of one stands for."""
    architecture = architecture_of(capability)
    metrics_by_pipe = {pipe: pipe_metrics(pipe) for pipe in PIPES if architecture.counts_instructions}
    metrics_by_pipe["tensor"] = {
        f"{TENSOR_METRIC_PREFIX}{operand}.sum": 1
        for dtype in TENSOR_DTYPES
        for operand in architecture.operand_counters.get(dtype, ())
    }
    return metrics_by_pipe


def all_metrics(capability: tuple[int, int]) -> list[str]:
    """Return the names of every metric that ncu is to collect."""
    flop_metrics = [name for metrics in flops_by_metric(capability).values() for name in metrics]
    return [DURATION_METRIC, *metric_by_field(capability).values(), *flop_metrics]


def counted_fields(values: Mapping[str, float], capability: tuple[int, int]) -> tuple[dict, dict[str, str]]:
    """Return the fields of a counted cell from the values of metrics, and for each field without a value the reason."""
    metrics = metric_by_field(capability)
    counted = {field: values[name] for field, name in metrics.items() if name in values}
    unknown = {field: f"{name} was not counted" for field, name in metrics.items() if name not in values}
    metrics_by_pipe = flops_by_metric(capability)
    flops = {}
    for pipe, flops_of_metric in metrics_by_pipe.items():
        missing = [name for name in flops_of_metric if name not in values]
        if missing or not flops_of_metric:
            reason = ", ".join(missing) or "this architecture has no counter of it"
            unknown[f"flops.{pipe}"] = f"{reason} was not counted"
        else:
            flops[pipe] = sum(flops_per_count * values[name] for name, flops_per_count in flops_of_metric.items())
    for pipe in PIPES.keys() - metrics_by_pipe.keys():
        unknown[f"flops.{pipe}"] = "this architecture does not count instructions by kind"
    return {**counted, "counted_flops_by_pipe": flops}, unknown
