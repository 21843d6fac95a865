"""Weights on disk: generated and read back, in both namings, and what is refused."""

import json
import pickle
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import load_file, save_file

from roofline.operators.decode_attention.checkpoint import (
    BadCheckpoint,
    Preset,
    generate,
    inspect,
    is_generated,
    load_layer,
)
from roofline.records.files import file_sha256

PRESET = Preset(layers=2, heads=2, head_size=4)
SIZE = 8


@pytest.fixture
def path(tmp_path):
    """A generated checkpoint."""
    generate(tmp_path / "made" / "weights.safetensors", PRESET, seed=1)
    return tmp_path / "made" / "weights.safetensors"


def saved(tensors, path):
    save_file({name: numpy.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


def of_all_layers(path):
    """The tensors of a model of the preset: what is generated holds the first layer alone, and the other is added."""
    tensors = load_file(path)
    more = {name.replace(".h.0.", ".h.1."): 2 * array for name, array in tensors.items() if ".h.0." in name}
    return tensors | more


def changed(path, change=None, **arrays):
    """The checkpoint of a model with other arrays by the end of their name; None leaves one out."""
    tensors = of_all_layers(path)
    for ending, array in arrays.items():
        (name,) = [name for name in tensors if name.endswith(ending.replace("__", "."))]
        tensors[name] = array
    kept = {name: array for name, array in tensors.items() if array is not None}
    return saved(change(kept) if change else kept, path.with_name("changed.safetensors"))


# ---------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("layers", [1, 2])
def test_what_is_stored_is_read_back(path, layers):
    """Of what is generated the first layer, which is all that is there; of a whole model every layer."""
    path = path if layers == 1 else changed(path)
    assert inspect(path, PRESET) == "minigpt"
    assert is_generated(path) == (layers == 1)
    stored = load_file(path)
    assert stored["transformer.wte.weight"].std() == pytest.approx(0.02, rel=0.1)  # as GPT-2 is initialised
    for layer in range(layers):
        weights, hidden, naming, source = load_layer(path, PRESET, batch=3, layer=layer)
        name = f"transformer.h.{layer}.attn."
        assert numpy.array_equal(weights["query"], stored[f"{name}c_attn.weight"][:SIZE].T)
        assert numpy.array_equal(weights["query_bias"], stored[f"{name}c_attn.bias"][:SIZE])
        assert numpy.array_equal(weights["output"], stored[f"{name}c_proj.weight"].T)
        assert numpy.array_equal(weights["output_bias"], stored[f"{name}c_proj.bias"])
        assert {array.dtype for array in weights.values()} == {numpy.dtype("f4")}
        assert hidden.shape == (3, SIZE) and hidden.dtype == numpy.float32
        assert (naming, source) == ("minigpt", "token and position embeddings, normalised")


# Query heads, K/V heads; a projection of hidden x (heads + 2 K/V heads) x head size.
GROUPED = [(4, 1), (4, 2), (4, 4), (6, 3), (32, 8)]


@pytest.mark.parametrize(("heads", "kv_heads"), GROUPED)
def test_fewer_kv_heads_have_narrower_keys_and_values(tmp_path, heads, kv_heads):
    preset, file = Preset(layers=1, heads=heads, head_size=4, kv_heads=kv_heads), tmp_path / "grouped.safetensors"
    assert (preset.hidden_size, preset.projected_size) == (4 * heads, 4 * (heads + 2 * kv_heads))
    assert Preset(2, 3, 4) == Preset(2, 3, 4, kv_heads=3)
    generate(file, preset, seed=1)
    stored = load_file(file)
    assert stored["transformer.h.0.attn.c_attn.weight"].shape == (preset.projected_size, preset.hidden_size)
    assert stored["transformer.h.0.attn.c_attn.bias"].shape == (preset.projected_size,)
    assert stored["transformer.h.0.attn.c_proj.weight"].shape == (preset.hidden_size, preset.hidden_size)
    turned = saved({name: array.T if "attn" in name else array for name, array in stored.items()}, tmp_path / "gpt2")
    for path, naming in ((file, "minigpt"), (turned, "gpt2")):
        assert inspect(path, preset) == naming
        weights, hidden, _, _ = load_layer(path, preset, batch=3)
        assert numpy.array_equal(weights["query"], stored["transformer.h.0.attn.c_attn.weight"][: 4 * heads].T)
        assert weights["query_bias"].shape == (4 * heads,) and hidden.shape == (3, 4 * heads)


def test_the_same_seed_gives_the_same_bytes(path, tmp_path):
    generate(tmp_path / "same.safetensors", PRESET, seed=1)
    generate(tmp_path / "other.safetensors", PRESET, seed=2)
    assert (
        file_sha256(tmp_path / "same.safetensors") == file_sha256(path) != file_sha256(tmp_path / "other.safetensors")
    )
    assert sorted(file.name for file in tmp_path.glob("*.*")) == ["other.safetensors", "same.safetensors"]


@pytest.mark.parametrize("prefix", ["", "transformer.", "_orig_mod.transformer.", "module.transformer."])
def test_prefixes_of_wrappers(path, prefix):
    renamed = changed(path, lambda tensors: {n.replace("transformer.", prefix, 1): a for n, a in tensors.items()})
    assert inspect(renamed, PRESET) == "minigpt"
    assert not is_generated(renamed)
    expected, hidden, _, _ = load_layer(path, PRESET, batch=2)
    found, hidden_too, _, source = load_layer(renamed, PRESET, batch=2)
    assert all(numpy.array_equal(found[name], expected[name]) for name in expected)
    assert numpy.array_equal(hidden, hidden_too) and source.startswith("token and position")


# ---------------------------------------------------------------------------------------------- the hidden state


def test_the_hidden_state_is_that_of_tokens_after_the_first_normalisation(path):
    """Each of one token and the one position: mean 0 and variance 1, then scaled and shifted."""
    scale, shift = numpy.arange(1, SIZE + 1, dtype="f4"), numpy.linspace(-1, 1, SIZE, dtype="f4")
    file = changed(path, h__0__ln_1__weight=scale, h__0__ln_1__bias=shift)
    _, hidden, _, _ = load_layer(file, PRESET, batch=40)
    tokens, positions = (load_file(file)[f"transformer.{name}.weight"].astype("f8") for name in ("wte", "wpe"))
    normalised = (hidden - shift) / scale
    assert normalised.mean(axis=1) == pytest.approx(numpy.zeros(40), abs=1e-5)
    sums = (tokens[None] + positions[:, None]).reshape(-1, SIZE)
    every = (sums - sums.mean(axis=1, keepdims=True)) / numpy.sqrt(sums.var(axis=1, keepdims=True) + 1e-5)
    nearest = [numpy.abs(every - one).max(axis=1).argmin() for one in normalised]
    assert normalised == pytest.approx(every[nearest], abs=1e-4)
    assert len({index // len(tokens) for index in nearest}) == 1  # one position
    assert len({index % len(tokens) for index in nearest}) > 20  # of many tokens


@pytest.mark.parametrize("missing", ["wte__weight", "wpe__weight"])
def test_without_embeddings_it_is_random_and_says_so(path, missing):
    file = changed(path, **{missing: None})
    _, hidden, _, source = load_layer(file, PRESET, batch=3, seed=5)
    assert hidden.shape == (3, SIZE) and hidden.dtype == numpy.float32
    assert source == "seeded normal numbers (no embeddings in the file)"
    assert numpy.array_equal(hidden, load_layer(file, PRESET, batch=3, seed=5)[1])


# ---------------------------------------------------------------------------------------------- what is refused


def refused(path, preset=PRESET):
    """The one line with which both inspecting and loading refuse a file."""
    refusals = []
    for read in (lambda: inspect(path, preset), lambda: load_layer(path, preset, batch=1)):
        with pytest.raises(BadCheckpoint) as raised:
            read()
        refusals.append(str(raised.value))
    assert refusals[0] == refusals[1]
    assert refusals[0].startswith(f"model.checkpoint {path}: ") and "\n" not in refusals[0]
    return refusals[0].removeprefix(f"model.checkpoint {path}: ")


def header_of(content, tail=b""):
    header = json.dumps(content).encode()
    return len(header).to_bytes(8, "little") + header + tail


NOT_SAFETENSORS = "not a safetensors file (pickles are never loaded)"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "no safetensors header (a pickle, or truncated)"),
        (b"short", "no safetensors header (a pickle, or truncated)"),
        (pickle.dumps({"a": list(range(100))}), "no safetensors header (a pickle, or truncated)"),
        ((20).to_bytes(8, "little") + b"{" * 20, NOT_SAFETENSORS),
        ((4).to_bytes(8, "little") + b"\xff\xfe\xff\xfe", NOT_SAFETENSORS),
        (header_of([1, 2]), NOT_SAFETENSORS),
        (header_of({"a": {"dtype": "F32", "shape": [1]}}), NOT_SAFETENSORS),
        (header_of({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)), NOT_SAFETENSORS),
        (header_of({"a": 7}), NOT_SAFETENSORS),
        (header_of({}), "no h.0.attn.c_attn.weight in it; allowed: MiniGPT's or GPT-2's naming"),
    ],
)
def test_files_of_another_kind(tmp_path, content, fault):
    file = tmp_path / "weights.pt"
    file.write_bytes(content)
    assert refused(file) == fault


def test_a_pipe_or_a_device_is_not_waited_for():
    assert refused(Path("/dev/null")) == "not a regular file"


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"])
def test_a_file_cut_short_or_with_more_behind(path, change):
    size = path.stat().st_size
    path.write_bytes(change(path.read_bytes()))
    assert refused(path) == f"truncated: {path.stat().st_size} bytes where its header promises {size}"


def test_another_model(path):
    assert refused(path, Preset(2, 3, 4)) == (
        "h.0.attn.c_attn.weight is [24, 8]; 3 heads of 4 need [36, 12] (MiniGPT) or [12, 36] (GPT-2)"
    )
    assert refused(changed(path), Preset(3, 2, 4)) == "2 layers, the preset has 3"
    assert inspect(path, Preset(2, 4, 2)) == "minigpt"  # as many numbers in other heads


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"h__0__attn__c_proj__weight": None}, "no h.0.attn.c_proj.weight in it"),
        (
            {"h__0__attn__c_proj__weight": numpy.ones((8, 4), "f4")},
            "h.0.attn.c_proj.weight is [8, 4]; allowed: [8, 8]",
        ),
        ({"h__0__attn__c_attn__bias": numpy.ones(8, "f4")}, "h.0.attn.c_attn.bias is [8]; allowed: [24]"),
        ({"h__0__attn__c_proj__bias": numpy.ones((1, 8), "f4")}, "h.0.attn.c_proj.bias is [1, 8]; allowed: [8]"),
        ({"h__0__ln_1__weight": numpy.ones(5, "f4")}, "h.0.ln_1.weight is [5]; allowed: [8]"),
        ({"wte__weight": numpy.ones((9, 7), "f4")}, "wte.weight is [9, 7]; allowed: [any, 8]"),
        ({"wte__weight": numpy.ones((0, 8), "f4")}, "wte.weight is [0, 8]; allowed: [any, 8]"),
        ({"wpe__weight": numpy.ones(8, "f4")}, "wpe.weight is [8]; allowed: [any, 8]"),
    ],
)
def test_other_shapes_of_what_is_read(path, wrong, fault):
    assert refused(changed(path, **wrong)) == fault
