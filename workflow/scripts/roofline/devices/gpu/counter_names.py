"""What Nsight Compute calls the counters, by architecture.

Names by fields of records/counters_record.py. A name that differs from the usual one is below the compute capabilities
that it is for; tests hold all of them against the list of NVIDIA's own library for each architecture.
"""

from collections.abc import Mapping

PIPES = {"fp64": "d", "fp32": "f", "fp16": "h"}
FLOPS_PER_OPERATION = {"add": 1, "mul": 1, "fma": 2}  # FLOPs of an instruction of a thread
NUMBERS_PER_INSTRUCTION = {
    "fp16": 2
}  # numbers that an instruction takes at once, as Nsight Compute's own roofline counts them
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
# From a compute capability on.
METRICS_SINCE = {
    (8, 9): {"tensor_pipe_active_fraction": "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_active"},
    (9, 0): {"tensor_pipe_active_fraction": SHARE_METRICS["tensor_pipe_active_fraction"]},
    (10, 0): {"tensor_pipe_active_fraction": "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active"},
    (12, 0): {
        "dram_read_bytes": "dram__bytes_op_read.sum",
        "tensor_pipe_active_fraction": SHARE_METRICS["tensor_pipe_active_fraction"],
    },
}
# Operands of tensor cores that floating-point operators have, as each architecture divides them.
TENSOR_SINCE = {
    (7, 0): ("fp16_dst_fp16", "fp16_dst_fp32"),
    (7, 5): ("fp16_dst_fp16", "fp16_bf16_tf32_dst_fp32"),
    (8, 0): ("fp16_dst_fp16", "fp16_dst_fp32", "bf16_dst_fp32", "tf32_dst_fp32"),
    (9, 0): ("fp16", "bf16_dst_fp32", "tf32_dst_fp32"),
    (10, 0): ("fp16_dst_fp16", "fp16_dst_fp32", "bf16_dst_fp32", "tf32_dst_fp32"),
}
FIRST_SASS_CAPABILITY = (7, 5)  # the first compute capability whose instructions are counted by kind


def metric_by_field(capability: tuple[int, int]) -> dict[str, str]:
    """The metric of each field."""
    found = {field: f"{name}.sum" for field, name in SUM_METRICS.items()} | SHARE_METRICS
    for since, others in METRICS_SINCE.items():
        if capability >= since:
            found |= others
    return found


def flops_by_metric(capability: tuple[int, int]) -> dict[str, dict[str, int]]:
    """By pipe: metrics, and the FLOPs that each unit of them is worth."""
    pipes = PIPES if capability >= FIRST_SASS_CAPABILITY else {}
    found = {
        pipe: {
            f"smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on.sum": worth
            * NUMBERS_PER_INSTRUCTION.get(pipe, 1)
            for operation, worth in FLOPS_PER_OPERATION.items()
        }
        for pipe, letter in pipes.items()
    }
    operands = next((names for since, names in reversed(TENSOR_SINCE.items()) if capability >= since), ())
    return found | {"tensor": {f"{TENSOR_METRIC_PREFIX}{operand}.sum": 1 for operand in operands}}


def all_metrics(capability: tuple[int, int]) -> list[str]:
    """Every metric that is asked for."""
    flops = (name for pipe in flops_by_metric(capability).values() for name in pipe)
    return [DURATION_METRIC, *metric_by_field(capability).values(), *flops]


def counted_fields(values: Mapping[str, float], capability: tuple[int, int]) -> tuple[dict, dict[str, str]]:
    """The fields of a counted cell, from the values of metrics; and why others are not known."""
    found, unknown = {}, {}
    for field, name in metric_by_field(capability).items():
        if name in values:
            found[field] = values[name]
        else:
            unknown[field] = f"{name} was not counted"
    flops = {}
    for pipe, of_pipe in flops_by_metric(capability).items():
        missing = [name for name in of_pipe if name not in values]
        if missing or not of_pipe:
            unknown[f"flops.{pipe}"] = (
                f"{', '.join(missing) or 'this architecture has no counter of it'} was not counted"
            )
        else:
            flops[pipe] = sum(worth * values[name] for name, worth in of_pipe.items())
    for pipe in PIPES.keys() - flops_by_metric(capability).keys():
        unknown[f"flops.{pipe}"] = "this architecture does not count instructions by kind"
    return {**found, "counted_flops_by_pipe": flops}, unknown
