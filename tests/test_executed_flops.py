"""What our kernels execute by their own formulas, against the machine code that they compile to."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import nvidia
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kernels import compiled

from roofline.devices.gpu.kernel_compiler import kernel_source
from roofline.operators.base import Case
from roofline.operators.decode_attention import fused as attention
from roofline.operators.decode_attention.counts import Shape, flops
from roofline.operators.gemm.operator import Gemm, TensorMatmul
from roofline.operators.row_norm import cuda as row_norm
from roofline.operators.row_norm.operator import RowNorm

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\d+\s+)?(?P<name>FADD|FMUL|FFMA)\b")
LABEL = re.compile(r"^(\.L_x_\d+):")
H200 = SimpleNamespace(multiprocessors=132, is_hopper=True)


def flops_of_code(source: Path, kernel: str, defines: tuple[str, ...], tmp_path: Path) -> int:
    """FLOPs of a thread that goes once through all of a kernel's code up to its first exit, of sm_90a; what is only
    done under a condition is left out."""
    code, _ = compiled(kernel_source(source), source.name, "90a", defines)
    file = tmp_path / "code.cubin"
    file.write_bytes(code)
    program = next(path for root in nvidia.__path__ for path in Path(root).glob("*/bin/nvdisasm"))
    text = subprocess.run([program, "-c", file], capture_output=True, text=True, check=True).stdout
    text = text.partition(f".text.{kernel}:")[2]
    counted = 0
    for line in text.splitlines():
        if found := INSTRUCTION.match(line):
            counted += 0 if found["guard"] else 2 if found["name"] == "FFMA" else 1
        if " EXIT ;" in line and "@" not in line:
            return counted
    raise AssertionError("no exit")


@pytest.mark.parametrize("shape", [(1024, 128), (4096, 256), (8192, 512), (16384, 1024)], ids="{0[0]}x{0[1]}".format)
def test_welfords_formula_is_what_its_straight_code_executes(shape, tmp_path):
    rows, columns = shape
    case = Case({"rows": rows, "columns": columns}, "fp32")
    division = row_norm.divide(rows, columns, H200.multiprocessors)
    cell = row_norm.Welford(RowNorm(), H200, case, {}, [])
    per_thread = flops_of_code(row_norm.KERNEL, "row_norm", division.defines(), tmp_path)
    threads = division.blocks * division.rows * division.threads
    assert cell.executed_flops(None).flops["fp32"] == pytest.approx(threads * per_thread, rel=0.02)


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.booleans())
def test_a_products_tiles_cover_it_and_no_more_than_one_tile_beyond(m, n, k, is_hopper):
    case = Case({"m": m, "n": n, "k": k}, "fp16")
    workload = SimpleNamespace(product=SimpleNamespace(library="tensor_matmul"))
    cell = TensorMatmul(Gemm(), SimpleNamespace(is_hopper=is_hopper, multiprocessors=132), case, workload)
    executed, _ = cell.executed_flops(None)
    assert 2 * m * n * k <= executed["tensor"] < 2 * (m + 256) * (n + 256) * (k + 64)


def test_a_whole_products_tiles_are_the_declared_flops():
    case = Case(dict.fromkeys(("m", "n", "k"), 4096), "fp16")
    workload = SimpleNamespace(product=SimpleNamespace(library="tensor_matmul"))
    assert TensorMatmul(Gemm(), H200, case, workload).executed_flops(None).flops == {"tensor": 2.0 * 4096**3}


def executed(shape: Shape, dtype: str) -> dict[str, float]:
    return attention.executed_flops(shape, dtype, attention.plan(shape, dtype, (9, 0), 132, 233472)).flops


@pytest.mark.parametrize(("dtype", "of_turn", "tile"), [("fp16", 278, 32), ("fp32", 147, 16)])
def test_attention_of_whole_tiles_is_each_lanes_turns_and_what_joins_them(dtype, of_turn, tile):
    """Instructions of a turn as sm_90a has them: FADD and FMUL once, FFMA twice; parts are joined for each place."""
    shape = Shape(256, 8, 8, 64, 1024)
    turns = 2048 * 1024 / tile * 32 * of_turn
    joined = 2048 * (64 * (1 + 6 * 16 + 10) + 3 * 128)
    assert executed(shape, dtype) == {"fp32": turns + joined}


@given(
    st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 16, 256]), st.integers(1, 5000), st.sampled_from([64, 128])
)
def test_attention_executes_no_less_than_is_declared(group, batch, seq_len, size):
    shape = Shape(batch, 8 * group, 8, size, seq_len)
    for dtype in ("fp16", "fp32"):
        assert sum(executed(shape, dtype).values()) >= flops(shape, "core")
