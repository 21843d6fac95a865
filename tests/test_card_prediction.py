"""Predictions by a card's name alone, on a machine without it."""

import json

import pytest
from workflow_run import CHECKOUT

from roofline.api import predict_cell
from roofline.core.terms import UserError
from roofline.devices.gpu.datasheet_gpu import DatasheetGpu
from roofline.devices.gpu.gpu_device import PROPERTIES
from roofline.operators.registry import builtin_operators
from roofline.run.archive import unpacked

SHAPES = {
    "decode_attention": {"batch": 64, "seq_len": 1024, "heads": 32, "kv_heads": 8, "head_size": 128},
    "gemm": {"m": 256, "n": 4096, "k": 8192},
    "rmsnorm_matmul": {"batch": 8, "hidden": 4096},
    "row_norm": {"rows": 4096, "columns": 512},
}
DTYPES = {"row_norm": "fp32", "decode_attention": "fp16"}
HEADS = {"batch": 1, "seq_len": 64, "heads": 8, "head_size": 64}
ATTENTION_WITHOUT_HEADS = {"operator": "decode_attention", "implementation": "fused", "dtype": "fp16", "shape": HEADS}
CELLS = [(one.name, way.name) for one in builtin_operators() for way in one.implementations_on("gpu")]


@pytest.mark.parametrize(("operator", "implementation"), CELLS)
def test_every_implementation_is_predicted(operator, implementation):
    found = predict_cell(operator, implementation, SHAPES[operator], DTYPES.get(operator, "bf16"), "NVIDIA H200")
    assert 0 < found.gpu_time_s <= found.cpu_time_s
    assert found.regime in ("compute", "memory", "overhead", "implementation")


@pytest.mark.parametrize("archive", ["nvidia-h200", "nvidia-h100-80gb-hbm3"])
def test_a_card_by_its_name_is_what_its_driver_reports(archive):
    with unpacked(CHECKOUT / "reference" / archive) as root:
        table = json.loads((root / "results/roofline.json").read_text(encoding="utf-8"))
    (record,) = [device for device in table["devices"].values() if device["device_kind"] == "gpu"]
    device = DatasheetGpu(record["name"])
    reported = {name: record["hardware"][key] for key, name in PROPERTIES.items() if name in device.properties}
    assert device.properties == reported


def test_parts_of_k_that_fill_a_card_are_rounded_to_no_more():
    shape = {"m": 256, "n": 1152, "k": 14128}  # 18 tiles with 6 parts of k each, on 108 multiprocessors
    assert predict_cell("gemm", "cuBLASLt", shape, "bf16", "NVIDIA A100-SXM4-80GB").gpu_time_s > 0


def test_a_dtype_with_block_scales_is_promised_the_rate_of_its_numbers():
    product = "gemm", "cuBLASLt", dict.fromkeys("mnk", 4096)
    plain, scaled = (predict_cell(*product, dtype, "NVIDIA H200") for dtype in ("fp8_e4m3", "fp8_block"))
    assert scaled.regime == "compute" and scaled.gpu_time_s == pytest.approx(plain.gpu_time_s, rel=1e-3)
    with pytest.raises(UserError):
        predict_cell(*product, "fp8_block", "NVIDIA L40S")


def test_weights_that_stay_in_the_cache_are_not_read_from_memory():
    cell = "gemm", "cuBLASLt_graph", {"m": 8, "n": 2048, "k": 2048}, "bf16", "NVIDIA H200"
    cold, warm, rotated = (predict_cell(*cell, copies=copies).gpu_time_s for copies in (None, 1, 40))
    assert warm < rotated <= cold


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"operator": "gemv"}, "gemm"),
        ({"implementation": "cublas"}, "cuBLASLt"),
        ({"dtype": "fp17"}, "bf16"),
        ({"operator": "row_norm", "implementation": "welford", "shape": SHAPES["row_norm"]}, "allowed: fp32$"),
        ({"card": "H100"}, "NVIDIA H100 80GB HBM3"),
        ({"card": "NVIDIA A10", "dtype": "fp8_e4m3"}, "8.9"),
        ({"shape": {"m": 1}}, "'k'"),
        ({"shape": {"m": "8", "n": 8, "k": 8}}, "m '8'"),
        (ATTENTION_WITHOUT_HEADS, "kv_heads"),
        ({"shape": {"m": 0, "n": 16, "k": 16}}, "m 0"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(changed, named):
    asked = {"operator": "gemm", "implementation": "cuBLASLt", "shape": SHAPES["gemm"], "dtype": "bf16"}
    with pytest.raises(UserError, match=named) as refused:
        predict_cell(**asked | {"card": "NVIDIA H200"} | changed)
    assert len(refused.value.lines) == 1
