"""Models: what they weigh and keep, as their checkpoints do; and configs that are no model's."""

import config_file
import operations
import pytest
from architecture import Attention
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
    found = build_model("mine", "made up", {"model_type": "qwen3_next", "full_attention_interval": 4})
    assert not {"full_attention_interval", "layer_types"} & found.assumed_defaults.keys()


GEMMA, GEMMA_3 = {"model_type": "gemma2"}, {"model_type": "gemma3_text"}
# Parameters and numbers cached for the first token, of the classes of transformers 5.24 without any setting, on its
# meta device; corrections of a router and scalars of layers, which are buffers there, are counted.
CLASS_DEFAULTS = {
    "llama": (6_738_415_616, 262_144),
    "granite": (6_738_415_616, 262_144),
    "arcee": (4_022_766_080, 163_840),
    "ernie4_5": (360_748_032, 9_216),
    "internlm3": (8_804_241_408, 24_576),
    "seed_oss": (28_921_040_896, 131_072),
    "smollm3": (3_075_098_624, 36_864),
    "apertus": (6_979_596_352, 262_144),
    "cohere": (34_980_831_232, 655_360),
    "cohere2": (34_980_831_232, 655_360),
    "olmo2": (6_888_624_128, 262_144),
    "olmo3": (6_888_624_128, 262_144),
    "glm4": (9_400_279_040, 20_480),
    "gemma": (8_537_680_896, 229_376),
    "gemma2": (2_614_341_888, 53_248),
    "gemma3_text": (2_628_658_432, 53_248),
    "gemma4_text": (5_077_177_886, 71_680),
    "mistral": (7_241_732_096, 65_536),
    "ministral3": (8_489_553_920, 69_632),
    "phi3": (3_821_079_552, 196_608),
    "mixtral": (46_702_792_704, 65_536),
    "granitemoe": (37_039_116_288, 262_144),
    "phimoe": (41_872_793_600, 65_536),
    "minimax_m2": (228_689_764_864, 126_976),
    "gpt_oss": (116_829_156_672, 36_864),
    "qwen2": (12_049_846_272, 262_144),
    "qwen2_5_vl_text": (72_706_203_648, 163_840),
    "qwen3": (12_049_461_248, 262_144),
    "qwen3_vl_text": (12_049_461_248, 262_144),
    "exaone4": (9_429_069_824, 262_144),
    "qwen3_moe": (15_350_731_776, 12_288),
    "qwen3_vl_moe_text": (13_173_956_608, 98_304),
    "qwen2_moe": (14_315_784_192, 98_304),
    "qwen3_next": (79_674_391_296, 12_288),
    "qwen3_5_moe_text": (34_660_610_688, 10_240),
    "qwen3_5_text": (8_953_803_264, 16_384),
    "deepseek_v3": (671_026_419_200, 35_136),
    "hy_v3": (295_033_543_488, 163_840),
    "llama4_text": (107_769_861_120, 98_304),
}


@pytest.mark.parametrize("model_type", CLASS_DEFAULTS)
def test_every_family_counts_as_its_class_does(model_type):
    found = build_model("mine", "made up", {"model_type": model_type})
    assert (found.parameters, found.cache_bytes(1, PLAIN_FORMATS["fp8"])) == CLASS_DEFAULTS[model_type]


GEMMA_4 = {"model_type": "gemma4_text", "tie_word_embeddings": True, "hidden_size_per_layer_input": 0}
GEMMA_4 |= {"attention_k_eq_v": True, "sliding_window": 1024}
A4B = {"hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30, "num_attention_heads": 16}
A4B |= {"num_key_value_heads": 8, "num_global_key_value_heads": 2, "enable_moe_block": True, "num_experts": 128}
A4B |= {"top_k_experts": 8, "moe_intermediate_size": 704}
E4B = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42, "num_key_value_heads": 2}
E4B |= {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 18, "attention_k_eq_v": False}
DOUBLE = {"use_double_wide_mlp": True}  # of the layers that share K/V
QWEN_27B = {"model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64}
QWEN_27B |= {"num_attention_heads": 24, "linear_num_value_heads": 48, "dtype": "bfloat16"}
MIMO = {"model_type": "mimo_v2", "hybrid_layer_pattern": [int(n > 0 and (n + 1) % 6 > 0) for n in range(48)]}
MIMO |= {"moe_layer_freq": [0] + [1] * 47, "n_shared_experts": None, "sliding_window": 128}
MAVERICK = {"model_type": "llama4_text", "num_local_experts": 128, "interleave_moe_layer_step": 2}
PLUS = {"model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792, "num_attention_heads": 96}
PLUS |= {"num_hidden_layers": 64, "num_key_value_heads": 8, "use_qk_norm": True}
GLM = {"model_type": "glm4_moe", "head_dim": 128, "attention_bias": True}
LITE = {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408}
LITE |= {"num_attention_heads": 16, "num_hidden_layers": 27, "num_experts_per_tok": 6, "q_lora_rank": None}


@pytest.mark.parametrize(
    ("config", "parameters", "cached", "cached_later"),
    [
        (GEMMA_4 | A4B, 25_233_141_790, 112_640, 10_240),  # gemma-4-26B-A4B
        (GEMMA_4 | E4B, 7_463_013_418, 28_672, 8_192),  # gemma-4-E4B
        (GEMMA_4 | E4B | DOUBLE, 7_463_013_418 + 18 * 3 * 2560 * 10240, 28_672, 8_192),
        (QWEN_27B, 26_895_998_464, 32_768, 32_768),  # Qwen3.6-27B
        (MIMO, 308_778_780_864, 111_360, 11_520),  # MiMo-V2.5
        (MAVERICK, 400_711_848_960, 98_304, 24_576),  # Llama-4-Maverick
        (PLUS, 103_810_674_688, 131_072, 131_072),  # Command R+
        (GLM, 106_852_251_264, 94_208, 94_208),  # GLM-4.5-Air
        (LITE | {"first_k_dense_replace": 1}, 15_706_484_224, 15_552, 15_552),  # DeepSeek-V2-Lite
        # With 64 + 2 experts and their router in its first layer too: 2048 (64 + 3 (66 x 1408 - 10944)) more.
        (LITE | {"first_k_dense_replace": 0}, 16_210_324_992, 15_552, 15_552),
    ],
)
def test_what_families_add_is_counted(config, parameters, cached, cached_later):
    """The numbers that are cached for the first token and, after every window is full, for a further one."""
    found, fp8 = build_model("mine", "made up", config), PLAIN_FORMATS["fp8"]
    later = found.cache_bytes(20_001, fp8) - found.cache_bytes(20_000, fp8)
    assert (found.parameters, found.cache_bytes(1, fp8), later) == (parameters, cached, cached_later)


def test_layers_that_share_keys_and_values_keep_none_and_read_those_of_others():
    found, context, fp8 = build_model("mine", "made up", GEMMA_4 | E4B), 1000, PLAIN_FORMATS["fp8"]
    step = operations.step_operations(found, 3, context, fp8)
    # 7 of 42 layers attend to all with heads of 512, 3 of them with K/V of others; 35 to 1000 with heads of 256.
    of_others = 3 * 2 * 2 * 512 + 15 * 2 * 2 * 256
    read = (7 * 2 * 2 * 512 + 35 * 2 * 2 * 256) * (context - 1) + found.cache_bytes(1, fp8)
    assert sum(o.count * o.bytes for o in step if o.part == "KV cache") == 3 * read
    assert found.cache_bytes(context, fp8) == read - of_others * (context - 1)


def test_a_state_is_apart_from_keys_and_values():
    found = build_model("mine", "made up", QWEN_27B)
    # 48 layers of 48 heads of 128 x 128 in fp32, and 3 inputs of the convolution in bf16.
    assert found.state_bytes == 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)
    assert found.sequence_bytes(1000, PLAIN_FORMATS["bf16"]) == 1000 * 65_536 + found.state_bytes


def test_a_chunk_is_kept_whole_and_attended_to_from_its_start():
    attention = Attention(1, 1, 1, window=4, chunked=True)
    assert [attention.attended_tokens(context) for context in range(1, 10)] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert [attention.kept_tokens(context) for context in (3, 4, 9)] == [3, 4, 4]
    assert attention.attended_pairs(9) == sum(map(attention.attended_tokens, range(1, 10)))
    assert attention.list_knots(2, 9) == {4, 5, 8}


def test_names_that_transformers_saves_are_those_of_the_files():
    coder = {"model_type": "qwen3_moe", "num_experts": 64, "use_qk_norm": True, "_num_labels": 1}
    saved = {"num_local_experts" if key == "num_experts" else key: value for key, value in coder.items()}
    assert build_model("a", "b", coder).layers == build_model("a", "b", saved).layers
    deepseek = config_file.SHIPPED_MODELS["deepseek-v3"]["config"]
    assert build_model("a", "b", deepseek | {"qk_head_dim": 192}).parameters == PUBLISHED["deepseek-v3"][0]
    layers = {f"{layer:02}": {"head_dim": 128, "num_key_value_heads": 4} for layer in range(5, 30, 6)}
    gemma = build_model("a", "b", GEMMA_4 | A4B | {"per_layer_config": layers})
    assert {layer.attention.cached_numbers for layer in gemma.layers} == {2 * 4 * 128, 2 * 8 * 256}


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
        ({"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear"}}, ["kimi_k3", "Delta"]),
        ({"model_type": "x", "text_config": {"model_type": "deepseek_v32"}}, ["deepseek_v32", "indexer"]),
        ({"model_type": "deepseek_v3", "qk_head_dim": 128}, ["qk_head_dim", "128"]),
        ({"model_type": "mimo_v2"}, ["hybrid_layer_pattern"]),
        (GEMMA_4 | {"num_kv_shared_layers": 30}, ["num_kv_shared_layers"]),
        (GEMMA_4 | {"per_layer_config": {"5": 3}}, ["per_layer_config", "3"]),
        (GEMMA_4 | {"per_layer_config": {"5": {"intermediate_size": 3}}}, ["per_layer_config.5.intermediate_size"]),
        ({"model_type": "glm4_moe", "head_dim": 128, "v_head_dim": 64}, ["v_head_dim"]),
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
        (LLAMA | {"num_local_experts": 8}, ["num_local_experts", "free_fields.yaml"]),
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
