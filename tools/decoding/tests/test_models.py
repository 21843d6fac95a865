"""Models: what they weigh and keep, by the list of their tensors; and configs that are no model's."""

from math import prod

import config_file
import pytest
from config_file import BadModel
from families import build
from number_formats import PLAIN
from tensor_lists import PUBLISHED, TENSORS, cache_shapes, tensor_bytes

NAMES = list(config_file.shipped())
LLAMA = config_file.shipped()["llama-3-8b"]["config"]


def model(name, **changed):
    found = config_file.find(name)
    return build(name, "made up", {**found["config"], **changed})


def without(name, *fields):
    return {key: value for key, value in config_file.shipped()[name]["config"].items() if key not in fields}


@pytest.mark.parametrize("name", NAMES)
def test_weights_parameters_and_cache_are_those_of_the_tensors_to_the_byte(name):
    assert model(name).weight_bytes == tensor_bytes(TENSORS[name])
    assert model(name).parameters == PUBLISHED[name]
    numbers = sum(prod(shape) for shape in cache_shapes(name, 1000))
    assert (
        model(name).cache_bytes(1000, PLAIN["bf16"]) == 2 * numbers == 2 * model(name).cache_bytes(1000, PLAIN["fp8"])
    )


def test_a_missing_field_is_taken_from_the_family():
    found = build("mine", "mine.json", without("mistral-nemo-12b", "sliding_window", "vocab_size"))
    assert found.assumed == {"sliding_window": "4096", "vocab_size": "32000"}
    assert {layer.attention.window for layer in found.layers} == {4096}


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, 4 + 20 / 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {}}},
                "ignore": ["lm_head"],
            },
            8,
        ),
    ],
)
def test_a_quantised_models_layers_are_stored_in_fewer_bits_and_its_head_is_not(quantised, bits):
    found = model("llama-3-8b", quantization_config=quantised)
    layers = sum(prod(shape) for name, shape, _ in TENSORS["llama-3-8b"] if name[0].isdigit() and "norm" not in name)
    rest = tensor_bytes([one for one in TENSORS["llama-3-8b"] if not one[0][0].isdigit() or "norm" in one[0]])
    assert found.weight_bytes == pytest.approx(layers * bits / 8 + rest, rel=1e-6)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba"}, ["mamba", "llama"]),
        ({}, ["model_type"]),
        (LLAMA | {"hidden_size": None}, ["hidden_size", "missing"]),
        (LLAMA | {"hidden_size": -1}, ["hidden_size", "-1"]),
        (LLAMA | {"num_key_value_heads": 7}, ["num_key_value_heads", "7", "32"]),
        (LLAMA | {"num_hidden_layers": 10**9}, ["num_hidden_layers"]),
        (LLAMA | {"ssm_state": 16}, ["ssm_state", "cost"]),
        (LLAMA | {"x\x1b[31m": 16}, [r"x\x1b[31m", "cost"]),
        (LLAMA | {"quantization_config": {"quant_method": "hqq"}}, ["hqq", "awq"]),
        ([1], ["list"]),
    ],
)
def test_what_is_no_model_is_named_by_its_field_and_value(config, words):
    with pytest.raises(BadModel) as caught:
        build("mine", "mine.json", config)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_a_name_or_a_file_of_no_model_is_named(tmp_path):
    for named in ("", "x\x1b[31m", "/tmp"):
        with pytest.raises(BadModel, match=r"config\.json.* llama-3-8b") as caught:
            config_file.find(named)
        assert str(caught.value).isprintable()
    path = tmp_path / "config.json"
    for content in ("", "{", "null"):
        path.write_text(content)
        with pytest.raises(BadModel, match=str(path)):
            config_file.read(config_file.find(str(path)))
