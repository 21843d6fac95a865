"""Models: what they weigh and keep, as their checkpoints do; and configs that are no model's."""

import config_file
import pytest
from config_file import BadModel
from families import build_model
from number_formats import PLAIN_FORMATS

NAMES = list(config_file.SHIPPED_MODELS)
LLAMA = config_file.SHIPPED_MODELS["llama-3-8b"]["config"]
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
    found = config_file.find_model(name)
    return build_model(name, "made up", {**found["config"], **changed})


def without(name, *fields):
    return {key: value for key, value in config_file.SHIPPED_MODELS[name]["config"].items() if key not in fields}


@pytest.mark.parametrize("name", NAMES)
def test_weights_parameters_and_cache_are_those_of_the_checkpoint_to_the_byte(name):
    found, (parameters, weight_bytes, cached) = model(name), PUBLISHED[name]
    assert (found.parameters, found.weight_bytes) == (parameters, weight_bytes)
    assert (
        found.cache_bytes(1000, PLAIN_FORMATS["bf16"])
        == 2 * cached
        == 2 * found.cache_bytes(1000, PLAIN_FORMATS["fp8"])
    )


def test_a_missing_field_is_taken_from_the_family():
    found = build_model("mine", "mine.json", without("mistral-nemo-12b", "sliding_window", "vocab_size"))
    assert found.assumed_defaults == {"sliding_window": "4096", "vocab_size": "32000"}
    assert {layer.attention.window for layer in found.layers} == {4096}


GEMMA = {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42}
GEMMA |= {"num_attention_heads": 16, "num_key_value_heads": 8}
GEMMA_3 = {"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "vocab_size": 262144}
GEMMA_3 |= {"num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512}
LITE = {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408}
LITE |= {"num_attention_heads": 16, "num_hidden_layers": 27, "num_experts_per_tok": 6, "first_k_dense_replace": 1}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (GEMMA, 9_241_705_984),  # gemma-2-9b
        (GEMMA_3, 999_885_952),  # gemma-3-1b
        ({"model_type": "gemma"}, 8_537_680_896),  # gemma-7b
        ({"model_type": "phi3"}, 3_821_079_552),  # Phi-3-mini
        (LITE | {"q_lora_rank": None}, 15_706_484_224),  # DeepSeek-V2-Lite
        # With 64 + 2 experts and their router in its first layer too: 2048 (64 + 3 (66 x 1408 - 10944)) more.
        (LITE | {"q_lora_rank": None, "first_k_dense_replace": 0}, 16_210_324_992),
    ],
)
def test_other_families_have_the_parameters_that_are_published(config, parameters):
    assert build_model("mine", "made up", config).parameters == parameters


S, F = "sliding_attention", "full_attention"
QWEN = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}


@pytest.mark.parametrize(
    ("kind", "fields", "windows"),
    [
        ("mistral", {"sliding_window": 64}, [64] * 4),
        ("mixtral", {"sliding_window": 64}, [64] * 4),
        ("mistral", {"sliding_window": None}, [None] * 4),
        ("phi3", {"sliding_window": 64}, [64] * 4),
        ("phi3", {}, [None] * 4),
        ("qwen2", QWEN, [None, 64, 64, 64]),
        ("qwen3", QWEN | {"layer_types": [F, S, F, S]}, [None, 64, None, 64]),
        ("qwen2", QWEN | {"use_sliding_window": False, "layer_types": [S] * 4}, [None] * 4),
        ("qwen2", {"max_window_layers": None}, [None] * 4),
        ("qwen2", QWEN | {"sliding_window": None}, [None] * 4),
        ("qwen3_moe", QWEN, [64] * 4),
        ("qwen3_moe", QWEN | {"use_sliding_window": False}, [None] * 4),
        ("gpt_oss", {"sliding_window": 64}, [64, None, 64, None]),
        ("gpt_oss", {"sliding_window": 64, "layer_types": [F, F, S, S]}, [None, None, 64, 64]),
        ("gemma2", {}, [4096, None, 4096, None]),
        ("gemma2", {"sliding_window": 64, "sliding_window_size": 64}, [64, None, 64, None]),
        ("gemma3_text", {"sliding_window": 64, "sliding_window_pattern": 3}, [64, 64, None, 64]),
        ("gemma3_text", {"sliding_window": 64}, [64] * 4),
    ],
)
def test_windows_are_switched_on_as_the_family_does(kind, fields, windows):
    found = build_model("mine", "made up", {"model_type": kind, "num_hidden_layers": 4, **fields})
    assert [layer.attention.window for layer in found.layers] == windows


def test_what_a_quantised_checkpoint_leaves_alone_is_in_16_bits_if_the_config_names_no_dtype():
    for name, others in (("gpt-oss-20b", {}), ("deepseek-v3", {"torch_dtype": None})):
        assert build_model("mine", "made up", without(name, "torch_dtype") | others).weight_bytes == PUBLISHED[name][1]
    inner, outer = without("llama-3-8b", "torch_dtype"), {"model_type": "llava", "dtype": "float16"}
    found = build_model("mine", "made up", outer | {"text_config": inner | {"torch_dtype": None}})
    assert found.weight_bytes == PUBLISHED["llama-3-8b"][1]


def test_fields_that_say_nothing_and_settings_of_generation_refuse_nothing():
    nothing = {"ssm_state": None, "n_mels": 0, "add_cross_attention": False, "pruned_heads": {}, "head_dim": None}
    found = build_model("mine", "made up", LLAMA | nothing | {"temperature": 0.7, "max_length": 20, "num_beams": 1})
    assert found.parameters == PUBLISHED["llama-3-8b"][0]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba"}, ["mamba", "state space"]),
        ({"model_type": "mambo"}, ["mambo", "llama"]),
        ({}, ["model_type"]),
        (LLAMA | {"hidden_size": -1}, ["hidden_size", "-1"]),
        (LLAMA | {"num_key_value_heads": 7}, ["num_key_value_heads", "7", "32"]),
        (LLAMA | {"num_key_value_heads": 0}, ["num_key_value_heads: 0", "1 or more"]),
        (LLAMA | {"head_dim": ""}, ["head_dim: ''", "1 or more"]),
        (LLAMA | {"quantization_config": False}, ["quantization_config: False", "mapping"]),
        (GEMMA | {"layer_types": {}}, ["layer_types: {}", "full_attention"]),
        (GEMMA | {"head_dim": None}, ["head_dim is missing"]),
        (GEMMA | {"sliding_window_pattern": 6}, ["sliding_window_pattern", "cost"]),
        (GEMMA_3 | {"sliding_window_pattern": None}, ["sliding_window_pattern is missing"]),
        (LLAMA | {"ssm_state": 16}, ["ssm_state", "cost"]),
        (LLAMA | {"add_cross_attention": True}, ["add_cross_attention", "cost"]),
        (LLAMA | {"pruned_heads": {"0": [1]}}, ["pruned_heads", "cost"]),
        (LLAMA | {"architectures": ["LlamaForSequenceClassification"]}, ["LlamaForSequenceClassification"]),
        (LLAMA | {"dtype": "float32"}, ["dtype", "float32", "bfloat16"]),
        (LLAMA | {"sliding_window": 4096}, ["sliding_window", "cost"]),
        (GEMMA | {"sliding_window": 64, "sliding_window_size": 32}, ["sliding_window_size", "32", "64"]),
        (LLAMA | {"quantization_config": {"quant_method": "hqq"}}, ["hqq", "awq"]),
        ([1], ["list"]),
    ],
)
def test_what_is_no_model_is_named_by_its_field_and_value(config, words):
    with pytest.raises(BadModel) as caught:
        build_model("mine", "mine.json", config)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_a_name_or_a_file_of_no_model_is_named(tmp_path):
    with pytest.raises(BadModel, match=r"config\.json.* llama-3-8b"):
        config_file.find_model("x")
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(BadModel, match=str(path)):
        config_file.read_model(config_file.find_model(str(path)))
