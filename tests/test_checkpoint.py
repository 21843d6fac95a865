"""Weights on disk: generated, read back in both namings, and refused."""

import contextlib
import json
import pickle
from pathlib import Path

import ml_dtypes
import numpy
import pytest
from safetensors.numpy import load_file, save_file

from roofline.core.terms import UserError
from roofline.operators.decode_attention import checkpoint

PRESET = checkpoint.Preset(layers=2, heads=2, head_size=4)
SIZE = 8


@pytest.fixture
def path(tmp_path):
    """A generated checkpoint."""
    checkpoint.make_checkpoint(tmp_path / "made" / "weights.safetensors", PRESET.model_dump() | {"seed": 1})
    return tmp_path / "made" / "weights.safetensors"


def whole(path):
    """The checkpoint of a whole model: what is generated holds the first layer alone, and the other is added."""
    tensors = load_file(path)
    tensors |= {name.replace(".h.0.", ".h.1."): 2 * array for name, array in tensors.items() if ".h.0." in name}
    save_file(tensors, path.with_name("whole.safetensors"))
    return path.with_name("whole.safetensors")


@pytest.mark.parametrize("layers", [1, 2])
def test_what_is_stored_is_read_back(path, layers):
    path = path if layers == 1 else whole(path)
    assert (checkpoint.check_checkpoint(path, PRESET), checkpoint.is_generated(path)) == ("minigpt", layers == 1)
    stored = load_file(path)
    assert stored["transformer.wte.weight"].std() == pytest.approx(0.02, rel=0.1)  # as GPT-2 is initialised
    weights, hidden, naming, _ = checkpoint.load_layer(path, PRESET, batch=3)
    name = "transformer.h.0.attn."
    assert numpy.array_equal(weights["query"], stored[f"{name}c_attn.weight"][:SIZE].T)
    assert numpy.array_equal(weights["query_bias"], stored[f"{name}c_attn.bias"][:SIZE])
    assert numpy.array_equal(weights["output"], stored[f"{name}c_proj.weight"].T)
    assert numpy.array_equal(weights["output_bias"], stored[f"{name}c_proj.bias"])
    assert {array.dtype for array in weights.values()} == {numpy.dtype("f4")}
    assert (hidden.shape, hidden.dtype, naming) == ((3, SIZE), numpy.float32, "minigpt")


def test_an_npz_of_the_same_weights_is_read_like_safetensors(path):
    npz = path.with_suffix(".npz")
    numpy.savez(npz, **load_file(whole(path)))
    assert (checkpoint.check_checkpoint(npz, PRESET), checkpoint.is_generated(npz)) == ("minigpt", False)
    weights, hidden, _, source = checkpoint.load_layer(npz, PRESET, batch=3)
    expected, expected_hidden, _, expected_source = checkpoint.load_layer(path, PRESET, batch=3)
    assert all(numpy.array_equal(weights[name], expected[name]) for name in expected)
    assert numpy.array_equal(hidden, expected_hidden) and source == expected_source


def test_an_npz_with_pickled_objects_is_refused(tmp_path):
    numpy.savez(tmp_path / "bad.npz", **{"h.0.attn.c_attn.weight": numpy.array([{}, {}], dtype=object)})
    (tmp_path / "short.npz").write_bytes((tmp_path / "bad.npz").read_bytes()[:40])
    for name in ("bad.npz", "short.npz"):
        with pytest.raises(UserError, match=r"not a safetensors or \.npz file"):
            checkpoint.check_checkpoint(tmp_path / name, PRESET)


def test_an_npz_of_numpys_bf16_or_encrypted_is_refused_and_one_with_a_mask_is_read(path):
    arrays, npz = load_file(whole(path)), path.with_suffix(".npz")
    numpy.savez(npz, **arrays, **{"transformer.h.0.attn.bias": numpy.ones((1, 1, 9, 9), bool)})
    assert checkpoint.check_checkpoint(npz, PRESET) == "minigpt"
    content = bytearray(npz.read_bytes())
    content[content.index(b"PK\3\4") + 6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    npz.write_bytes(content)
    refused(npz, [".npz file"])
    numpy.savez(npz, **{name: array.astype(ml_dtypes.bfloat16) for name, array in arrays.items()})
    refused(npz, [".npz file of floats"])


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_a_byte_of_an_npz_that_was_changed_is_a_fault_in_one_line(path, save):
    npz = path.with_suffix(".npz")
    save(npz, **load_file(whole(path)))
    content = npz.read_bytes()
    lines = []
    for place in range(0, len(content), 101):
        npz.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with contextlib.suppress(UserError):  # not every byte is read
            checkpoint.load_layer(npz, PRESET, batch=3)
            continue
        lines.append(place)
    assert len(lines) > len(content) // 1000


def refused(path, figures):
    """A line that holds the path and the figures."""
    with pytest.raises(UserError) as raised:
        checkpoint.check_checkpoint(path, PRESET)
    line = str(raised.value)
    assert line.startswith(f"model.checkpoint {path}: ") and "\n" not in line
    assert all(figure in line.removeprefix(f"model.checkpoint {path}: ") for figure in figures)


def header_of(content):
    header = json.dumps(content).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps({"a": list(range(100))}),
        (20).to_bytes(8, "little") + b"{" * 20,
        header_of({"a": {"dtype": "F32", "shape": [1]}}),
        header_of({}),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, content):
    file = tmp_path / "weights.pt"
    file.write_bytes(content)
    refused(file, ["h.0.attn.c_attn.weight"] if content == header_of({}) else ["safetensors"])
    refused(Path("/dev/null"), [])  # not waited for
