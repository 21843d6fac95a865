"""Bits by module: each way that a config, or a file next to it, describes quantised weights."""

import json

import config_file
import pytest
from config_file import BadModel
from families import build_model

# A made-up model: its matrices by name, each in both layers, then the head.
TINY = {"model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 512, "max_position_embeddings": 64}
TINY |= {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
TINY |= {"num_hidden_layers": 2}
QKVO, MLP, HEAD, NORMS = 256 * (256 + 128 + 128 + 256), 3 * 256 * 512, 512 * 256, 5 * 256
DOWN = MLP // 3
GROUPED, SYMMETRIC = 4 + 20 / 128, 4 + 16 / 128  # bits of a number, with its scale and maybe a zero point
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
INT4 = {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group", "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
FP4 = {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
BNB4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}
OF_FILE = {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}
DOWN_ALONE = {"model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16}}
MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": DOWN_ALONE}
THREE = (["Linear"], FP8), ([r"re:.*\.mlp\..*"], FP4), (["model.layers.0.mlp.down_proj"], INT4)


def compressed(*groups, **others):
    found = {f"group_{place}": {"targets": targets, "weights": of} for place, (targets, of) in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": found, "ignore": ["lm_head"], **others}


def tiny(**changed):
    return build_model("tiny", "made up", {**TINY, **changed})


def weigh(layers_bits: float, head_bits: float = 16) -> float:
    """Bytes, by the bits of both layers' matrices together."""
    return (layers_bits + head_bits * HEAD + 16 * (HEAD + NORMS)) / 8


ALL = 2 * (QKVO + MLP)  # numbers of both layers


@pytest.mark.parametrize(
    ("quantised", "layers_bits", "head_bits"),
    [
        (GPTQ, GROUPED * ALL, 16),
        (GPTQ | {"sym": True}, SYMMETRIC * ALL, 16),
        (GPTQ | {"sym": True, "lm_head": True}, SYMMETRIC * ALL, SYMMETRIC),
        (GPTQ | {"dynamic": {r"-:.*\.down_proj": {}}}, GROUPED * (ALL - 2 * DOWN) + 16 * 2 * DOWN, 16),
        (GPTQ | {"dynamic": {r"+:.*\.0\.mlp": {"bits": 8}}}, GROUPED * (ALL - MLP) + (8 + 24 / 128) * MLP, 16),
        (GPTQ | {"modules_in_block_to_quantize": [["mlp.down_proj"]]}, GROUPED * 2 * DOWN + 16 * (ALL - 2 * DOWN), 16),
        ({"quant_method": "awq", "bits": 4, "zero_point": False}, SYMMETRIC * ALL, 16),
        (BNB4 | {"bnb_4bit_use_double_quant": True}, (4 + 8 / 64 + 32 / (64 * 256)) * ALL, 16),
        (BNB4 | {"llm_int8_skip_modules": ["mlp"]}, 4.5 * 2 * QKVO + 16 * 2 * MLP, 4.5),
        (BLOCKS | {"modules_to_not_convert": ["model.layers.1"]}, 12 * ALL + 32 * ALL / 2 / 128**2, 16),
        (compressed((["Linear"], INT4)), SYMMETRIC * ALL, 16),
        (compressed((["Linear"], INT4 | {"symmetric": False}), ignore=[]), GROUPED * ALL, GROUPED),
        (compressed((["Linear"], FP4)), 4.5 * ALL, 16),
        (compressed(*THREE), 8 * 2 * QKVO + 4.5 * (2 * MLP - DOWN) + SYMMETRIC * DOWN, 16),
        (MODELOPT | {"exclude_modules": ["lm_head", "model.layers.0.*"]}, 12 * ALL, 16),
        (MIXED, 4.5 * DOWN + 16 * (ALL - DOWN), 16),
    ],
)
def test_each_matrix_has_the_bits_of_the_rule_that_names_it(quantised, layers_bits, head_bits):
    scales = 14 * 4  # of whole matrices
    weight_bytes = tiny(quantization_config=quantised).weight_bytes
    assert weigh(layers_bits, head_bits) - 1 <= weight_bytes <= weigh(layers_bits, head_bits) + scales


@pytest.mark.parametrize("head", ["language_model.lm_head", "re:.*lm_head$", "lm_head"])
@pytest.mark.parametrize("below", ["language_model.model", "model.language_model"])
def test_rules_name_modules_of_the_language_model_in_a_larger_one(head, below):
    rules = compressed((["Linear"], INT4), ignore=[head, f"{below}.layers.0.mlp.down_proj", "re:^(?!.*language_model)"])
    found = build_model("mine", "made up", {"model_type": "llava", "text_config": TINY, "quantization_config": rules})
    assert found.weight_bytes == weigh(SYMMETRIC * (ALL - DOWN) + 16 * DOWN)


def test_experts_have_the_rules_of_mixtrals_files_and_one_format():
    experts = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    assert tiny(**experts, quantization_config=compressed((["re:.*w[123]$"], INT4))).weight_bytes == weigh(
        2 * (16 * QKVO + SYMMETRIC * 4 * MLP + 16 * 4 * 256)
    )
    with pytest.raises(BadModel, match="experts"):
        tiny(**experts, quantization_config=compressed((["Linear"], INT4), ignore=["model.layers.0.mlp.experts.3"]))


@pytest.mark.parametrize(
    ("quantised", "cache"),
    [
        (compressed((["Linear"], FP8), kv_cache_scheme={"num_bits": 8, "type": "float"}), "fp8"),
        (MODELOPT | {"kv_cache_quant_algo": "FP8"}, "fp8"),
        (MODELOPT | {"kv_cache_quant_algo": None}, "bf16"),
    ],
)
def test_keys_and_values_are_kept_as_the_config_says(quantised, cache):
    assert tiny(quantization_config=quantised).cache_dtype == cache


@pytest.mark.parametrize(
    ("quantised", "words"),
    [
        (GPTQ | {"rotation": "hadamard"}, ["rotation"]),
        (GPTQ | {"bits": 5}, ["bits", "5", "2, 3, 4, 8"]),
        (GPTQ | {"group_size": 0}, ["group_size: 0"]),
        (GPTQ | {"group_size": None}, ["group_size is missing"]),
        (GPTQ | {"dynamic": {"+:(": {}}}, ["("]),
        (GPTQ | {"dynamic": {"+:a": {"rank": 8}}}, ["dynamic.rank"]),
        (BNB4 | {"load_in_8bit": True}, ["load_in_8bit"]),
        (BNB4 | {"llm_int8_skip_modules": ""}, ["llm_int8_skip_modules", "list"]),
        (BNB4 | {"llm_int8_has_fp16_weight": True}, ["llm_int8_has_fp16_weight"]),
        (BLOCKS | {"weight_block_size": [128]}, ["weight_block_size"]),
        (BLOCKS | {"expert_dtype": "fp4"}, ["expert_dtype"]),
        (compressed((["Linear"], FP8), sparsity_config={"format": "sparse-24-bitmask"}), ["sparse-24-bitmask"]),
        (compressed((["Linear"], FP8), kv_cache_scheme={"num_bits": 4, "type": "int"}), ["kv_cache_scheme.num_bits"]),
        (compressed((["Embedding"], FP8)), ["Embedding"]),
        (compressed((["Linear"], {"num_bits": 4, "type": "int", "strategy": "group"})), ["strategy"]),
        (compressed(), ["config_groups"]),
        (compressed(([], INT4)), ["config_groups", "targets"]),
        (MODELOPT | {"quantized_layers": {"a\nb": 1}}, ["quantized_layers"]),
        (MODELOPT | {"quant_algo": "W4A8_AWQ"}, ["quant_algo", "W4A8_AWQ", "NVFP4"]),
    ],
)
def test_what_is_not_known_is_refused_by_its_field(quantised, words):
    with pytest.raises(BadModel) as caught:
        tiny(quantization_config=quantised)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "layers_bits"),
    [
        ("hf_quant_config.json", {"producer": {}, "quantization": OF_FILE}, 8),
        ("quantize_config.json", {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}, SYMMETRIC),
    ],
)
def test_a_description_next_to_the_config_is_read(tmp_path, name, content, layers_bits):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / name).write_text(json.dumps(content))
    for named in (tmp_path, tmp_path / "config.json"):
        found = config_file.read_model(config_file.find_model(str(named)))
        assert found.weight_bytes == pytest.approx(weigh(layers_bits * ALL), abs=14 * 4)
        assert name in found.source
    (tmp_path / name).write_text("[1]")
    with pytest.raises(BadModel, match=name):
        config_file.find_model(str(tmp_path))
