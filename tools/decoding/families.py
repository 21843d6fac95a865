"""The layers of a model, from the fields of its config.json, for each model_type that is known.

Defaults of fields: families.yaml. Shapes: modeling_*.py of transformers 5.23.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from architecture import Attention, Matrix, Model, ModelLayer, Part
from config_fields import BadModel, Fields, format_value
from number_formats import HUGGING_FACE_FORMATS, NumberFormat
from quantisation import WeightFormats, read_formats

FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULTS_FILE = Path(__file__).with_name("families.yaml")
DTYPE_FIELDS = ("torch_dtype", "dtype")
OUTER_FIELDS = (*DTYPE_FIELDS, "quantization_config", "tie_word_embeddings")  # next to text_config
HEADED_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")  # of classes that have a head
NORM_NAMES = ("input norm", "norm after attention", "norm before the MLP", "norm after the MLP")
MOST_LAYERS = 10_000
Windows = list[int | None]  # by layer; None: no window


@dataclass(frozen=True)
class LayerReader:
    """The fields of a config and the formats of its weights, from which the layers of a family are read."""

    family: "Family"
    fields: Fields
    plain: NumberFormat  # of matrices that are not quantised, and of vectors
    formats: WeightFormats
    hidden: int
    layers: int
    layer: int = 0  # the layer that is read
    window: int | None = None  # of that layer

    def make_linear(
        self, module: str, part: Part, outputs: int, inputs: int, bias: NumberFormat | None = None, **experts: int
    ) -> Matrix:
        """Return a matrix of the layer in the format of its module; `experts` has `copies` and `per_token`, if any."""
        number_format = self.formats(f"model.layers.{self.layer}.{module}", experts.get("copies", 1))
        return Matrix(module, part, outputs, inputs, number_format, bias, **experts)

    def make_vector(self, name: str, part: Part, elements: int) -> Matrix:
        """Return a vector, which is never quantised."""
        return Matrix(name, part, elements, 1, self.plain)

    def make_norm(self, name: str, part: Part = "attention") -> Matrix:
        """Return the vectors of a norm of the stream."""
        return self.make_vector(name, part, self.family.norm_vectors * self.hidden)

    def bias_format(self, setting: bool | str) -> NumberFormat | None:
        """Return the format of a bias if there is one; a setting that is a name is that of the field which says so."""
        has_bias = self.fields.read_flag(setting) if isinstance(setting, str) else setting
        return self.plain if has_bias else None


AttentionParts = tuple[list[Matrix], list[Matrix], Attention]


def grouped_attention(reader: LayerReader) -> AttentionParts:
    """Return attention whose queries are in groups that share keys and values."""
    fields, family, hidden = reader.fields, reader.family, reader.hidden
    heads = fields.read_whole("num_attention_heads")
    kv_heads = fields.read_optional_whole("num_key_value_heads") or heads
    if heads % kv_heads:
        raise BadModel(f"num_key_value_heads: {kv_heads} does not divide num_attention_heads, {heads}")
    read_head_size = fields.read_whole if fields.defaults.get("head_dim") else fields.read_optional_whole
    head_size = read_head_size("head_dim")
    if head_size is None:
        if hidden % heads:
            raise BadModel(f"num_attention_heads: {heads} does not divide hidden_size, {hidden}")
        head_size = hidden // heads
    query_size, kv_size = heads * head_size, kv_heads * head_size
    qkv_bias, o_bias = reader.bias_format(family.qkv_bias), reader.bias_format(family.o_bias)
    linears = [
        reader.make_linear("self_attn.q_proj", "attention", query_size, hidden, qkv_bias),
        reader.make_linear("self_attn.k_proj", "attention", kv_size, hidden, qkv_bias),
        reader.make_linear("self_attn.v_proj", "attention", kv_size, hidden, qkv_bias),
        reader.make_linear("self_attn.o_proj", "attention", hidden, query_size, o_bias),
    ]
    vectors = []
    if family.qk_norms:
        vectors.append(reader.make_vector("q_norm and k_norm", "attention", 2 * head_size))
    if family.sinks:
        vectors.append(reader.make_vector("sinks", "attention", heads))
    return linears, vectors, Attention(2 * kv_size, 2 * query_size, reader.window, head_size)


def latent_attention(reader: LayerReader) -> AttentionParts:
    """Return DeepSeek's attention, which caches a latent vector per token.

    The matrices that make K and V of the vector are absorbed into those of the queries and of the output
    (DeepSeek-V2, 2405.04434, 2.1).
    """
    fields, hidden = reader.fields, reader.hidden
    heads, rank = fields.read_whole("num_attention_heads"), fields.read_whole("kv_lora_rank")
    rotary_size, plain_size = fields.read_whole("qk_rope_head_dim"), fields.read_whole("qk_nope_head_dim")
    value_size, query_rank = fields.read_whole("v_head_dim"), fields.read_optional_whole("q_lora_rank")
    for name in ("num_key_value_heads", "head_dim", "intermediate_size"):  # in files, even if nothing uses them
        fields.read_optional_whole(name)
    bias = reader.bias_format(reader.family.qkv_bias)
    linears, vectors = [], [reader.make_vector("kv_a_layernorm", "attention", rank)]
    inputs, name = hidden, "self_attn.q_proj"
    if query_rank:
        linears.append(reader.make_linear("self_attn.q_a_proj", "attention", query_rank, hidden, bias))
        vectors.append(reader.make_vector("q_a_layernorm", "attention", query_rank))
        inputs, name = query_rank, "self_attn.q_b_proj"
    linears += [
        reader.make_linear(name, "attention", heads * (plain_size + rotary_size), inputs),
        reader.make_linear("self_attn.kv_a_proj_with_mqa", "attention", rank + rotary_size, hidden, bias),
        reader.make_linear("self_attn.kv_b_proj", "attention", heads * (plain_size + value_size), rank),
        reader.make_linear("self_attn.o_proj", "attention", hidden, heads * value_size, bias),
    ]
    cached_numbers, multiply_adds = rank + rotary_size, heads * (rank + rotary_size + rank)
    unabsorbed = heads * (plain_size + rotary_size + value_size)
    return linears, vectors, Attention(cached_numbers, multiply_adds, reader.window, None, unabsorbed)


def gpt2_attention(reader: LayerReader) -> AttentionParts:
    """Return GPT-2's attention: one matrix for queries, keys and values, and biases everywhere."""
    heads, hidden = reader.fields.read_whole("num_attention_heads"), reader.hidden
    if hidden % heads:
        raise BadModel(f"n_head: {heads} does not divide n_embd, {hidden}")
    qkv = reader.make_linear("attn.c_attn", "attention", 3 * hidden, hidden, reader.plain)
    output = reader.make_linear("attn.c_proj", "attention", hidden, hidden, reader.plain)
    return [qkv, output], [], Attention(2 * hidden, 2 * hidden)


def windows_by_layer_types(reader: LayerReader) -> Windows:
    """Return windows where layer_types names them.

    Without layer_types they are in all layers but every second (gpt-oss, Gemma 2) or sixth.
    """
    fields, window = reader.fields, reader.fields.read_optional_whole("sliding_window", minimum=0)
    period = fields.read_whole("sliding_window_pattern") if fields.defaults.get("sliding_window_pattern") else 2
    types = fields.read_list("layer_types", (FULL, SLIDING), reader.layers)
    if types is None:
        types = [SLIDING if (layer + 1) % period else FULL for layer in range(reader.layers)]
        fields.assumed_defaults["layer_types"] = f"{FULL} every {period} layers"
    return [window if layer_type == SLIDING else None for layer_type in types]


def windows_of_upper_layers(reader: LayerReader) -> Windows:
    """Return Qwen's windows: if switched on, where layer_types names them or from layer max_window_layers on."""
    windows = windows_if_switched_on(reader)
    types = reader.fields.read_list("layer_types", (FULL, SLIDING), reader.layers)
    first = reader.fields.read_whole("max_window_layers", minimum=0) if any(windows) and not types else 0
    types = types or [SLIDING if layer >= first else FULL for layer in range(reader.layers)]
    return [window if layer_type == SLIDING else None for layer_type, window in zip(types, windows, strict=True)]


def windows_if_switched_on(reader: LayerReader) -> Windows:
    """Return the windows of Qwen's mixtures: in all layers, whatever max_window_layers says."""
    reader.fields.read_optional_whole("max_window_layers", minimum=0)
    switched_on, windows = reader.fields.read_flag("use_sliding_window"), windows_in_all_layers(reader)
    return windows if switched_on else [None] * reader.layers


def windows_in_all_layers(reader: LayerReader) -> Windows:
    """Return the same window for every layer, if the config has one."""
    return [reader.fields.read_optional_whole("sliding_window", minimum=0)] * reader.layers


def gated_mlp(reader: LayerReader, size: int | None = None, module: str = "mlp", **experts: int) -> list[Matrix]:
    """Return the two matrices in and the one out; `experts` has their copies, and those that a token uses."""
    size, part = size or reader.fields.read_whole("intermediate_size"), "experts" if experts else "MLP"
    bias = reader.bias_format(reader.family.mlp_bias)
    return [
        reader.make_linear(f"{module}.gate_proj", part, size, reader.hidden, bias, **experts),
        reader.make_linear(f"{module}.up_proj", part, size, reader.hidden, bias, **experts),
        reader.make_linear(f"{module}.down_proj", part, reader.hidden, size, bias, **experts),
    ]


def gpt2_mlp(reader: LayerReader) -> list[Matrix]:
    """Return the matrix in and the one out, by default with four times the hidden size between them."""
    hidden = reader.hidden
    size = reader.fields.read_optional_whole("intermediate_size") or 4 * hidden
    inner = reader.make_linear("mlp.c_fc", "MLP", size, hidden, reader.plain)
    return [inner, reader.make_linear("mlp.c_proj", "MLP", hidden, size, reader.plain)]


def _read_experts(reader: LayerReader, field_name: str) -> dict[str, int]:
    copies, per_token = reader.fields.read_whole(field_name), reader.fields.read_whole("num_experts_per_tok")
    if per_token > copies:
        raise BadModel(f"num_experts_per_tok: {per_token} is above {field_name}, {copies}")
    return {"copies": copies, "per_token": per_token}


def mixtral_experts(reader: LayerReader) -> list[Matrix]:
    """Return the experts of Mixtral and gpt-oss: in every layer, behind a router."""
    experts, bias = _read_experts(reader, "num_local_experts"), reader.bias_format(reader.family.mlp_bias)
    router = reader.make_linear("mlp.router", "experts", experts["copies"], reader.hidden, bias)
    return [router, *gated_mlp(reader, module="mlp.experts.0", **experts)]


def qwen_experts(reader: LayerReader) -> list[Matrix]:
    """Return Qwen3's experts: in each decoder_sparse_step-th layer, except where mlp_only_layers names it."""
    fields = reader.fields
    experts, size = _read_experts(reader, "num_experts"), fields.read_whole("moe_intermediate_size")
    period = fields.read_whole("decoder_sparse_step")
    dense_layers = fields.read_list("mlp_only_layers", range(MOST_LAYERS)) or ()
    if reader.layer in dense_layers or (reader.layer + 1) % period:
        return gated_mlp(reader)
    fields.read_whole("intermediate_size")
    router = reader.make_linear("mlp.gate", "experts", experts["copies"], reader.hidden)
    return [router, *gated_mlp(reader, size, "mlp.experts.0", **experts)]


def deepseek_experts(reader: LayerReader, corrected: bool = True) -> list[Matrix]:
    """Return DeepSeek's experts: routed next to shared ones, in the layers after the first dense ones.

    `corrected`: the router has a correction, in fp32.
    """
    fields, layer = reader.fields, reader.layer
    experts, size = _read_experts(reader, "n_routed_experts"), fields.read_whole("moe_intermediate_size")
    shared = fields.read_optional_whole("n_shared_experts", minimum=0) or 0
    period = fields.read_whole("moe_layer_freq")
    if layer < fields.read_whole("first_k_dense_replace", minimum=0) or layer % period:
        return gated_mlp(reader)
    correction = HUGGING_FACE_FORMATS["float32"] if corrected else None
    router = reader.make_linear("mlp.gate", "experts", experts["copies"], reader.hidden, correction)
    shared_experts = gated_mlp(reader, size * shared, "mlp.shared_experts") if shared else []
    return [router, *gated_mlp(reader, size, "mlp.experts.0", **experts), *shared_experts]


@dataclass(frozen=True)
class Family:
    """Biases and norms are as the family has them; a name is that of the field which says so."""

    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norms: bool = False
    sinks: bool = False
    norms: int = 2  # of the layer
    norm_vectors: int = 1  # of each norm: 2 for LayerNorm, whose weights have a bias
    learned_positions: bool = False  # a table of them
    windows: Callable[[LayerReader], Windows] = lambda reader: [None] * reader.layers
    attention: Callable[[LayerReader], AttentionParts] = grouped_attention
    mlp: Callable[[LayerReader], list[Matrix]] = gated_mlp


BIAS = "attention_bias"  # the field that says whether the matrices of attention have biases
FAMILIES: dict[str, Family] = {
    "llama": Family(qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias"),
    "gemma": Family(BIAS, BIAS),
    "gemma2": Family(BIAS, BIAS, norms=4, windows=windows_by_layer_types),
    "gemma3_text": Family(BIAS, BIAS, qk_norms=True, norms=4, windows=windows_by_layer_types),
    "mistral": Family(windows=windows_in_all_layers),
    "mixtral": Family(windows=windows_in_all_layers, mlp=mixtral_experts),
    "phi3": Family(windows=windows_in_all_layers),
    "qwen2": Family(qkv_bias=True, windows=windows_of_upper_layers),
    "qwen3": Family(BIAS, BIAS, qk_norms=True, windows=windows_of_upper_layers),
    "qwen3_moe": Family(BIAS, BIAS, qk_norms=True, windows=windows_if_switched_on, mlp=qwen_experts),
    "gpt_oss": Family(BIAS, BIAS, True, sinks=True, windows=windows_by_layer_types, mlp=mixtral_experts),
    "deepseek_v2": Family(BIAS, attention=latent_attention, mlp=partial(deepseek_experts, corrected=False)),
    "deepseek_v3": Family(BIAS, attention=latent_attention, mlp=deepseek_experts),
    "kimi_k2": Family(BIAS, attention=latent_attention, mlp=deepseek_experts),
    "gpt2": Family(norm_vectors=2, learned_positions=True, attention=gpt2_attention, mlp=gpt2_mlp),
}
MODEL_TYPES = sorted(FAMILIES)
FAMILY_DEFAULTS = yaml.safe_load(DEFAULTS_FILE.read_text(encoding="utf-8"))  # of fields, by model_type
ALIASES = FAMILY_DEFAULTS.pop("aliases")  # of fields: our names by those of a file, of any family and of single ones


def build_model(name: str, source: str, config: Mapping[str, Any]) -> Model:
    """Return the model that the content of a config.json describes. Raises BadModel, in one line."""
    if not isinstance(config, Mapping):
        raise BadModel(f"it holds {type(config).__name__}; allowed: a mapping")
    inner = config.get("text_config")
    # The config of a model that sees or hears as well has that of its language model inside.
    nested = isinstance(inner, Mapping) and config.get("model_type") not in MODEL_TYPES
    if nested:
        source = f"{source}, of which text_config alone is counted"
        aliases = ALIASES["any"]
        outer = {aliases.get(key, key): config[key] for key in OUTER_FIELDS if config.get(key) is not None}
        inner = {key: value for key, value in inner.items() if value is not None or key not in OUTER_FIELDS}
        config = outer | {aliases.get(key, key): value for key, value in inner.items()}
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise BadModel(f"model_type: {format_value(model_type)} is unknown; allowed: {', '.join(MODEL_TYPES)}")
    reader = _make_reader(config, model_type, nested)
    family, fields, hidden = reader.family, reader.fields, reader.hidden
    norms, layers = [reader.make_norm(name) for name in NORM_NAMES[: family.norms]], []
    for layer, window in enumerate(family.windows(reader)):
        layer_reader = replace(reader, layer=layer, window=window)
        linears, vectors, attention = family.attention(layer_reader)
        layers.append(ModelLayer((*linears, *family.mlp(layer_reader)), (*norms, *vectors), attention))
    positions = []
    if family.learned_positions:
        positions.append(Matrix("wpe", "head", fields.read_whole("max_position_embeddings"), hidden, reader.plain))
    vocabulary, head_format = fields.read_whole("vocab_size"), reader.formats("lm_head")
    tied, longest_context = fields.read_flag("tie_word_embeddings"), fields.read_whole("max_position_embeddings")
    if tied and (fields.read_mapping("quantization_config") or {}).get("lm_head"):
        raise BadModel("tie_word_embeddings and quantization_config.lm_head; allowed: one of them true")
    fields.require_nothing_else()
    return Model(
        name=name,
        source=source,
        model_type=model_type,
        layers=tuple(layers),
        tables=(Matrix("embed_tokens", "head", vocabulary, hidden, reader.plain), *positions),
        vectors=(reader.make_norm("last norm", "head"),),
        head=Matrix("lm_head", "head", vocabulary, hidden, reader.plain if tied else head_format),
        tied=tied,
        longest_context=longest_context,
        cache_dtype=reader.formats.cache_dtype,
        assumed_defaults=dict(fields.assumed_defaults),
    )


def _make_reader(config: Mapping[str, Any], model_type: str, nested: bool) -> LayerReader:
    config = {key: value for key, value in config.items() if value is not None or key not in DTYPE_FIELDS}
    family, defaults = FAMILIES[model_type], FAMILY_DEFAULTS[model_type]
    if config.get("quantization_config"):  # what is not quantised is in 16 bits then, whatever the family's default
        defaults = {**defaults, "torch_dtype": "bfloat16"}
    fields = Fields(config, defaults, ALIASES["any"] | ALIASES.get(model_type, {}))
    plain = HUGGING_FACE_FORMATS[fields.read_choice("torch_dtype", tuple(HUGGING_FACE_FORMATS))]
    hidden, layers = fields.read_whole("hidden_size"), fields.read_whole("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise BadModel(f"num_hidden_layers: {layers}; allowed: {MOST_LAYERS} or fewer")
    classes = fields.read_names("architectures") or []
    if headless := [name for name in classes if not name.endswith(HEADED_SUFFIXES)]:
        allowed = ", ".join(HEADED_SUFFIXES)
        raise BadModel(f"architectures: {format_value(headless)}; allowed: a name that ends in {allowed}")
    formats = read_formats(fields.read_mapping("quantization_config"), plain, nested)
    return LayerReader(family, fields, plain, formats, hidden, layers)
