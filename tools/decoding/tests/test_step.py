"""The decode step of a model: sizes, arithmetic, counts, jobs and what is left out."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import config_file
import decode_step
import numpy
import pytest
from chain import ADDED, GATED, NONE, QKV, SMALL_TILES, Chain, step_epilogue
from dense import DenseModel, NotDense, read_dense
from fake_gpu import real_gpu
from number_formats import PLAIN_FORMATS
from operations import step_operations
from test_kernels import HOPPER, clean, gpu_limits
from workflow_run import CHECKOUT, LargerGpuRun, sha256

import reference
from reference import layer_shapes
from roofline.api import Case, UserError, array_dtype
from roofline.api import product_kernel as products
from roofline.devices.gpu.kernel_compiler import read_kernel_source
from roofline.plan import settings

OPERATOR, FILE = decode_step.DecodeStep(), decode_step.__file__
FP8 = "fp8_e4m3"
SHIPPED = ("llama-3.2-1b", "llama-3-8b", "qwen2.5-7b", "qwen3-8b", "mistral-nemo-12b")
TINY = {
    "torch_dtype": "bfloat16",
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": False,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
}
WINDOWS = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 2}
KINDS = {"llama": {}, "qwen2": WINDOWS, "qwen3": {**WINDOWS, "attention_bias": False}}


def found_of(kind: str, **changes) -> dict:
    return {"name": "tiny", "source": "made up", "config": {**TINY, "model_type": kind, **KINDS[kind], **changes}}


def shipped(name: str, *sizes) -> Case:
    return decode_step.make_case(config_file.find_model(name), *sizes)


def test_every_weight_of_the_model_has_an_array():
    for name in SHIPPED:
        model = read_dense(config_file.find_model(name))
        layer = sum(math.prod(shape) for shape in layer_shapes(model).values())
        around = model.vocabulary * model.hidden * (1 if model.tied else 2) + model.hidden
        assert model.layers * layer + around == config_file.read_model(config_file.find_model(name)).parameters


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("experts", config_file.find_model("gpt-oss-20b")),
        ("gelu", found_of("llama", hidden_act="gelu")),
        ("window", found_of("qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0)),
        ("yarn", found_of("llama", rope_scaling={"rope_type": "yarn", "factor": 4.0})),
        ("rope_theta '1e6'", found_of("llama", rope_theta="1e6")),
    ],
)
def test_what_is_not_dense_is_refused_by_key_or_value(word, found):
    with pytest.raises(NotDense, match=word):
        read_dense(found)


def drawn(model: DenseModel, batch: int, tokens: int) -> tuple[dict, numpy.ndarray]:
    random = numpy.random.default_rng(3)
    of_layer = layer_shapes(model)
    wanted = {f"{layer}.{name}": shape for layer in range(model.layers) for name, shape in of_layer.items()}
    wanted |= {"embedding": (model.vocabulary, model.hidden), "head": (model.vocabulary, model.hidden)}
    wanted["last_norm"] = (model.hidden,)
    weights = {name: random.standard_normal(shape) * 0.2 for name, shape in wanted.items()}
    return weights, random.integers(0, model.vocabulary, (batch, tokens))


def whole_sequence(model: DenseModel, weights: dict, tokens) -> numpy.ndarray:
    """Logits after the last of one sequence's tokens: number by number, without a cache."""

    def norm(x, g):
        return [
            value / math.sqrt(sum(v * v for v in x) / len(x) + model.eps) * of for value, of in zip(x, g, strict=True)
        ]

    def rotated(x, place):
        half = model.head_size // 2
        speeds = [model.theta ** (-2 * pair / model.head_size) for pair in range(half)]
        pairs = [
            complex(x[i], x[i + half]) * complex(math.cos(place * s), math.sin(place * s)) for i, s in enumerate(speeds)
        ]
        return numpy.array([one.real for one in pairs] + [one.imag for one in pairs])

    stream = [list(weights["embedding"][token]) for token in tokens]
    size, share = model.head_size, model.heads // model.kv_heads
    for layer in range(model.layers):
        of = {name.partition(".")[2]: array for name, array in weights.items() if name.startswith(f"{layer}.")}
        made = []
        for place, x in enumerate(stream):
            all_heads = (of["qkv"] @ norm(x, of["input_norm"]) + of.get("bias", 0)).reshape(-1, size)
            heads = []
            for head, y in enumerate(all_heads):
                is_value, is_key = head >= model.heads + model.kv_heads, head >= model.heads
                if model.norms and not is_value:
                    y = norm(y, of["key_norm" if is_key else "query_norm"])
                heads.append(y if is_value else rotated(y, place))
            made.append(heads)
        for place in range(len(tokens)):
            attended = []
            for head in range(model.heads):
                key, value = model.heads + head // share, model.heads + model.kv_heads + head // share
                seen = range(place + 1)
                scores = [math.exp(made[place][head] @ made[one][key] / math.sqrt(size)) for one in seen]
                attended += list(
                    sum(score * made[one][value] for score, one in zip(scores, seen, strict=True)) / sum(scores)
                )
            x = stream[place] + of["o"] @ attended
            gate, up = numpy.split(of["gate_up"] @ norm(x, of["middle_norm"]), 2)
            stream[place] = x + of["down"] @ [u * g / (1 + math.exp(-g)) for g, u in zip(gate, up, strict=True)]
    return weights["head"] @ norm(stream[-1], weights["last_norm"])


def test_a_step_on_an_fp8_cache_rounds_the_new_token_to_it():
    model, context = read_dense(found_of("llama")), 5
    weights, given = drawn(model, 2, 1)
    shape, random = (2, model.kv_heads, context, model.head_size), numpy.random.default_rng(4)
    names = [f"{layer}.{name}" for layer in range(model.layers) for name in ("keys", "values")]
    cache = {name: random.standard_normal(shape).astype(array_dtype(FP8)).view(numpy.uint8) for name in names}
    cache |= {f"{name}_scales": random.uniform(0.5, 2, shape[:2]).astype(numpy.float32) for name in names}
    arrays = reference.to_float64(SimpleNamespace(to_host=numpy.array), cache)
    reference.run_step(model, {**weights, **arrays, "tokens": given[:, 0]})
    for name in names:
        numbers = arrays[name] / cache[f"{name}_scales"][..., None, None]
        assert numpy.allclose(numbers.astype(array_dtype(FP8)).astype(float), numbers, rtol=1e-6, atol=0)
        assert numbers[..., -1, :].any(), "the new token"


@pytest.mark.parametrize("kind", KINDS)
def test_steps_one_after_another_are_the_whole_sequence(kind):
    model, batch, tokens = read_dense(found_of(kind)), 2, 4
    weights, given = drawn(model, batch, tokens)
    names = [f"{layer}.{name}" for layer in range(model.layers) for name in ("keys", "values")]
    cache = {name: numpy.empty((batch, model.kv_heads, 0, model.head_size)) for name in names}
    for place in range(tokens):
        new = numpy.full((batch, model.kv_heads, 1, model.head_size), numpy.nan)
        cache = {name: numpy.concatenate([cache[name], new], axis=2) for name in names}
        logits = reference.run_step(model, {**weights, **cache, "tokens": given[:, place]})
        for sequence in range(batch):
            expected = whole_sequence(model, weights, given[sequence, : place + 1])
            assert numpy.allclose(logits[sequence], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kv_dtype", [None, FP8])
@pytest.mark.parametrize(("name", "batch", "context"), [("llama-3-8b", 1, 1024), ("llama-3.2-1b", 32, 100)])
def test_counts_are_those_of_the_bound(name, batch, context, kv_dtype):
    case, cache = shipped(name, batch, context, kv_dtype), PLAIN_FORMATS["fp8" if kv_dtype else "bf16"]
    found = step_operations(config_file.read_model(config_file.find_model(name)), batch, context, cache)
    assert OPERATOR.bytes(case) == sum(one.count * one.bytes for one in found)
    assert OPERATOR.flops(case) == sum(one.count * one.flops for one in found)


def complete(**section):
    return settings.complete({"devices": ["gpu0"], "operators": [FILE], "decode_step": section}).config


def test_every_model_has_a_job_and_what_cannot_run_is_named(tmp_path):
    path = tmp_path / "my model.json"
    path.write_text(json.dumps(found_of("qwen3")["config"]))
    jobs = OPERATOR.jobs(complete(models=["llama-3-8b", str(path)]))
    assert [job.path for job in jobs] == ["llama-3-8b_bf16", "my_model_bf16"]
    assert [case.shape for case in jobs[0].cases] == [{"batch": batch, "context": 1024} for batch in (1, 32)]
    (fp8,) = OPERATOR.jobs(complete(models=["llama-3-8b"], kv_dtype=FP8))
    assert fp8.path not in (job.path for job in jobs) and fp8.cases[0].preset != jobs[0].cases[0].preset
    assert OPERATOR.jobs(complete()) == []
    for model, word in {"mixtral-8x7b": "experts", "nope": "nope"}.items():
        with pytest.raises(UserError, match=rf"decode_step.models\[0\]: .*{word}"):
            complete(models=[model])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "norms", "fp8_cache", "head_size"),
    [(1, False, True, 128), (1, True, False, 128), (32, True, True, 64), (64, False, False, 128)],
)
def test_every_product_of_a_step_compiles_without_a_remark(batch, norms, fp8_cache, head_size):
    outputs = {QKV: 6144, ADDED: 4096, GATED: 28672, NONE: 128256}
    for kind, count in outputs.items():
        heads = {"head_size": head_size, "whole_heads": norms} if kind == QKV else {}
        groups = SMALL_TILES.get(kind) if batch == 1 and not norms else None
        task = products.GemmTask(batch, count, 4096, leaves_squares=kind == ADDED, groups=groups, **heads)
        plan = products.plan_gemm(task, gpu_limits(90))
        epilogue = step_epilogue(kind, head_size, norms=norms, bias=True, fp8_cache=fp8_cache)
        source, _, options = plan.kernel_spec("bf16", epilogue)
        defines = tuple(option for option in options if option.startswith("-D"))
        code = clean(read_kernel_source(source), source.name, HOPPER, defines)
        assert plan.shared_bytes + code.shared_bytes <= gpu_limits(90).shared_per_block
        assert groups is None or plan.columns == groups * products.OUTPUTS_PER_GROUP


SMALL = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 4096}
# Products of queries, keys and values with more tiles than an H200 has multiprocessors: blocks take two in turn.
MANY_HEADS = {"num_attention_heads": 64, "num_key_value_heads": 8}
FIRST, TOKENS = 33, 8


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "kv_dtype"), [("fp16", None), ("bf16", None), ("fp16", FP8), ("bf16", FP8)])
@pytest.mark.parametrize("batch", [1, 20, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_one_after_another_agree_with_float64(kind, batch, dtype, kv_dtype):
    device, known = real_gpu(), {}
    heads = {"head_dim": 128, **({} if kv_dtype else MANY_HEADS)} if kind == "qwen3" else {"head_dim": 64}
    found = found_of(kind, **SMALL, **heads)
    if reason := Chain.unsupported(device, decode_step.make_case(found, batch, FIRST)):
        pytest.skip(reason)
    for context in range(FIRST, FIRST + TOKENS):
        case = replace(decode_step.make_case(found, batch, context, kv_dtype), dtype=dtype)
        case.params["kv_dtype"] = kv_dtype or dtype
        inputs = OPERATOR.inputs(device, case, 5)
        exact = reference.to_float64(device, inputs)
        for name, (array, expected) in known.items():
            before = (slice(None), slice(None), slice(-1)) if name.endswith((".keys", ".values")) else ...
            inputs[name][before], exact[name][before] = array, expected
        chain = Chain.make_prepared(OPERATOR, device, case, {}, [inputs])
        chain.step(None)(0)
        device.synchronize()
        expected = OPERATOR.reference(case, exact)
        stored = reference.to_float64(device, inputs) if kv_dtype else exact  # a later step reads it as it was rounded
        known = {name: (inputs[name], stored[name]) for name in inputs if name != "tokens"}
        got = device.to_host(chain.logits).astype("float64")
        error = numpy.linalg.norm(got - expected) / numpy.linalg.norm(expected)
        assert error <= OPERATOR.tolerance_of(case), context


@pytest.mark.slow
def test_the_command_measures_the_step_where_the_card_is_here(tmp_path):
    """The stand-in has too little memory for this model."""
    run, command = LargerGpuRun(tmp_path), ("-P", CHECKOUT / "tools/decoding/decoding.py", "llama-3-8b", "--measure")
    done = run.python(*command, "--card", "NVIDIA H200")
    assert done.returncode == 0, done.stdout + done.stderr
    record = run.read("decoding/results/gpu0/decode_step/llama-3-8b_bf16.json")
    assert record["measurements"] == [] and len(record["notes"]) == 2
    for name in ("decode_step.py", "chain.py", "dense.py", "operations.py", "config_fields.py", "kernels/embed.cu"):
        path = CHECKOUT / "tools/decoding" / name
        assert record["sources"][str(path)] == sha256(path), name
    sources = {Path(path).relative_to(CHECKOUT).as_posix() for path in record["sources"]}
    assert "tools/decoding/decoding.py" not in sources
    assert not any(path.startswith("workflow/") for path in sources)
    done = run.python(*command, "--card", "NVIDIA A100-SXM4-80GB")
    assert done.returncode == 1 and (done.stdout + done.stderr).startswith("MEASURE=1: ")
