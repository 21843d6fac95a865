"""Traces of torch.profiler under measured ceilings: formulas, joins, steps, gaps, shares, errors."""

import gzip
import io
import json
from functools import partial
from math import fsum, prod
from pathlib import Path

import place
import pytest
import trace_calls
import trace_events
import trace_page
import trace_rows
import trace_steps
from formulas.base import Call, Tensor, find_formula
from workflow_run import documented_fields

from roofline.api import UserError, open_run

CHECKOUT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).with_name("data")  # cut from traces of benchmarks/peers/traces.py, PyTorch 2.11
H100 = CHECKOUT / "reference" / "nvidia-h100-80gb-hbm3"
RUN = open_run(H100)
CEILINGS = {ceiling.name: ceiling for ceiling in RUN.roofline.ceilings if ceiling.device == "gpu0"}
BF16, FP32, FP8, INT8, LONG = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "signed char", "long int"


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


@pytest.mark.parametrize(
    ("name", "inputs", "flops", "least_bytes", "dtype"),
    [
        ("mm", [tensor(128, 4096), tensor(4096, 512)], 2 * 128 * 4096 * 512, 2 * (128 * 4608 + 4096 * 512), "bf16"),
        ("mm", [tensor(4, 8), tensor(8, 2), tensor(4, 2)], 128, 2 * (32 + 16 + 8), "bf16"),  # out= is no input
        ("addmm", [tensor(8, strides=(0,)), tensor(4, 8), tensor(8, 8)], 512, 2 * (1 + 32 + 64 + 32), "bf16"),
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
        ("triton_red_fused_mean_0", [SQUARE, tensor(64), SQUARE, "4"], 0, 2 * (512 + 64), "fp32"),
        ("triton_tem_fused_mm_3", [SQUARE, tensor(64, 8), tensor(4, 8)], 4096, 2 * (256 + 512 + 32), "bf16"),
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
    trace.call("aten::mv", 400, 50, tensor(8, 8, kind="c10::complex<float>"), tensor(8, kind="c10::complex<float>"))
    trace.kernel("bare", 200, 50, launch=190.0)
    (section,) = sections(trace)
    lacking = {row.label.lacking for row in section.kernels if row.name != "idle"}
    assert lacking == {
        *("my::op", "mm with these inputs", trace_calls.NO_OPERATOR),
        *("mul of c10::qint8", "mv of c10::complex<float>"),
    }
    assert not any(row.roofs or (row.saving_s and row.name != "idle") for row in section.kernels)
    notes = " ".join(trace_page.step_notes(section))
    assert "my::op" in notes and "mul of c10::qint8" in notes


# Of a step: what its events took, microseconds; FLOPs by torch.utils.flop_counter, which ignores the causal mask.
GRAPH = {"mm": 893353197568, "_cudnn_attention_forward": 68719476736 / 2}
TRAINING = {"mm": 2130303778816, "addmm": 755914244096}
TRAINING |= {"_cudnn_attention_forward": 137438953472, "_cudnn_attention_backward": 343597383680}


@pytest.mark.parametrize(
    ("name", "ran_us", "flops", "lacking"),
    [("llama_prefill_graph", 1438.997, GRAPH, 0), ("training", 13439.263, TRAINING, 4)],
)
def test_steps_that_ran_on_an_h100(name, ran_us, flops, lacking):
    (section,) = trace_rows.place_trace(trace_events.read_trace(DATA / f"{name}.json.gz"), RUN)
    rows, flops_by_name = [row for row in section.kernels if row.name != "idle"], {}
    for row in rows:
        flops_by_name[row.name] = flops_by_name.get(row.name, 0) + (row.flops or 0) * row.launches
    assert {key: flops_by_name[key] for key in flops} == flops
    assert fsum(row.total_s for row in rows) == pytest.approx(ran_us / 1e6, rel=1e-5)
    assert fsum(row.total_s for row in section.kernels) == pytest.approx(section.step.seconds, rel=5e-3)
    assert sum(bool(row.label.lacking) for row in rows) == lacking


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
    assert {kernel["name"] for kernel in section["kernels"]} == {"relu"}, "idle time is no kernel"
    documented = documented_fields(Path(place.__file__).with_name("README.md"), "placement.json")
    assert documented[""] <= section.keys() | {"total_s", "launches", "failed", "uncounted"}
    assert documented["kernels"] <= section["kernels"][0].keys()
    assert "placement.png" in (placed / "placement.md").read_text()


def test_only_brackets_outside_strings_are_nested(tmp_path):
    """Wherever the chunks end that are read of a file."""
    names = [300 * "[", 300 * '{"\\', "\\", '"', "]]"]
    text = json.dumps([{"name": name, "list": [1]} for name in names], indent=1).encode()
    for size in range(1, 40):
        shallow = trace_events.ShallowJson(io.BytesIO(text))
        assert b"".join(iter(partial(shallow.read, size), b"")) == text
    deep = trace_events.ShallowJson(io.BytesIO(300 * b'["]",' + b"0"))
    with pytest.raises(ValueError):
        list(iter(partial(deep.read, 7), b""))


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
        (lambda: without(stepped([9]), *trace_events.READ), "not a trace of torch.profiler"),
        (lambda: without(stepped([9]), deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}]), "AMD"),
        (lambda: without(stepped([9]), deviceProperties=[{"id": 0, "name": "NVIDIA A100"}]), "profiled on NVIDIA A100"),
        (lambda: None, "no such file"),
        (lambda: b"", "not the JSON"),
        (lambda: b"\n\x0a\x08\x01\x12\x06", "not the JSON"),  # Perfetto's protobuf
        (lambda: 10**6 * b"[", "not the JSON"),
        (lambda: b'{"traceEvents": [{"ph": "X", "args": ' + 10**6 * b'{"a":', "not the JSON"),
        (lambda: json.dumps({"traceEvents": stepped([9] * 9).events})[:-40].encode(), "cut"),
        (lambda: gzip.compress(json.dumps(stepped([9] * 9).head).encode() * 99)[:-20], "cut"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path, capsys, make, message):
    content, path = make(), tmp_path / "my.json"
    if isinstance(content, Written):
        content.write(path)
    elif content is not None:
        path.write_bytes(content)
    status, output = place.main(["--trace", str(path), "--card", str(H100)]), capsys.readouterr().out
    assert status == 1 and len(output.splitlines()) == 1 and message in output
