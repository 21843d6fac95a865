"""The names of counters, compared with the list in the library of NVIDIA (from ncu-report) for each architecture."""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_size_t, c_uint8, c_void_p
from pathlib import Path

import ncu_report
from hypothesis import given
from hypothesis import strategies as st

from roofline.devices.gpu import counter_names

CHIPS = {(7, 0): "GV100", (7, 5): "TU102", (8, 0): "GA100", (8, 6): "GA102", (8, 9): "AD102", (9, 0): "GH100"}
CHIPS |= {(10, 0): "GB100", (10, 3): "GB110", (12, 0): "GB202"}
HEAD = [("size", c_size_t), ("private", c_void_p)]


class Initialize(Structure):
    _fields_ = HEAD


class Scratch(Structure):
    _fields_ = [*HEAD, ("chip", c_char_p), ("availability", c_void_p), ("bytes", c_size_t)]


class Evaluator(Structure):
    _fields_ = [*HEAD, ("scratch", c_void_p), ("bytes", c_size_t), ("chip", c_char_p), ("availability", c_void_p)]
    _fields_ += [("data", c_void_p), ("data_bytes", c_size_t), ("evaluator", c_void_p)]


class Names(Structure):
    _fields_ = [*HEAD, ("evaluator", c_void_p), ("kind", c_uint8), ("names", c_void_p)]
    _fields_ += [("places", POINTER(c_size_t)), ("count", c_size_t)]


def known(chip: str) -> set[str]:
    """Every counter of a chip, by NVIDIA's metrics evaluator, which needs no GPU."""
    library = ctypes.CDLL(str(Path(ncu_report.__file__).parent / "libnvperf_host.so"))

    def call(name: str, structure: Structure, **values):
        for field, value in values.items():
            setattr(structure, field, value)
        last = getattr(type(structure), structure._fields_[-1][0])
        structure.size = last.offset + last.size
        assert getattr(library, f"NVPW_{name}")(byref(structure)) == 0, name
        return structure

    call("InitializeHost", Initialize())
    needed = call("CUDA_MetricsEvaluator_CalculateScratchBufferSize", Scratch(), chip=chip.encode()).bytes
    memory = ctypes.create_string_buffer(needed)
    address = ctypes.cast(memory, c_void_p)
    made = call("CUDA_MetricsEvaluator_Initialize", Evaluator(), scratch=address, bytes=needed, chip=chip.encode())
    listed = call("MetricsEvaluator_GetMetricNames", Names(), evaluator=made.evaluator, kind=0)
    return {ctypes.string_at(listed.names + listed.places[place]).decode() for place in range(listed.count)}


def test_every_architecture_has_the_requested_counters():
    for capability, chip in CHIPS.items():
        requested = {name.split(".")[0] for name in counter_names.all_metrics(capability)}
        assert requested <= known(chip), chip
        fields = {"dram_read_bytes", "warp_instructions", "tensor_pipe_active_fraction"}
        assert fields <= set(counter_names.metric_by_field(capability))
    # Volta does not count instructions by kind.
    assert "smsp__sass_thread_inst_executed_op_ffma_pred_on" not in known("GV100")
    assert "flops.fp32" in counter_names.counted_fields({}, (7, 0))[1]


@given(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), st.floats(0, 1))
def test_a_multiply_add_is_two_flops(counts, share):
    names = [f"smsp__sass_thread_inst_executed_op_f{what}_pred_on.sum" for what in ("add", "mul", "fma")]
    values = dict(zip(names, counts, strict=True))
    values |= {"dram__bytes_read.sum": 32.0, "sm__warps_active.avg.pct_of_peak_sustained_active": share}
    found, unknown = counter_names.counted_fields(values, (9, 0))
    assert found["counted_flops_by_pipe"] == {"fp32": counts[0] + counts[1] + 2 * counts[2]}
    assert (found["dram_read_bytes"], found["achieved_occupancy_fraction"]) == (32, share)
    assert "sm_write_sectors" in unknown and "dram_read_bytes" not in unknown
