"""Models: what they weigh and keep, as their checkpoints do; and configs that are no model's."""

import config_file
import pytest
from config_file import BadModel
from families import build
from number_formats import PLAIN

NAMES = list(config_file.shipped())
LLAMA = config_file.shipped()["llama-3-8b"]["config"]
FP8 = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {}}
# Parameters as the authors or Hugging Face's index print them, bytes of all tensors, numbers cached for 1000 tokens.
PUBLISHED = {
    "llama-3.2-1b": (1_235_814_400, 2_471_628_800, 16 * 2 * 8 * 64 * 1000),
    "llama-2-7b": (6_738_415_616, 13_476_831_232, 32 * 2 * 32 * 128 * 1000),
    "llama-3-8b": (8_030_261_248, 16_060_522_496, 32 * 2 * 8 * 128 * 1000),
    "llama-3.1-8b": (8_030_261_248, 16_060_522_496, 32 * 2 * 8 * 128 * 1000),
    "llama-3-70b": (70_553_706_496, 141_107_412_992, 80 * 2 * 8 * 128 * 1000),
    "qwen2.5-7b": (7_615_616_512, 15_231_233_024, 28 * 2 * 4 * 128 * 1000),
    "qwen3-8b": (8_190_735_360, 16_381_470_720, 36 * 2 * 8 * 128 * 1000),
    "mistral-nemo-12b": (12_247_782_400, 24_495_564_800, 40 * 2 * 8 * 128 * 1000),
    "mixtral-8x7b": (46_702_792_704, 93_405_585_408, 32 * 2 * 8 * 128 * 1000),
    "gpt-oss-20b": (20_914_757_184, 13_761_264_768, 12 * 2 * 8 * 64 * (128 + 1000)),  # half of the layers have a window
    "deepseek-v3": (671_026_419_200, 673_150_611_808, 61 * (512 + 64) * 1000),  # without its second token's layer
    "gpt-2": (124_439_808, 497_759_232, 12 * 2 * 12 * 64 * 1000),
}


def model(name, **changed):
    found = config_file.find(name)
    return build(name, "made up", {**found["config"], **changed})


def without(name, *fields):
    return {key: value for key, value in config_file.shipped()[name]["config"].items() if key not in fields}


@pytest.mark.parametrize("name", NAMES)
def test_weights_parameters_and_cache_are_those_of_the_checkpoint_to_the_byte(name):
    found, (parameters, weight_bytes, cached) = model(name), PUBLISHED[name]
    assert (found.parameters, found.weight_bytes) == (parameters, weight_bytes)
    assert found.cache_bytes(1000, PLAIN["bf16"]) == 2 * cached == 2 * found.cache_bytes(1000, PLAIN["fp8"])


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
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": FP8}, "ignore": ["lm_head"]}, 8),
    ],
)
def test_a_quantised_models_layers_are_stored_in_fewer_bits_and_its_head_is_not(quantised, bits):
    found = model("llama-3-8b", quantization_config=quantised)
    matrices = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)  # of the layers
    assert found.weight_bytes == pytest.approx(matrices * bits / 8 + 2 * (8_030_261_248 - matrices), rel=1e-6)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba"}, ["mamba", "llama"]),
        ({}, ["model_type"]),
        (LLAMA | {"hidden_size": -1}, ["hidden_size", "-1"]),
        (LLAMA | {"num_key_value_heads": 7}, ["num_key_value_heads", "7", "32"]),
        (LLAMA | {"ssm_state": 16}, ["ssm_state", "cost"]),
        (LLAMA | {"quantization_config": {"quant_method": "hqq"}}, ["hqq", "awq"]),
        ([1], ["list"]),
    ],
)
def test_what_is_no_model_is_named_by_its_field_and_value(config, words):
    with pytest.raises(BadModel) as caught:
        build("mine", "mine.json", config)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_a_name_or_a_file_of_no_model_is_named(tmp_path):
    with pytest.raises(BadModel, match=r"config\.json.* llama-3-8b"):
        config_file.find("x")
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(BadModel, match=str(path)):
        config_file.read(config_file.find(str(path)))
