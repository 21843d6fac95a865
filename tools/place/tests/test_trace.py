"""Traces of torch.profiler under measured ceilings: formulas, joins, steps, gaps, shares, errors."""

import gzip
import json
from dataclasses import replace
from math import fsum, prod
from pathlib import Path
from types import SimpleNamespace

import collectives
import place
import placing
import pytest
import trace_calls
import trace_events
import trace_json
import trace_page
import trace_rows
import trace_steps
from formulas.base import Call, Tensor, find_formula
from workflow_run import documented_fields

from roofline.api import UserError, open_run

CHECKOUT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).with_name("data")  # cut from traces of benchmarks/peers/traces.py, PyTorch 2.11
H100 = CHECKOUT / "reference" / "nvidia-h100-80gb-hbm3"
RUN, H200 = open_run(H100), open_run(CHECKOUT / "reference" / "nvidia-h200")
CEILINGS = {ceiling.name: ceiling for ceiling in RUN.roofline.ceilings if ceiling.device == "gpu0"}
BF16, FP32, FP8, INT8, LONG = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "signed char", "long int"
COMPLEX = "c10::complex<float>"


def tensor(*dims: int, kind: str = BF16, strides=None) -> Tensor:
    return Tensor(dims, strides or tuple(prod(dims[axis + 1 :]) for axis in range(len(dims))), kind)


class Written:
    """A trace in the making. Times are microseconds."""

    def __init__(self, cards: int = 1):
        self.head = {"deviceProperties": [{"id": gpu, "name": "NVIDIA H100 80GB HBM3"} for gpu in range(cards)]}
        self.events, self.ids = [], 0

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, **args) -> None:
        self.events.append(dict(ph="X", cat=cat, name=name, pid=1, tid=tid, ts=ts, dur=dur, args=args))

    def operator(self, name: str, at: float, *inputs: Tensor | str) -> int:
        self.ids += 1
        tensors = [argument if isinstance(argument, Tensor) else Tensor((), (), "Scalar") for argument in inputs]
        recorded = {
            "Input Dims": [tensor.dims for tensor in tensors],
            "Input Strides": [tensor.strides for tensor in tensors],
            "Input type": [tensor.type for tensor in tensors],
            "Concrete Inputs": ["" if isinstance(argument, Tensor) else argument for argument in inputs],
        }
        self.add("cpu_op", name, at, 8, **{"External id": self.ids}, **recorded)
        return self.ids

    def kernel(self, name: str, start: float, dur: float, operator=None, launch=None, kind="kernel", **args) -> None:
        """With its launch, 1 us long, unless that is another's correlation."""
        number = launch if isinstance(launch, int) else len(self.events) + 1000
        if isinstance(launch, float):
            self.add("cuda_runtime", "cudaLaunchKernel", launch, 1, correlation=number)
        ids = {"correlation": number, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [128, 1, 1]}
        ids |= {"External id": operator} if operator else {}
        self.add(kind, name, start, dur, 7, **ids | args)

    def call(self, name: str, at: float, dur: float, *inputs: Tensor | str, start=None, kernel="k", **args) -> int:
        """An operator that launches one kernel, which starts 5 us later."""
        number = self.operator(name, at, *inputs)
        self.kernel(kernel, at + 5 if start is None else start, dur, number, float(at + 1), **args)
        return number

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self.head | {"traceEvents": self.events}))
        return path


@pytest.fixture
def sections(tmp_path):
    def placed(trace: Written) -> list[trace_rows.Section]:
        return trace_rows.place_trace(trace_events.read_trace(trace.write(tmp_path / "my.json")), RUN)

    return placed


def row(section: trace_rows.Section, name: str) -> trace_rows.TracedOperation:
    (match,) = (candidate for candidate in section.kernels if candidate.name == name)
    return match


QUERY, GQA, NO = tensor(2, 256, 8, 64), tensor(2, 1024, 2, 64), [*["0"] * 5, "False"]
DECODE = [tensor(8, 32, 1, 128), *[tensor(8, 32, 1024, 128, strides=(1 << 17, 0, 128, 1))] * 2]
IMAGE, WEIGHT = tensor(2, 16, 32, 32), tensor(24, 4, 3, 3)
SQUARE = tensor(4, 64)
SCALES = tensor(256, 2, kind=FP32), tensor(2, 2, kind=FP32)
FP8_PAIR = [tensor(256, 256, kind=FP8)] * 2
TRANSPOSED, PLACES = (tensor(4, 8, 8, 8), tensor(8, 3, 4, 4)), ["[1, 1]", "[0, 0]", "[2, 2]", "[1, 1]"]
POOLED, PLACED = tensor(2, 16, 16, 16), tensor(2, 16, 16, 16, kind=LONG)
STARTS = tensor(3, kind="int")  # of two sequences
PACKED = [*[tensor(256, 16, 64)] * 3, STARTS, STARTS]
WEIGHTS = (tensor(64, 16), tensor(64, 16), tensor(64))
CACHE = [tensor(99, 16, 2, 8, kind=FP8)] * 2
PAGES = tensor(99, 16, 2, 64)  # 512 keys at most
PAGED = [tensor(2, 8, 64), PAGES, PAGES, *[None] * 4, STARTS, *[None] * 4, "1", "512", *[None] * 9, "0.1", "True"]
MARLIN = [tensor(4, 256), None, tensor(16, 1024, kind="int"), *[None] * 8, "7", "4", "512", "256"]
BLOCKWISE = [tensor(64, 32), *[tensor(3, kind=LONG)] * 5, tensor(64, 128, kind=FP8), tensor(3, 32, 128, kind=FP8)]
LISTED = [*FP8_PAIR, (replace(SCALES[0], type="TensorList"),), "[4]", "[0]", (replace(SCALES[1], type="TensorList"),)]
LISTED += ["[5]", "[0]", None, "15"]
GROUPED = [tensor(64, 32), tensor(4, 32, 16), tensor(4, kind="int"), tensor(64, 16), "8"]
ROTARY = [tensor(2, kind=LONG), tensor(2, 128), tensor(2, 64), "64", tensor(9999, 64), "True"]
EXPERTS = [tensor(3, 32), tensor(8, 16, 32), tensor(8, 32, 8), tensor(3, 2), tensor(3, 2, kind=LONG)]


@pytest.mark.parametrize(
    ("name", "inputs", "flops", "least_bytes", "dtype"),
    [
        ("mm", [tensor(128, 4096), tensor(4096, 512)], 2 * 128 * 4096 * 512, 2 * (128 * 4608 + 4096 * 512), "bf16"),
        ("mm", [tensor(4, 8), tensor(8, 2), tensor(4, 2)], 128, 2 * (32 + 16 + 8), "bf16"),  # out= is no input
        ("addmm", [tensor(8, strides=(0,)), tensor(4, 8), tensor(8, 8)], 512, 2 * (1 + 32 + 64 + 32), "bf16"),
        ("addmm", [tensor(4, 8), tensor(4, 8), tensor(8, 8), "0."], 512, 2 * (32 + 64 + 32), "bf16"),  # beta is 0
        ("bmm", [tensor(3, 4, 8, kind=FP32), tensor(3, 8, 2, kind=FP32)], 384, 4 * 3 * (32 + 16 + 8), "fp32"),
        ("_scaled_mm", [*[tensor(16, 16, kind=FP8)] * 2], 2 * 16**3, 2 * 256 + 512, "fp8_e4m3"),
        ("_int_mm", [*[tensor(16, 16, kind=INT8)] * 2], 2 * 16**3, 2 * 256 + 1024, "int8"),
        ("_flash_attention_forward", [QUERY] * 3 + ["0"] * 5 + ["True"], 2 * 16 * 256**2 * 64, 8 * 262144, "bf16"),
        ("_flash_attention_forward", [QUERY, GQA, GQA, *NO], 4 * 16 * 256 * 1024 * 64, 4 * 524288, "bf16"),
        ("_flash_attention_backward", [QUERY] * 5 + ["0", *NO], 10 * 16 * 256**2 * 64, 16 * 262144, "bf16"),
        ("_cudnn_attention_forward", [*DECODE, "0", "0", *NO], 4 * 256 * 1024 * 128, 4 * (32768 + 1048576), "bf16"),
        ("cudnn_convolution", [IMAGE, WEIGHT, "[1, 1]", "[2, 2]", "[1, 1]", "4"], 884736, 2 * 45920, "bf16"),
        ("native_layer_norm", [SQUARE, "[64]", tensor(64), tensor(64), "0.1"], 6 * 256, 2 * (512 + 128), "fp32"),
        ("add_", [SQUARE, tensor(4, 64, strides=(0, 1))], 256, 2 * (256 + 64 + 256), "fp32"),
        ("eq", [tensor(4, 64, kind=LONG), tensor(1, kind=LONG)], 256, 8 * 257 + 256, "fp32"),
        ("copy_", [tensor(4, 64, kind=FP32), SQUARE], 0, 256 * 6, "fp32"),
        ("mean", [tensor(4, 64, kind=FP32), "[-1]", "True"], 256, 4 * (256 + 4), "fp32"),
        ("index_select", [tensor(1000, 64), "0", tensor(5, kind=LONG)], 0, 2 * 2 * 5 * 64 + 40, "fp32"),
        ("embedding_dense_backward", [tensor(5, 64), tensor(5, kind=LONG), "9"], 320, 2 * 320 + 40 + 1152, "fp32"),
        ("max_pool2d_with_indices", [IMAGE, "[3, 3]", "[2, 2]", *["[1, 1]"] * 2], 73728, 65536 + 10 * 8192, "fp32"),
        ("native_dropout", [SQUARE, "0.1", "True"], 256, 256 * (2 + 2 + 1), "fp32"),
        ("mul", [tensor(4, 64, kind="c10::complex<double>")] * 2, 256, 16 * 3 * 256, "fp32"),
        ("cumsum", [tensor(4, 64, kind="c10::Float4_e2m1fn_x2")], 256, 2 * 256, "fp32"),
        ("triton_poi_fused_copy_1", [SQUARE, tensor(8, 64), "256"], 0, 2 * 512, "fp32"),
        ("triton_red_fused_mean_0", [SQUARE, tensor(64), SQUARE, "4", "64"], 0, 2 * (512 + 64), "fp32"),
        ("triton_tem_fused_mm_3", [SQUARE, tensor(64, 8), tensor(4, 8)], 4096, 2 * (256 + 512 + 32), "bf16"),
        ("triton_tem_fused__grouped_mm_0", GROUPED, 2 * 64 * 32 * 16, 10240, "bf16"),
        ("triton_tem_fused_convolution_1", [IMAGE, WEIGHT, tensor(2, 24, 9, 9)], 279936, 75040, "bf16"),
        ("triton_tem_fused_flex_attention_0", [tensor(2, 8, 64, 16)] * 4, 4 * 16 * 64**2 * 16, 131072, "bf16"),
        # It overwrites the first; a look-up reads a row for each index.
        ("triton_poi_fused_add_relu_0", [tensor(64, 8), tensor(8), "512"], 0, 2 * (2 * 512 + 8), "fp32"),
        ("triton_red_fused_norm_0", [tensor(4, 64), tensor(64), "4", "64"], 0, 2 * (2 * 256 + 64), "fp32"),
        ("triton_poi_fused_embedding_0", [tensor(4, kind=LONG), tensor(999, 8), tensor(4, 8), "32"], 0, 160, "fp32"),
        ("mm", [tensor(4, 8, kind=COMPLEX), tensor(8, 2, kind=COMPLEX)], 8 * 64, 8 * (32 + 16 + 8), "fp32"),
        ("dot", [tensor(64), tensor(64)], 128, 2 * (64 + 64 + 1), "bf16"),
        ("_scaled_mm", [*FP8_PAIR, *SCALES], 2 * 256**3, 4 * 256**2 + 4 * (512 + 4), "fp8_block"),
        ("_grouped_mm", [tensor(64, 32), tensor(4, 32, 16), tensor(4, kind="int")], 2 * 64 * 32 * 16, 10240, "bf16"),
        ("_grouped_mm", [tensor(2, 32), tensor(4, 32, 16), tensor(4, kind="int")], 2 * 2 * 32 * 16, 2240, "bf16"),
        ("_grouped_mm", [tensor(4, 8, 32), tensor(4, 32, 16), None], 2 * 4 * 8 * 32 * 16, 7168, "bf16"),
        ("_grouped_mm", [tensor(8, 64), tensor(64, 16), tensor(4, kind="int")], 2 * 8 * 64 * 16, 4096, "bf16"),
        ("cudnn_convolution_transpose", [*TRANSPOSED, *PLACES, "1"], 2 * 4 * 8 * 8 * 8 * 3 * 16, 11008, "bf16"),
        ("max_pool2d_with_indices_backward", [POOLED, IMAGE, *["[2, 2]"] * 4, "False", PLACED], 8192, 147456, "fp32"),
        ("avg_pool2d", [IMAGE, "[2, 2]", "[]", "[0, 0]"], 32768, 2 * (32768 + 8192), "fp32"),
        ("_adaptive_avg_pool2d", [IMAGE, "[1, 1]"], 32768, 2 * (32768 + 32), "fp32"),
        ("upsample_nearest2d", [IMAGE, "[64, 64]"], 2 * 131072, 2 * (32768 + 131072), "fp32"),
        ("_index_put_impl_", [SQUARE, None, tensor(2, 64), "True", "True"], 0, 2 * 3 * 128, "fp32"),
        ("index_copy_", [SQUARE, "0", tensor(2, kind=LONG), tensor(2, 64)], 0, 16 + 2 * 2 * 128, "fp32"),
        ("index_add_", [SQUARE, "0", tensor(2, kind=LONG), tensor(2, 64), "1"], 128, 16 + 2 * 3 * 128, "fp32"),
        ("scatter_add_", [SQUARE, "1", tensor(4, 2, kind=LONG), tensor(4, 2)], 8, 64 + 2 * 3 * 8, "fp32"),
        ("sort", [SQUARE, "False", "-1", "False"], 0, 256 * (2 + 10), "fp32"),
        ("topk", [SQUARE, "2", "1", "True", "True"], 0, 2 * 256 + 8 * 10, "fp32"),
        ("_embedding_bag", [tensor(99, 8), tensor(6, kind=LONG), tensor(2, kind=LONG)], 48, 96 + 64 + 32 + 64, "fp32"),
        ("split_with_sizes_copy", [SQUARE, "[32, 32]", "1"], 0, 4 * 256, "fp32"),
        ("_cudnn_rnn", [tensor(8, 2, 16), WEIGHTS], 65536, 512 + 4224 + 512, "bf16"),
        ("_flash_attention_forward", [*PACKED, "256", "256", "0.", "True"], 4 * 16 * 128**2 * 64, 8 * 262144, "bf16"),
        ("flash_attn::_flash_attn_forward", [QUERY] * 3 + ["0", "1", "True"], 2 * 16 * 256**2 * 64, 8 * 262144, "bf16"),
        ("_vllm_fa3_C::fwd", PAGED, 4 * 2 * 8 * 512 * 64, 2 * (2 * 1024 + 2 * 2 * 512 * 2 * 64), "bf16"),
        ("vllm::outplace_fused_experts", EXPERTS, 2 * 6 * 32 * 24, 2 * (8 * 32 * 24) * 0.75 + 2 * 2 * 96 + 48, "bf16"),
        ("_C::fused_add_rms_norm", [SQUARE, SQUARE, tensor(64)], 6 * 256, 2 * (4 * 256 + 64), "fp32"),
        ("sgl_kernel::silu_and_mul", [SQUARE, tensor(4, 128)], 4 * 512, 2 * 3 * 256, "fp32"),
        ("_C_cache_ops::reshape_and_cache_flash", [*[tensor(4, 2, 8)] * 2, *CACHE], 0, 128 * (2 + 1), "fp32"),
        ("_scaled_mm_v2", LISTED, 2 * 256**3, 4 * 256**2 + 2064, "fp8_block"),
        ("_C::cutlass_scaled_mm", [tensor(256, 256), *FP8_PAIR, *SCALES], 2 * 256**3, 4 * 256**2 + 2064, "fp8_block"),
        ("_C::marlin_gemm", MARLIN, 2 * 4 * 512 * 256, 2 * 4 * 256 + 256 * 512 // 2 + 2 * 4 * 512, "bf16"),
        ("sgl_kernel::fp8_blockwise_scaled_grouped_mm", BLOCKWISE, 2 * 64 * 32 * 128, 20480 + 4096, "fp8_e4m3"),
        ("_C::rotary_embedding", ROTARY, 3 * 256, 16 + 2 * (256 + 128) * 2, "fp32"),
        ("sgl_kernel::fp8_scaled_mm", [*FP8_PAIR, None, None, "15"], 2 * 256**3, 4 * 256**2, "fp8_e4m3"),
    ],
)  # fmt: skip
def test_work_follows_from_shapes(name, inputs, flops, least_bytes, dtype):
    work = find_formula(name)(Call(name, tuple(inputs), "kernel"))
    assert work.flops == flops and work.dtype == dtype
    assert work.read_bytes + work.write_bytes == least_bytes


def test_a_convolution_backward_counts_each_gradient_that_is_asked_for():
    image, weight, gradient = tensor(2, 16, 32, 32), tensor(24, 16, 3, 3), tensor(2, 24, 16, 16)
    options = ("[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    for mask, count in (("[True, True, False]", 2), ("[False, True, True]", 1)):
        work = find_formula("convolution_backward")(
            Call("convolution_backward", (gradient, image, weight, *options, mask), "")
        )
        assert work.flops == count * 2 * gradient.count * 16 * 9


@pytest.mark.parametrize(
    ("kernel", "blocks", "moved"),
    [
        ("vectorized_gather_kernel<16, long>", 5, 5 * (2 * 128 + 8)),
        ("index_elementwise_kernel<128, 4, gpu_index_kernel<", 2, 1024 * (2 + 2 + 8)),
    ],
)
def test_the_size_of_what_indices_name_follows_from_the_launch(kernel, blocks, moved):
    work = find_formula("index")(Call("index", (tensor(999, 64), None), kernel, blocks))
    assert work.read_bytes + work.write_bytes == moved


def test_long_lists_have_the_sizes_of_the_gradients_if_as_many_blocks_ran():
    kernel = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4"
    sizes = (2 << 16, 9)
    for blocks, ranks, elements in ((3, 1, 131081), (2, 2, 65541), (7, 1, None)):
        work = find_formula("_fused_adamw_")(Call("_fused_adamw_", ((), (), (), ()), kernel, blocks, sizes, ranks))
        assert (work and work.moved_bytes) == (elements and 7 * 4 * elements)


def test_a_step_gives_long_lists_their_gradients(sections):
    trace = Written()
    for at in (0, 200):
        trace.operator("torch::autograd::AccumulateGrad", at, tensor(1 << 17, kind=FP32))
        number = trace.operator("aten::_fused_sgd_", at + 50, *[Tensor((), (), "TensorList")] * 3)
        kernel = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<3>, FusedSgdMathFunctor<float, 3>"
        trace.kernel(kernel, at + 60, 9, number, at + 51.0, grid=[2, 1, 1])
    (section,) = sections(trace)
    assert row(section, "_fused_sgd_").least_bytes == 4 * (3 + 2) * (1 << 17)


def test_types_of_lists_and_arithmetic_follow_from_the_kernel():
    lists = (tensor(4, 4), tensor(3))
    adam = find_formula("_fused_adamw_")(Call("_fused_adamw_", (lists,) * 4, "multi_tensor_apply<FusedAdam<float>>"))
    assert (adam.read_bytes, adam.write_bytes) == (4 * 4 * 19, 4 * 3 * 19)
    cat = find_formula("cat")(Call("cat", (lists, "0"), "CatArrayBatchedCopy<OpaqueType<2u>>"))
    assert (cat.read_bytes, cat.write_bytes) == (38, 38)
    norm = find_formula("_foreach_norm")(Call("_foreach_norm", (lists,), "lpnorm<c10::complex<double>, float>"))
    assert norm.read_bytes == 16 * 19
    pair = (tensor(4, 4, kind=FP32), tensor(4, 4, kind=FP32))
    assert find_formula("mm")(Call("mm", pair, "sm80_xmma_gemm_f32f32_tf32f32")).dtype == "tf32"
    assert find_formula("mm")(Call("mm", pair, "ampere_sgemm_128x64")).dtype == "fp32"


def test_a_product_at_its_ceiling_is_at_its_roof(sections):
    size, trace = 4096, Written()
    flops = 2 * size**3
    trace.call("aten::mm", 0, flops / CEILINGS["bf16"].tflops / 1e6, tensor(size, size), tensor(size, size))
    (section,) = sections(trace)
    product = row(section, "mm")
    roof = product.roof_at("compute")
    assert (product.flops, product.regime, product.limited_by) == (flops, "compute", "bf16")
    assert roof.share == pytest.approx(1) and product.saving_s[0] == pytest.approx(0, abs=1e-9)
    assert roof.sustained_share == pytest.approx(CEILINGS["bf16"].tflops / CEILINGS["bf16"].sustained_tflops)
    assert section.mfu == pytest.approx(1) and section.roofs_s == pytest.approx(section.step.busy_s)


def test_bytes_that_fit_in_the_l2_have_a_range(sections):
    trace = Written()
    trace.call("aten::copy_", 0, 8, tensor(1 << 22), tensor(1 << 22), "False")  # 16 MB in 8 us
    trace.call("aten::add", 200, 2000, tensor(1 << 29), tensor(1 << 29), "1")
    (section,) = sections(trace)
    small, large = row(section, "copy_"), row(section, "add")
    assert small.least_bytes == 1 << 24 and small.roof_at("l2").share < small.roof_at("memory").share
    low, high = small.saving_s
    assert low < high and len(large.saving_s) == 1 and large.roof_at("l2") is None


def test_regimes(sections):
    trace = Written()
    trace.call("aten::add", 0, 2, tensor(64), tensor(64), "1")  # as short as a kernel is
    trace.call("aten::mul", 100, 1000, tensor(1 << 28), tensor(1 << 28))  # 1.6 GB
    trace.call("aten::_softmax", 2000, 1000, tensor(1 << 10, 1 << 10), "-1", "False")
    (section,) = sections(trace)
    assert row(section, "add").regime == "overhead"
    assert (row(section, "mul").regime, row(section, "mul").limited_at) == ("memory", "memory")
    assert row(section, "_softmax").regime == "implementation"


def test_what_has_no_formula_has_a_time_and_no_share(sections):
    trace = Written()
    trace.call("my::op", 0, 50, tensor(64))
    trace.call("aten::mm", 100, 50, tensor(64))  # too few inputs
    trace.call("aten::mul", 300, 50, tensor(64, kind="c10::qint8"), tensor(64, kind="c10::qint8"))
    trace.call("aten::mv", 400, 50, tensor(8, 8, kind="c10::complex<c10::Half>"), tensor(8, kind=BF16))
    trace.kernel("bare", 200, 50, launch=190.0)
    (section,) = sections(trace)
    lacking = {row.label.lacking for row in section.kernels if row.name != "idle"}
    assert lacking == {
        *("my::op", "mm with these inputs", trace_calls.NO_OPERATOR),
        *("mul of c10::qint8", "mv of c10::complex<c10::Half>"),
    }
    assert not any(row.roofs or (row.saving_s and row.name != "idle") for row in section.kernels)
    notes = " ".join(trace_page.step_notes(section))
    assert "my::op" in notes and "mul of c10::qint8" in notes


def sum_flops(rows, names) -> dict[str, float]:
    return {name: sum(row.flops * row.launches for row in rows if row.name == name and row.flops) for name in names}


# Of a step: what its events took, microseconds; FLOPs by torch.utils.flop_counter, which ignores the causal mask.
GRAPH = {"mm": 893353197568, "_cudnn_attention_forward": 68719476736 / 2}
TRAINING = {"mm": 2130303778816, "addmm": 755914244096}
TRAINING |= {"_cudnn_attention_forward": 137438953472, "_cudnn_attention_backward": 343597383680}


@pytest.mark.parametrize(
    ("name", "ran_us", "flops", "lacking"),
    [("llama_prefill_graph", 1438.997, GRAPH, 0), ("training", 13439.263, TRAINING, 2)],
)
def test_steps_that_ran_on_an_h100(name, ran_us, flops, lacking):
    (section,) = trace_rows.place_trace(trace_events.read_trace(DATA / f"{name}.json.gz"), RUN)
    rows = [row for row in section.kernels if row.name != "idle"]
    assert sum_flops(rows, flops) == flops
    assert fsum(row.total_s for row in rows) == pytest.approx(ran_us / 1e6, rel=1e-5)
    assert fsum(row.total_s for row in section.kernels) == pytest.approx(section.step.seconds, rel=5e-3)
    assert sum(bool(row.label.lacking) for row in rows) == lacking


# PyTorch 2.11 on H200s; FLOPs by the counter, but that counts DTensors twice, and no experts: two layers of two
# products of 4096 rows, and two gradients of each.
MEASURED = {
    "llama_decode_compiled": {"mm": 1967128576, "_cudnn_attention_forward": 142606336, "bmm": 512},
    "tensor_parallel": {"mm": 360777252864 / 2},
    "fsdp": {"mm": 1855425871872, "addmm": 618475290624, "_cudnn_attention_backward": 85899345920},
    "mixture_of_experts": {"_grouped_mm": 3 * 2 * 2 * 4096 * (2 * 768 + 768) * 1024},
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_time_of_programs_has_formulas(name):
    (section,) = trace_rows.place_trace(trace_events.read_trace(DATA / f"{name}.json.gz"), H200)
    rows = [row for row in section.kernels if row.label.kind in ("operator", "copy")]
    assert sum_flops(rows, MEASURED[name]) == MEASURED[name]
    with_formula_s = fsum(row.total_s for row in rows if row.label.work)
    assert with_formula_s >= 0.99 * fsum(row.total_s for row in rows)
    assert not [
        row for row in rows if row.total_s > 1e-5 and row.roof_at("memory") and row.roof_at("memory").share > 1.3
    ]


def test_a_graph_takes_shapes_from_another_trace(tmp_path, monkeypatch):
    """Of the same code, compiled without graphs."""
    paths = [str(DATA / f"llama_decode_{mode}.json.gz") for mode in ("graph", "compiled")]
    monkeypatch.chdir(tmp_path)
    assert place.main(["--trace", " ".join(paths), "--card", str(H200.source)]) == 0
    (section,) = json.loads((tmp_path / "results" / "placed" / "placement.json").read_text())["sections"]
    rows = [kernel for kernel in section["kernels"] if kernel["regime"] != "idle"]
    flops = fsum(kernel["flops"] * kernel["launches"] for kernel in rows if kernel["label"]["work"]["product"])
    assert flops == sum(MEASURED["llama_decode_compiled"].values())
    assert all(kernel["label"]["work"] for kernel in rows)


def test_shapes_of_a_graph_are_taken_in_turn():
    """Three of its products ran the same kernel with the same grid."""
    (section,) = trace_rows.place_trace(trace_events.read_trace(DATA / "llama_prefill_graph.json.gz"), RUN)
    products = [row for row in section.kernels if row.name == "mm"]
    assert {row.label.shape for row in products} == {
        *("2048 x 6144 x 4096", "2048 x 4096 x 4096", "2048 x 28672 x 4096", "2048 x 4096 x 14336")
    }
    assert all(row.label.inferred and 0.9 < row.roof_at("compute").share < 1.1 for row in products)


def test_kernels_of_one_call_are_one_call(sections):
    trace = Written()
    for at in (0, 100):
        number = trace.call("aten::mm", at, 30, tensor(512, 512), tensor(512, 512), kernel="gemm")
        trace.kernel("splitKreduce", at + 36, 3, number, at + 2.0)
    (section,) = sections(trace)
    assert (row(section, "mm").launches, row(section, "mm").total_s) == (2, pytest.approx(66e-6))


@pytest.mark.parametrize("ids", [{"External id": 5000, "correlation": 5000}, {"correlation": 5000}])
def test_without_its_id_the_operator_around_the_launch_is_taken(sections, ids):
    """Some versions repeat the correlation as the id."""
    trace = Written()
    trace.operator("aten::linear", 0, tensor(8, 8), tensor(8, 8))
    trace.operator("aten::mm", 1, tensor(8, 8), tensor(8, 8))
    trace.operator("aten::sum", 50, tensor(8, 8))
    trace.add("cuda_runtime", "cudaLaunchKernel", 3, 1, **ids)
    trace.add("kernel", "k", 10, 20, 7, device=0, **ids)
    (section,) = sections(trace)
    assert row(section, "mm").launches == 1


def test_a_graph_takes_shapes_from_the_same_kernels_outside(sections):
    trace = Written()
    trace.call("aten::mm", 0, 30, tensor(512, 512), tensor(512, 512), kernel="gemm")
    trace.call("aten::add", 50, 10, tensor(512, 512), tensor(512, 512), "1", kernel="elementwise")
    trace.call("aten::add", 70, 10, tensor(256, 512), tensor(256, 512), "1", kernel="elementwise")  # with the same grid
    trace.add("cuda_runtime", "cudaGraphLaunch", 100, 2, correlation=77)
    for start, name in enumerate(("gemm", "gemm", "elementwise", "unknown")):
        trace.kernel(name, 110 + 30 * start, 25, launch=77)
    (section,) = sections(trace)
    (inferred,) = (row for row in section.kernels if row.label.inferred)
    assert (inferred.name, inferred.launches, inferred.flops) == ("mm", 2, 2 * 512**3)
    lacking = {row.name for row in section.kernels if row.label.lacking == trace_calls.IN_GRAPH}
    assert lacking == {"elementwise", "unknown"}


def test_each_kernel_of_one_shape_is_a_call_in_a_graph(sections):
    """As of a product whose operands lie otherwise in memory."""
    trace = Written()
    trace.add("cuda_runtime", "cudaGraphLaunch", 100, 2, correlation=77)
    for number, kernel in enumerate(("gemm_nt", "gemm_tn")):
        trace.call("aten::mm", 40 * number, 30, tensor(512, 512), tensor(512, 512), kernel=kernel)
        trace.kernel(kernel, 110 + 30 * number, 25, launch=77)
    (section,) = sections(trace)
    (inferred,) = (row for row in section.kernels if row.label.inferred)
    assert inferred.launches == 2


def test_copies_over_the_link_stand_under_it(sections):
    trace = Written()
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 5, 100, launch=1.0, kind="gpu_memcpy", bytes=5_000_000)
    trace.call("aten::relu", 200, 5, tensor(64))
    (section,) = sections(trace)
    copy = row(section, "Memcpy HtoD (Pinned -> Device)")
    assert copy.limited_by == "h2d" and copy.roof_at("memory").share == pytest.approx(50 / CEILINGS["h2d"].gb_per_s)


def stepped(widths) -> Written:
    """Steps of one kernel that are so many microseconds apart."""
    trace, at = Written(), 0
    for number, width in enumerate(widths):
        trace.add("user_annotation", f"ProfilerStep#{number}", at, width - 1)
        trace.call("aten::relu", at, 10, tensor(1 << 20))
        at += width
    return trace


def test_the_median_step_without_the_first(sections):
    trace = stepped([900, 100, 300, 200, 50])
    (section,) = sections(trace)
    assert (section.step.name, section.step.steps) == ("ProfilerStep#3", 5)  # of 100, 300 and 200 us
    assert section.step.seconds == pytest.approx(200e-6) and section.step.busy_s == pytest.approx(10e-6)
    trace.head["step_s"] = 60e-6
    (scaled,) = sections(trace)
    assert scaled.step.seconds == pytest.approx(60e-6) and scaled.step.profiled_s == pytest.approx(200e-6)
    assert fsum(scaled.step.gaps.values()) == pytest.approx(50e-6)
    trace.head["step_s"] = 60.0  # of milliseconds, as it seems
    with pytest.raises(UserError, match="step_s"):
        sections(trace)


@pytest.mark.parametrize("whole", [1, 4])
def test_a_stub_is_no_step(sections, whole):
    trace, stub = stepped([100] * whole), 100 * whole
    for step in range(whole):
        for at in (20, 40):
            trace.call("aten::relu", 100 * step + at, 3, tensor(64))
    trace.add("user_annotation", f"ProfilerStep#{whole}", stub, 50)
    trace.kernel("Memcpy DtoD", stub + 10, 4, launch=stub + 1.0, kind="gpu_memcpy", bytes=64)
    (section,) = sections(trace)
    assert section.step.name != f"ProfilerStep#{whole}" and section.step.profiled_s == pytest.approx(1e-4, rel=0.1)


def test_a_step_that_is_shorter_without_the_profiler_has_no_idle_time(sections):
    trace = stepped([100] * 4)
    for step in range(4):
        trace.kernel(ALL_REDUCE, 20 + 100 * step, 75, launch=100.0 * step + 2, **collective(1 << 20))
    trace.head["step_s"] = 4e-5
    (section,) = sections(trace)
    assert (section.step.seconds, section.step.busy_s) == pytest.approx((4e-5, 8.5e-5))
    assert not any(row.name == "idle" for row in section.kernels)
    assert "85 us" in " ".join(trace_page.step_notes(section))


@pytest.mark.parametrize("in_graph", [True, False])
def test_a_hole_of_the_profiler_is_no_gap_of_the_program(sections, in_graph):
    trace = Written()
    if in_graph:
        trace.add("cuda_runtime", "cudaGraphLaunch", 1, 2, correlation=77)
    for number, start in enumerate((10, 40, 40000)):
        trace.kernel("gemm", start, 25, launch=77 if in_graph else float(number))
    trace.add("cuda_runtime", "cudaLaunchKernel", 1.5, 0.1, correlation=5000)  # and no kernel
    trace.operator("aten::mm", 50000, tensor(8, 8), tensor(8, 8))
    (section,) = sections(trace)
    assert section.step.gaps[trace_steps.LOST] == pytest.approx(39935e-6)
    assert not next(row for row in section.kernels if row.label.name == trace_steps.LOST).saving_s


def test_a_wait_at_the_end_of_a_step_is_the_hosts(sections):
    trace = stepped([100] * 4)
    for start in (5, 105, 205, 305):
        trace.add("cuda_runtime", "cudaStreamSynchronize", start, 15, correlation=start)
    assert set(sections(trace)[0].step.gaps) == {trace_steps.WAITED, trace_steps.LAUNCH}
    assert sections(trace)[0].step.gaps[trace_steps.WAITED] == pytest.approx(90e-6)


def test_gaps_by_their_cause(sections):
    trace = Written()
    trace.call("aten::relu", 0, 10, tensor(64), start=5)  # ends at 15
    trace.call("aten::relu", 10, 10, tensor(64), start=20)  # launched at 12: 5 us of dependency
    trace.call("aten::relu", 60, 10, tensor(64), start=70)  # launched at 62: 40 us between launches
    trace.add("cuda_runtime", "cudaStreamSynchronize", 60, 22, correlation=9)  # until 82
    trace.call("aten::relu", 90, 10, tensor(64), start=110)  # 30 us after the host waited
    trace.kernel("Memcpy DtoD", 128, 10, launch=95.0, kind="gpu_memcpy", bytes=64)  # 8 us next to a copy
    (section,) = sections(trace)
    expected = {trace_steps.QUEUED: 5, trace_steps.LAUNCH: 40, trace_steps.WAITED: 30, trace_steps.NEXT_TO_COPY: 8}
    assert {kind: round(seconds * 1e6, 3) for kind, seconds in section.step.gaps.items()} == expected
    assert trace_steps.LAUNCH in trace_page.step_notes(section)[0]


def test_streams_that_overlap_count_once_and_collectives_are_exposed(sections):
    trace = Written()
    trace.call("aten::mm", 0, 100, tensor(512, 512), tensor(512, 512), start=10)
    trace.kernel("ncclDevKernel_AllReduce_Sum_bf16", 50, 100, launch=5.0, stream=9)
    (section,) = sections(trace)
    step, product = section.step, row(section, "mm")
    assert (step.busy_s, step.collective_s, step.exposed_s) == pytest.approx((140e-6, 100e-6, 40e-6))
    assert product.overlapped == pytest.approx(0.6)
    assert row(section, "ncclDevKernel_AllReduce_Sum_bf16").label.kind == "collective"


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def collective(count: int, cards: int = 2, name: str = "allreduce", out: int | None = None) -> dict:
    sizes = {"In msg nelems": count, "Out msg nelems": count if out is None else out}
    return sizes | {"Collective name": name, "dtype": "BFloat16", "Group size": cards}


@pytest.mark.parametrize(
    ("kernel", "recorded", "carried"),
    [
        (ALL_REDUCE, collective(1 << 20), 2 << 20),
        (ALL_REDUCE, collective(1 << 20, 8), (2 << 20) * 9 / 8),  # the switch adds up
        ("ncclDevKernel_AllGather_RING_LL", collective(1 << 20, 4, "_allgather_base", 4 << 20), (8 << 20) * 3 / 4),
        (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
            collective(4 << 20, 4, "_reduce_scatter_base", 1 << 20),
            6 << 20,
        ),
        ("ncclDevKernel_SendRecv", collective(1 << 20, 4, "all_to_allv"), (2 << 20) * 3 / 4),
        ("ncclDevKernel_SendRecv", collective(1 << 20, 2, "send"), 2 << 20),
        ("Memcpy PtoP (Device -> Device)", {"bytes": 1 << 20, "kind": "gpu_memcpy"}, 1 << 20),
        (ALL_REDUCE, collective(1 << 20) | {"dtype": "QInt8"}, None),
    ],
)
def test_collectives_have_roofs(tmp_path, kernel, recorded, carried):
    trace = Written()
    trace.head["deviceProperties"][0]["name"] = "NVIDIA H200"
    trace.kernel(kernel, 50, 100, launch=5.0, **recorded)
    (section,) = trace_rows.place_trace(trace_events.read_trace(trace.write(tmp_path / "my.json")), H200)
    communication = row(section, kernel)
    roof = communication.roof_at("link")
    assert communication.label.kind == "collective" and (roof and roof.amount) == carried
    assert carried or "QInt8" in " ".join(trace_page.step_notes(section))
    least_s = carried / 450e9 if carried else 0.0  # NVLink by the datasheet of the H200
    assert section.roofs_s == pytest.approx(least_s) and section.unsized_s == pytest.approx(0 if carried else 1e-4)


def test_a_measured_link_comes_before_the_datasheet():
    by_name = {ceiling.name: ceiling for ceiling in H200.roofline.ceilings}
    rates = {"p2p_gpu1_read": 380.0, "p2p_gpu1_write": 396.0}
    links = [
        by_name["hbm_read"].model_copy(update={"name": name, "level": "p2p", "gb_per_s": rate, "both_ways": both})
        for name, rate, both in [*((*pair, False) for pair in rates.items()), ("p2p_gpu1_write_both", 781.0, True)]
    ]
    roofline = H200.roofline.model_copy(update={"ceilings": [*H200.roofline.ceilings, *links]})
    link = collectives.find_link(replace(H200, roofline=roofline), "gpu0")
    assert (link.name, link.gb_per_s) == ("p2p_gpu1_write", 396.0)


def test_an_all_reduce_of_two_cards_stands_under_those_of_the_run():
    sizes = [
        SimpleNamespace(size_bytes=size, time_s=us * 1e-6, nccl_graph_time_s=9e-6, doubt=None)
        for size, us in ((1024, 3), (4096, 12))
    ]
    pair = SimpleNamespace(device="gpu0", peer="gpu1", sizes=sizes)
    slow_size = SimpleNamespace(size_bytes=1024, time_s=1, nccl_graph_time_s=None, doubt=None)
    slow = SimpleNamespace(device="gpu2", peer="gpu0", sizes=[slow_size])
    roofline = SimpleNamespace(ceilings=H200.roofline.ceilings, all_reduces=[pair, slow])
    link = collectives.find_link(replace(H200, roofline=roofline), "gpu0")
    model = placing.RoofModel([], 12e-6)
    assert model.roof_of_link(2560, link, is_all_reduce=True).share == pytest.approx(0.5)
    assert model.roof_of_link(2560, link, is_all_reduce=False).ceiling == "NVLink's datasheet"
    assert model.roof_of_link(9999, link, is_all_reduce=True).ceiling == "NVLink's datasheet"


def test_the_operator_gives_a_collective_its_size(sections):
    trace = Written()
    trace.call(
        "_C_custom_ar::all_reduce", 0, 30, tensor(4, 256), tensor(4, 256), kernel="vllm::cross_device_reduce_1stage"
    )
    number = trace.operator("record_param_comms", 100, tensor(8))
    trace.events[-1]["args"] |= collective(1 << 10)
    trace.kernel(ALL_REDUCE, 110, 30, number, 101.0)
    number = trace.operator("Broadcast", 200, tensor(1 << 20))
    for start in (210, 250):  # of parts of the tensor
        trace.kernel("ncclDevKernel_Broadcast_RING_LL", start, 30, number, float(start - 9))
    rows = [row for row in sections(trace)[0].kernels if row.label.kind == "collective"]
    assert {row.label.shape for row in rows} == {"2048 bytes, at least 2 cards", "2048 bytes, 2 cards", ""}
    assert [row.launches for row in rows if row.label.lacking] == [2]


@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_ep::intranode::dispatch<8, 768>(int4*)",
        "deep_ep::internode_ll::combine",
        "nvshmemi_barrier_all_on_stream_kernel",
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>",
        "kuserbuffers_pushsend",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 2>",
        "multimem_all_reduce_kernel",
        "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
        "tensorrt_llm::kernels::oneShotAllReduceKernel",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
    ],
)
def test_what_communicates_is_a_collective(kernel):
    assert collectives.is_collective(kernel)


def test_what_is_named_for_its_neighbours_is_no_collective():
    for kernel in (
        "triton_poi_fused_all_reduce_relu_0",
        "at::native::reduce_kernel<512>",
        "nvjet_tst_mm",
        "Memcpy DtoD",
    ):
        assert not collectives.is_collective(kernel)


def ranks(label: str) -> Written:
    """Two ranks in one file, whose ids are the same."""
    merged = Written()
    for rank, size in enumerate((1024, 2048)):
        trace = Written()
        trace.call("aten::mm", 0, 10 * (rank + 1), tensor(size, size), tensor(size, size))
        for event in trace.events:
            process = 0 if event["cat"] == "kernel" else 4711 + rank
            event["pid"] = label.format(rank=rank, pid=process) if label else process
        merged.events += trace.events
    return merged


@pytest.mark.parametrize("label", ["[TP{rank:02d}] {pid}", "rank{rank} {pid}", "[DP00-TP{rank:02d}-EP01] {pid}"])
def test_ranks_in_one_file_are_kept_apart(sections, label):
    shapes = [[row.label.shape for row in section.kernels] for section in sections(ranks(label))]
    assert shapes == [["1024 x 1024 x 1024"], ["2048 x 2048 x 2048"]]
    assert len({section.title for section in sections(ranks(label))}) == 2


def test_each_gpu_has_a_section(sections):
    trace = Written(cards=2)
    trace.call("aten::relu", 0, 10, tensor(1 << 20))
    trace.call("aten::relu", 0, 20, tensor(1 << 20), device=1)
    assert [(section.gpu, round(section.step.busy_s * 1e6)) for section in sections(trace)] == [(0, 10), (1, 20)]


def test_a_trace_makes_a_verdict_a_page_and_a_picture(tmp_path, monkeypatch, capsys):
    trace = stepped([100] * 4)
    trace.call("aten::mm", 310, 50, tensor(2048, 2048), tensor(2048, 2048))
    monkeypatch.chdir(tmp_path)
    packed = tmp_path / "my.json.gz"
    packed.write_bytes(gzip.compress(trace.write(tmp_path / "my.json").read_bytes()))
    assert place.main(["--trace", str(packed), "--card", str(H100)]) == 0
    placed, output = tmp_path / "results" / "placed", capsys.readouterr().out
    assert output.startswith("The step takes") and "relu" in output
    assert (placed / "placement.png").read_bytes().startswith(b"\x89PNG")
    (section,) = json.loads((placed / "placement.json").read_text())["sections"]
    assert section["step"]["steps"] == 4 and section["step"]["gaps"]
    assert {kernel["name"] for kernel in section["kernels"]} == {"relu"}, "idle time is not listed as a kernel"
    documented = documented_fields(Path(place.__file__).with_name("README.md"), "placement.json")
    assert documented[""] <= section.keys() | {"total_s", "launches", "failed", "uncounted"}
    assert documented["kernels"] <= section["kernels"][0].keys()
    assert "placement.png" in (placed / "placement.md").read_text()


def test_without_a_trace_it_prints_how_to_collect_one(capsys):
    assert place.main(["--card", str(H100)]) == 0
    output = capsys.readouterr().out
    code = output.split("\n\nThen place it")[0].split("\n", 2)[2]
    compile(code, "collect.py", "exec")
    assert "record_shapes=True" in code and f"TRACE=my.json.gz CARD={H100}" in output


def without(trace: Written, *kinds: str, **head) -> Written:
    trace.events = [event for event in trace.events if event["cat"] not in kinds]
    trace.head |= head
    return trace


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: without(stepped([9]), "kernel"), "nothing ran on a GPU"),
        (lambda: without(stepped([9]), "cpu_op"), "no shapes were recorded"),
        (lambda: without(stepped([9]), *trace_events.KINDS), "not a trace of torch.profiler"),
        (lambda: without(stepped([9]), deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}]), "AMD"),
        (lambda: without(stepped([9]), deviceProperties=[{"id": 0, "name": "NVIDIA A100"}]), "profiled on NVIDIA A100"),
        (lambda: ranks(""), "several processes"),
        (lambda: None, "no such file"),
        (lambda: b"", "not the JSON"),
        (lambda: b"\n\x0a\x08\x01\x12\x06", "not the JSON"),  # Perfetto's protobuf
        (lambda: 10**6 * b"[", "not the JSON"),
        (lambda: b'{"traceEvents": [{"ph": "X", "args": ' + 10**6 * b'{"a":', "cut"),
        (lambda: json.dumps({"traceEvents": stepped([9] * 9).events})[:-40].encode(), "cut"),
        (lambda: gzip.compress(json.dumps(stepped([9] * 9).head).encode() * 99)[:-20], "cut"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path, make, message):
    content, path = make(), tmp_path / "my.json"
    if isinstance(content, Written):
        content.write(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        place.main(["--trace", str(path), "--card", str(H100)])
    assert len(str(refused.value).splitlines()) == 1 and message in str(refused.value)


def as_of_pytorch_1_8(trace: Written) -> Written:
    old = {"kernel": "Kernel", "cpu_op": "Operator", "cuda_runtime": "Runtime", "user_annotation": "Operator"}
    for event in trace.events:
        event["cat"], args = old[event["cat"]], event["args"]
        if "Input Dims" in args:
            args["Input dims"] = args.pop("Input Dims")
        elif "External id" in args:
            args["external id"] = args.pop("External id")
    return trace


def test_traces_of_old_versions_are_read(sections):
    (section,) = sections(as_of_pytorch_1_8(stepped([900, 100, 300, 200, 50])))
    assert section.step.name == "ProfilerStep#3" and row(section, "relu").label.work
    trace = stepped([9])
    for event in trace.events:
        event["args"].pop("Input type", None)
    with pytest.raises(UserError, match="too old"):
        trace_events.require_shapes(trace_events.read_trace(trace.write(Path(section.report))))


def test_a_graph_alone_needs_a_second_trace(tmp_path):
    trace = Written()
    trace.operator("aten::empty", 0)
    trace.add("cuda_runtime", "cudaGraphLaunch", 100, 2, correlation=77)
    trace.kernel("gemm", 110, 25, launch=77)
    with pytest.raises(UserError, match="TRACE="):
        trace_events.require_shapes(trace_events.read_trace(trace.write(tmp_path / "my.json")))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(b"aten::relu", b"aten::relu\xff"),  # not UTF-8
        lambda text: text.replace(b'"k"', b'"k\x01"'),  # a control character
        lambda text: text.replace(b'"device": 0', b'"queued": N/A, "device": 0'),
        lambda text: text.replace(b'"device": 0', b'"Comms Id": 184467440737095519999, "device": 0'),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: json.dumps(json.loads(text), indent=4).replace("\n", "\r\n").encode(),
        lambda text: json.dumps(json.loads(text), separators=(",", ":")).encode(),
        lambda text: json.dumps({"traceEvents": [{"name": "M"}] * 9 + json.loads(text)["traceEvents"]}).encode(),
        lambda text: json.dumps(json.loads(text), sort_keys=True).encode(),
        lambda text: json.dumps(dict(reversed(json.loads(text).items()))).encode(),
    ],
)
def test_what_programs_write_is_read_in_chunks_and_whole(tmp_path, monkeypatch, spoil):
    path = stepped([100] * 40).write(tmp_path / "my.json")
    text = spoil(path.read_bytes())
    path.write_bytes(text)
    for size in (trace_json.CHUNK_BYTES, 1024):
        monkeypatch.setattr(trace_json, "CHUNK_BYTES", size)
        (trace,) = trace_events.read_trace(path)
        assert len(trace.gpu) == len(trace.operators) == len(trace.steps) == 40


@pytest.mark.parametrize(
    ("name", "inputs", "us", "words"),
    [
        ("mm", (tensor(4096, 1024), tensor(1024, 50257)), 5000, ["50257", "64"]),
        ("mm", (tensor(4096, 1024), tensor(1024, 50176)), 5000, ["max-autotune"]),
        ("native_batch_norm", (tensor(32, 64, 57, 57),) * 2, 500, ["torch.compile"]),
        ("mm", (tensor(4, 4096), tensor(4096, 8192)), 30, ["rows per call"]),
    ],
)
def test_advice_is_true_for_that_call(sections, name, inputs, us, words):
    trace = Written()
    trace.call(f"aten::{name}", 0, us, *inputs)
    notes = trace_page.step_notes(sections(trace)[0])[0]
    assert all(word in notes for word in words) and ("64" in words or "multiple" not in notes)
