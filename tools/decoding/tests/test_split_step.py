"""The measured step on two cards: which half each has, and the chain on the stand-ins for two cards."""

import gc
import os
import subprocess
import sys
from collections import deque
from dataclasses import replace
from functools import cache
from weakref import ref

import config_file
import decode_step
import numpy
import pytest
import split_step
from chain import GATED, KERNELS, NONE, QKV, TENSORS, step_epilogue
from fake_gpu import open_gpu
from split_chain import SplitChain
from test_kernels import clean
from test_step import FP8, KINDS, found_of
from workflow_run import CHECKOUT, LargerGpuRun

from reference import dequantise
from roofline.api import array_dtype
from roofline.api import product_kernel as products
from roofline.devices import discovery
from roofline.devices.base import Identity
from roofline.devices.gpu.kernel_compiler import read_kernel_source
from roofline.operators.decode_attention.attention_arithmetic import reference_attention
from roofline.plan import settings
from roofline.plan.targets import RunPlan

SMALL = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64}
OPERATOR = split_step.SplitStep()
ENVIRONMENT = dict(os.environ)  # as pytest was started
SHAPE = step_epilogue(QKV, 64, norms=False, bias=False, fp8_cache=False).shape_fields


class TwoCards:
    """Kernels of the chain in NumPy, on two cards that wait for each other: an exchange ends when both begun it."""

    def __init__(self, cupy, mute: bool):
        self.cupy, self.mute, self.begun, self.graphs = cupy, mute, [], []
        names = "few_rows", "many_rows", "decode_attention", "embed", "embed_part", "all_reduce", "gather"
        self.kernels = {name: getattr(self, f"run_{name.removeprefix('few_').removeprefix('many_')}") for name in names}

    def launch(self, graph, stream):
        """Run a graph at once, or those of both cards in turns."""
        self.graphs.append(deque(graph.launches))
        if len(self.graphs) == 1 and any(does == self.run_all_reduce for does, _ in graph.launches):
            return
        while any(self.graphs):
            for launches in self.graphs:
                does, given = launches.popleft()
                does(given)
        self.graphs = []

    def exchange(self, given, finish):
        self.begun.append((given, finish))
        if len(self.begun) == 2:
            for begun, finish_begun in self.begun:
                finish_begun(begun)
            self.begun = []

    def run_rows(self, given):
        from cuda.bindings import driver

        (x, _), (w, _) = (driver.matrix_of(one) for one in (given.x, given.w))
        sizes = numpy.frombuffer(given.shape.tobytes(), SHAPE)[0]
        pointers = numpy.frombuffer(given.tensors.tobytes(), "u8")
        named = zip(TENSORS, map(int, pointers), strict=True)
        of = {name: self.cupy.AT_ADDRESS[pointer] for name, pointer in named if pointer}
        rows, kind = int(sizes["rows"]), int(given.defines["EPILOGUE"])
        padded = products.padded_rows(rows)
        sums = x[:rows].astype("f4") @ w.astype("f4").T
        if sizes["parts"]:
            squares = of["squares"].ravel()[: sizes["parts"] * padded].reshape(-1, padded)[:, :rows].sum(axis=0)
            sums /= numpy.sqrt(squares / sizes["inputs"] + sizes["eps"])[:, None]
        if kind == QKV:
            self._store_heads(sums + of["bias"].astype("f4") if "bias" in of else sums, sizes, of)
        elif kind == GATED:
            gate, up = numpy.split(sums, 2, axis=1)
            of["y"][:rows] = gate / (1 + numpy.exp(-gate)) * up
        elif kind == NONE:
            of["y"][:rows] = sums
        else:
            of["stream"][:] = of["stream"].astype("f4") + sums
            self._scale(of["stream"], of["g"], of["y"], of["next_squares"], padded)

    def _store_heads(self, sums, sizes, of):
        heads, turns = sums.reshape(len(sums), -1, of["keys"].shape[-1]), of["turns"].astype("f4")
        query, key, value = numpy.split(heads, [sizes["heads"], sizes["heads"] + sizes["key_heads"]], axis=1)
        of["y"][:] = rotate_heads(query, turns).reshape(of["y"].shape)
        for name, token in (("keys", rotate_heads(key, turns)), ("values", value)):
            cache, scales = of[name], of.get(f"{name}_scales")
            if scales is None:
                cache[:, :, -1] = token
            else:
                cache[:, :, -1] = (token / scales[..., None]).astype(array_dtype(FP8)).view(numpy.uint8)

    def _scale(self, stream, norm, y, squares, padded):
        rows = stream.astype("f4")
        y[: len(rows)] = rows * norm.astype("f4")
        sums = numpy.square(rows).reshape(len(rows), -1, products.OUTPUTS_PER_GROUP * 8).sum(axis=-1)
        squares.ravel()[: squares.size // padded * padded].reshape(-1, padded)[:, : len(rows)] = 0
        squares.ravel()[: sums.shape[1] * padded].reshape(-1, padded)[:, : len(rows)] = sums.T

    def run_decode_attention(self, given):
        batch, *sizes = given.keys.shape
        query = given.query.reshape(batch, -1, sizes[-1]).astype("f4")
        caches = [given.keys.astype("f4"), given.values.astype("f4")]
        if given.name.endswith("fp8"):
            scales = zip((given.keys, given.values), (given.key_scales, given.value_scales), strict=True)
            caches = [dequantise(cache, scale).astype("f4") for cache, scale in scales]
        attended = reference_attention(query, *caches)
        given.out[:batch] = attended.reshape(batch, -1)

    def run_embed(self, given):
        given.stream[:] = given.table[given.tokens]
        self._scale(given.stream, given.g, given.y, given.squares, int(given.defines["ROWS"]))

    def run_embed_part(self, given):
        tokens = given.tokens - int(given.first_token)
        here = (tokens >= 0) & (tokens < int(given.tokens_here))
        given.part[: len(tokens)] = given.table[numpy.where(here, tokens, 0)] * here[:, None].astype(given.part.dtype)

    def run_all_reduce(self, given):
        rows = given.grid[1]
        given.peer_inbox.view(given.part.dtype)[: rows * int(given.hidden)] = given.part[:rows].ravel()
        self.exchange(given, self._finish_all_reduce)

    def _finish_all_reduce(self, given):
        if self.mute:
            given.missed[:] = given.exchange
        rows, hidden = given.grid[1], int(given.hidden)
        received = given.inbox.view(given.part.dtype)[: rows * hidden].reshape(rows, hidden).astype("f4")
        before = 0 if given.begins else given.stream.astype("f4")
        given.stream[:] = given.part[:rows].astype("f4") + received + before
        self._scale(given.stream, given.g, given.y, given.squares, int(given.defines["ROWS"]))

    def run_gather(self, given):
        first = int(given.first) * 8
        for logits in (given.logits, given.peer_logits):
            logits[:, first : first + given.part.shape[1]] = given.part
        self.exchange(given, lambda _: None)


def rotate_heads(heads, turns):
    low, high = numpy.split(heads, 2, axis=-1)
    return numpy.concatenate([low * turns[:, 0] - high * turns[:, 1], high * turns[:, 0] + low * turns[:, 1]], axis=-1)


def open_two(monkeypatch, mute=False):
    device = open_gpu(monkeypatch, peer=True)
    cards = TwoCards(device.xp, mute)
    cards.kernels["decode_attention_fp8"] = cards.kernels["decode_attention"]
    for name, kernel in cards.kernels.items():
        monkeypatch.setitem(device.xp.KERNELS, name, kernel)
    for name, fields in (("Shape", SHAPE), ("Tensors", [(tensor, "u8") for tensor in TENSORS])):  # of step_epilogue.cuh
        monkeypatch.setitem(device.xp.TYPES, name, f"V{numpy.dtype(fields).itemsize}")
    monkeypatch.setattr(device.xp, "BY_HANDLE", {})  # a module keeps its kernels
    monkeypatch.setattr(device.xp._Graph, "launch", lambda graph, stream: cards.launch(graph, stream))
    monkeypatch.setattr(device.xp.cuda.runtime, "memGetInfo", lambda: (1 << 30, 1 << 30), raising=False)
    return device


def make_small(monkeypatch, kind="llama", batch=3, kv_dtype=None, **changes):
    device = open_two(monkeypatch, **changes)
    case = decode_step.make_case(found_of(kind, **SMALL), batch, 20, kv_dtype)
    assert SplitChain.unsupported(device, case) is None and OPERATOR.unsupported(device, case) is None
    return SplitChain.make_prepared(OPERATOR, device, case, {}, [OPERATOR.inputs(device, case, 1)])


@pytest.mark.parametrize(
    ("kind", "batch", "kv_dtype"), [("llama", 1, None), ("llama", 3, FP8), ("qwen2", 40, None), ("qwen2", 40, FP8)]
)
def test_two_cards_compute_what_one_card_computes(monkeypatch, kind, batch, kv_dtype):
    chain = make_small(monkeypatch, kind, batch, kv_dtype)
    check, _ = OPERATOR.check(chain, None)
    assert check.relative_error < check.tolerance and "all logits" in check.compared


@pytest.mark.gpu
def test_two_real_cards_compute_what_one_card_computes():
    """The tests of a pair run in another process, since this one may have opened a GPU, and then sees only that."""
    command = (sys.executable, "-P", "-m", "pytest", "-q", "-rs", "-m", "pair", "-p", "no:cacheprovider", __file__)
    done = subprocess.run(command, env=ENVIRONMENT, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if " passed" not in done.stdout:
        pytest.skip(done.stdout)


@pytest.mark.pair
@pytest.mark.parametrize("kv_dtype", [None, FP8])
@pytest.mark.parametrize("batch", [1, 20, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_computes_what_one_card_computes(kind, batch, kv_dtype):
    device = open_real_pair()
    case = decode_step.make_case(found_of(kind, **SMALL | {"head_dim": 128}), batch, 100, kv_dtype)
    if device is None or (reason := SplitChain.unsupported(device, case)):
        pytest.skip("it takes two GPUs" if device is None else reason)
    chain = SplitChain.make_prepared(OPERATOR, device, case, {}, [OPERATOR.inputs(device, case, 1)])
    check, _ = OPERATOR.check(chain, None)
    assert "all logits" in check.compared
    for index in range(20):
        chain.step(None)(index)
    OPERATOR.compare(chain, None, 0, chain.logits)


@cache
def open_real_pair():
    """Return the first GPU with the second as its peer; None if there are not two."""
    gpus = [name for name, identity in discovery.discover().items() if identity.kind == "gpu"]
    return discovery.open_device(*gpus[:2]) if len(gpus) > 1 else None


def test_a_card_that_is_not_heard_is_an_error_that_names_both(monkeypatch):
    with pytest.raises(RuntimeError, match="gpu0 waited a second for gpu1"):
        OPERATOR.check(make_small(monkeypatch, mute=True), None)


@pytest.mark.parametrize("name", ["1.qkv", "1.o", "1.gate_up", "1.down", "1.keys", "head"])
def test_a_wrong_part_of_one_card_is_an_error(monkeypatch, name):
    chain = make_small(monkeypatch)
    whole = OPERATOR._join_on_one_card(chain)
    array = chain.cards[1].weights[name]
    array[:] = array[::-1].copy()
    monkeypatch.setattr(OPERATOR, "_join_on_one_card", lambda chain: whole)
    with pytest.raises(ArithmeticError, match=r"layer 1|the first layer|the logits"):
        OPERATOR.check(chain, None)


def test_a_step_counts_the_work_of_one_card():
    entry = config_file.find_model("llama-3-70b")
    case = decode_step.make_case(entry, 1, 1024)
    whole = decode_step.DecodeStep()
    assert OPERATOR.flops(case) == whole.flops(case) // 2
    assert OPERATOR.bytes(case) == pytest.approx(whole.bytes(case) / 2, rel=1e-3)


def test_a_step_takes_two_of_three_cards():
    names = ["gpu0", "gpu1", "gpu2"]
    card = Identity("", "gpu", "NVIDIA H200", "", "580", 1 << 37, 1 << 37, 1 << 23, "9.0")
    cards = {name: replace(card, device=name, uuid=name) for name in names}
    checked = settings.complete({"operators": [split_step.__file__], "devices": names})
    plan = RunPlan(checked, cards, names, None)
    assert plan.measured_together("gpu0", plan.peer_level("split_step", "gpu0")) == ["gpu0", "gpu1"]


@pytest.mark.parametrize(
    ("changes", "words"), [({"num_key_value_heads": 1}, "kv_heads 1"), ({"vocab_size": 1032}, "vocabulary")]
)
def test_what_two_cards_cannot_halve_is_skipped_by_name(monkeypatch, changes, words):
    case = decode_step.make_case(found_of("llama", **SMALL | changes), 1, 20)
    assert words in SplitChain.unsupported(open_two(monkeypatch), case)


class TwoGpuRun(LargerGpuRun):
    environment = LargerGpuRun.environment | {"FAKE_GPUS": "GPU-1111=NVIDIA H200,GPU-2222=NVIDIA H200"}


@pytest.mark.slow
def test_the_command_opens_both_cards(tmp_path):
    """The stand-ins have too little memory for this model."""
    run = TwoGpuRun(tmp_path)
    command = "-P", CHECKOUT / "tools/decoding/decoding.py", "llama-3-8b", "--measure", "--card", "NVIDIA H200"
    done = run.python(*command, "--cards=2", "--batch=1")
    assert done.returncode == 0 and "fit: 7.79 GiB" in " ".join(done.stdout.split()), done.stdout + done.stderr
    record = run.read("decoding/results/gpu0/split_step/llama-3-8b_bf16.json")
    assert record["measurements"] == [] and any(path.endswith("split_step.cu") for path in record["sources"])
    done = LargerGpuRun(tmp_path).python(*command, "--cards=2")
    assert done.returncode == 1 and (done.stdout + done.stderr).startswith("MEASURE=1: CARDS is 2")
    done = run.python(*command, "--cards=4")
    assert done.returncode == 1 and (done.stdout + done.stderr).startswith("MEASURE=1: CARDS is 4")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["split_step.cu", "embed.cu"])
@pytest.mark.parametrize("dtype", ["-DBF16=1", "-DBF16=0"])
def test_kernels_compile_without_a_remark(name, dtype):
    path = KERNELS / name
    code = clean(read_kernel_source(path), name, 90, (dtype, "-DROWS=8"))
    assert code.registers and code.stack_bytes == 0


def test_the_memory_of_a_step_is_free_when_nothing_refers_to_it(monkeypatch):
    chain = make_small(monkeypatch)
    chain.step(None)(0)
    arrays = [ref(card.weights["0.qkv"]) for card in chain.cards]
    gc.disable()
    try:
        del chain
        assert [array() for array in arrays] == [None, None]
    finally:
        gc.enable()
