"""The layers of a model, from the fields of its config.json, for each model_type that is known.

Defaults of fields: families.yaml. Shapes: modeling_*.py of transformers 5.23.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from architecture import Attention, EmbeddingTable, Linear, Model, ModelLayer, Part, Vector
from config_fields import BadModel, Fields, format_value
from number_formats import HUGGING_FACE_DTYPES, PLAIN_FORMATS, NumberFormat
from quantisation import WeightFormats, read_formats

FULL, SLIDING = "full_attention", "sliding_attention"
ALIASES = {"dtype": "torch_dtype", "_sliding_window_pattern": "sliding_window_pattern"}
ALIASES |= {"sliding_window_size": "sliding_window"}  # Gemma 2 has both
DEFAULTS_FILE = Path(__file__).with_name("families.yaml")
OUTER_FIELDS = ("torch_dtype", "dtype", "quantization_config", "tie_word_embeddings")  # next to text_config
HEADED_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")  # of classes that have a head
NORM_NAMES = ("input norm", "norm after attention", "norm before the MLP", "norm after the MLP")
MOST_LAYERS = 10_000
Windows = list[int | None]  # by layer; None: no window


@dataclass(frozen=True)
class LayerReader:
    """The fields of a config and the formats of its weights, from which layers are read."""

    fields: Fields
    plain: NumberFormat  # of matrices that are not quantised, and of vectors
    formats: WeightFormats
    hidden: int
    layers: int

    def make_linear(
        self,
        layer: int,
        module: str,
        part: Part,
        outputs: int,
        inputs: int,
        bias: NumberFormat | None = None,
        **experts: int,
    ) -> Linear:
        """Return a matrix of a layer in the format of its module; `experts` has `copies` and `per_token`, if any."""
        number_format = self.formats(f"model.layers.{layer}.{module}", experts.get("copies", 1))
        return Linear(module, part, outputs, inputs, number_format, bias, **experts)

    def make_vector(self, name: str, part: Part, elements: int) -> Vector:
        """Return a vector, which is never quantised."""
        return Vector(name, part, elements, self.plain)

    def bias_format(self, setting: bool | str) -> NumberFormat | None:
        """Return the format of a bias if there is one; a setting that is a name is that of the field which says so."""
        has_bias = self.fields.read_flag(setting) if isinstance(setting, str) else setting
        return self.plain if has_bias else None


AttentionParts = tuple[list[Linear], list[Vector], Attention]
AttentionReader = Callable[["Family", LayerReader, int, int | None], AttentionParts]  # of a layer with a window
MlpReader = Callable[["Family", LayerReader, int], list[Linear]]  # of a layer


@dataclass(frozen=True)
class Family:
    """Biases and norms are as the family has them; a name is that of the field which says so."""

    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norms: bool = False
    sinks: bool = False
    norms: int = 2  # of the layer
    windows: Callable[[LayerReader], Windows] = lambda reader: [None] * reader.layers
    attention: AttentionReader | None = None  # None: grouped_attention
    mlp: MlpReader | None = None  # None: gated_mlp


def grouped_attention(family: Family, reader: LayerReader, layer: int, window: int | None) -> AttentionParts:
    """Return attention whose queries are in groups that share keys and values."""
    fields = reader.fields
    heads = fields.read_whole("num_attention_heads")
    kv_heads = fields.read_optional_whole("num_key_value_heads") or heads
    if heads % kv_heads:
        raise BadModel(f"num_key_value_heads: {kv_heads} does not divide num_attention_heads, {heads}")
    read_head_size = fields.read_whole if fields.has_default("head_dim") else fields.read_optional_whole
    head_size = read_head_size("head_dim")
    if head_size is None:
        if reader.hidden % heads:
            raise BadModel(f"num_attention_heads: {heads} does not divide hidden_size, {reader.hidden}")
        head_size = reader.hidden // heads
    qkv_bias, o_bias = reader.bias_format(family.qkv_bias), reader.bias_format(family.o_bias)
    linears = [
        reader.make_linear(layer, "self_attn.q_proj", "attention", heads * head_size, reader.hidden, bias=qkv_bias),
        reader.make_linear(layer, "self_attn.k_proj", "attention", kv_heads * head_size, reader.hidden, bias=qkv_bias),
        reader.make_linear(layer, "self_attn.v_proj", "attention", kv_heads * head_size, reader.hidden, bias=qkv_bias),
        reader.make_linear(layer, "self_attn.o_proj", "attention", reader.hidden, heads * head_size, bias=o_bias),
    ]
    vectors = []
    if family.qk_norms:
        vectors.append(reader.make_vector("q_norm and k_norm", "attention", 2 * head_size))
    if family.sinks:
        vectors.append(reader.make_vector("sinks", "attention", heads))
    return linears, vectors, Attention(2 * kv_heads * head_size, 2 * heads * head_size, window, head_size)


def latent_attention(family: Family, reader: LayerReader, layer: int, window: int | None) -> AttentionParts:
    """Return DeepSeek's attention, which caches a latent vector per token.

    The matrices that make K and V of the vector are absorbed into those of the queries and of the output
    (DeepSeek-V2, 2405.04434, 2.1).
    """
    fields, hidden = reader.fields, reader.hidden
    heads, rank = fields.read_whole("num_attention_heads"), fields.read_whole("kv_lora_rank")
    rotary_size = fields.read_whole("qk_rope_head_dim")
    plain_size = fields.read_whole("qk_nope_head_dim")
    value_size = fields.read_whole("v_head_dim")
    query_rank = fields.read_optional_whole("q_lora_rank")
    for name in ("num_key_value_heads", "head_dim", "intermediate_size"):  # in files, even if nothing uses them
        fields.read_optional_whole(name)
    bias = reader.bias_format(family.qkv_bias)
    linears, vectors = [], [reader.make_vector("kv_a_layernorm", "attention", rank)]
    inputs, name = hidden, "self_attn.q_proj"
    if query_rank:
        linears.append(reader.make_linear(layer, "self_attn.q_a_proj", "attention", query_rank, hidden, bias=bias))
        vectors.append(reader.make_vector("q_a_layernorm", "attention", query_rank))
        inputs, name = query_rank, "self_attn.q_b_proj"
    linears += [
        reader.make_linear(layer, name, "attention", heads * (plain_size + rotary_size), inputs),
        reader.make_linear(layer, "self_attn.kv_a_proj_with_mqa", "attention", rank + rotary_size, hidden, bias=bias),
        reader.make_linear(layer, "self_attn.kv_b_proj", "attention", heads * (plain_size + value_size), rank),
        reader.make_linear(layer, "self_attn.o_proj", "attention", hidden, heads * value_size, bias=bias),
    ]
    attention = Attention(
        cached_numbers=rank + rotary_size,
        multiply_adds=heads * (rank + rotary_size + rank),
        window=window,
        unabsorbed_multiply_adds=heads * (plain_size + rotary_size + value_size),
    )
    return linears, vectors, attention


def windows_by_layer_types(reader: LayerReader) -> Windows:
    """Return windows where layer_types names them.

    Without layer_types they are in all layers but every second (gpt-oss, Gemma 2) or sixth.
    """
    fields, window = reader.fields, reader.fields.read_optional_whole("sliding_window", minimum=0)
    period = fields.read_whole("sliding_window_pattern") if fields.has_default("sliding_window_pattern") else 2
    types = fields.read_list("layer_types", (FULL, SLIDING), reader.layers)
    if types is None:
        types = [SLIDING if (layer + 1) % period else FULL for layer in range(reader.layers)]
        fields.assumed_defaults["layer_types"] = f"{FULL} every {period} layers"
    return [window if layer_type == SLIDING else None for layer_type in types]


def windows_of_upper_layers(reader: LayerReader) -> Windows:
    """Return Qwen's windows: if switched on, where layer_types names them or from layer max_window_layers on."""
    windows = windows_if_switched_on(reader)
    types = reader.fields.read_list("layer_types", (FULL, SLIDING), reader.layers)
    first = 0
    if any(windows) and not types:
        first = reader.fields.read_whole("max_window_layers", minimum=0)
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


def gated_mlp(
    family: Family, reader: LayerReader, layer: int, size: int | None = None, module: str = "mlp", **experts: int
) -> list[Linear]:
    """Return the two matrices in and the one out; `experts` has their copies, and those that a token uses."""
    size, part = size or reader.fields.read_whole("intermediate_size"), "experts" if experts else "MLP"
    bias = reader.bias_format(family.mlp_bias)
    return [
        reader.make_linear(layer, f"{module}.gate_proj", part, size, reader.hidden, bias=bias, **experts),
        reader.make_linear(layer, f"{module}.up_proj", part, size, reader.hidden, bias=bias, **experts),
        reader.make_linear(layer, f"{module}.down_proj", part, reader.hidden, size, bias=bias, **experts),
    ]


def _read_experts(reader: LayerReader, field_name: str) -> dict[str, int]:
    copies, per_token = reader.fields.read_whole(field_name), reader.fields.read_whole("num_experts_per_tok")
    if per_token > copies:
        raise BadModel(f"num_experts_per_tok: {per_token} is above {field_name}, {copies}")
    return {"copies": copies, "per_token": per_token}


def local_experts(family: Family, reader: LayerReader, layer: int) -> list[Linear]:
    """Return the experts of Mixtral and gpt-oss: in every layer, behind a router."""
    experts, bias = _read_experts(reader, "num_local_experts"), reader.bias_format(family.mlp_bias)
    router = reader.make_linear(layer, "mlp.router", "experts", experts["copies"], reader.hidden, bias=bias)
    return [router, *gated_mlp(family, reader, layer, module="mlp.experts.0", **experts)]


def experts_in_some_layers(family: Family, reader: LayerReader, layer: int) -> list[Linear]:
    """Return Qwen3's experts: in each decoder_sparse_step-th layer, except where mlp_only_layers names it."""
    fields = reader.fields
    experts, size = _read_experts(reader, "num_experts"), fields.read_whole("moe_intermediate_size")
    period = fields.read_whole("decoder_sparse_step")
    dense_layers = fields.read_list("mlp_only_layers", range(MOST_LAYERS)) or ()
    if layer in dense_layers or (layer + 1) % period:
        return gated_mlp(family, reader, layer)
    fields.read_whole("intermediate_size")
    router = reader.make_linear(layer, "mlp.gate", "experts", experts["copies"], reader.hidden)
    return [router, *gated_mlp(family, reader, layer, size, "mlp.experts.0", **experts)]


def routed_and_shared_experts(family: Family, reader: LayerReader, layer: int, corrected: bool = True) -> list[Linear]:
    """Return DeepSeek's experts: routed next to shared ones, in the layers after the first dense ones.

    `corrected`: the router has a correction, in fp32.
    """
    fields = reader.fields
    experts, size = _read_experts(reader, "n_routed_experts"), fields.read_whole("moe_intermediate_size")
    shared = fields.read_optional_whole("n_shared_experts", minimum=0) or 0
    period = fields.read_whole("moe_layer_freq")
    if layer < fields.read_whole("first_k_dense_replace", minimum=0) or layer % period:
        return gated_mlp(family, reader, layer)
    correction = PLAIN_FORMATS["fp32"] if corrected else None
    linears = [
        reader.make_linear(layer, "mlp.gate", "experts", experts["copies"], reader.hidden, bias=correction),
        *gated_mlp(family, reader, layer, size, "mlp.experts.0", **experts),
    ]
    if shared:
        linears += gated_mlp(family, reader, layer, size * shared, "mlp.shared_experts")
    return linears


FAMILIES: dict[str, Family] = {
    "llama": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "gemma": Family("attention_bias", "attention_bias"),
    "gemma2": Family("attention_bias", "attention_bias", norms=4, windows=windows_by_layer_types),
    "gemma3_text": Family("attention_bias", "attention_bias", qk_norms=True, norms=4, windows=windows_by_layer_types),
    "mistral": Family(windows=windows_in_all_layers),
    "mixtral": Family(windows=windows_in_all_layers, mlp=local_experts),
    "phi3": Family(windows=windows_in_all_layers),
    "qwen2": Family(qkv_bias=True, windows=windows_of_upper_layers),
    "qwen3": Family("attention_bias", "attention_bias", qk_norms=True, windows=windows_of_upper_layers),
    "qwen3_moe": Family(
        "attention_bias", "attention_bias", qk_norms=True, windows=windows_if_switched_on, mlp=experts_in_some_layers
    ),
    "gpt_oss": Family(
        "attention_bias", "attention_bias", True, sinks=True, windows=windows_by_layer_types, mlp=local_experts
    ),
    "deepseek_v2": Family(
        "attention_bias", attention=latent_attention, mlp=partial(routed_and_shared_experts, corrected=False)
    ),
    "deepseek_v3": Family("attention_bias", attention=latent_attention, mlp=routed_and_shared_experts),
    "kimi_k2": Family("attention_bias", attention=latent_attention, mlp=routed_and_shared_experts),
}
GPT2_ALIASES = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
GPT2_ALIASES |= {"n_inner": "intermediate_size", "n_positions": "max_position_embeddings"}


@cache
def family_defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of fields by model_type."""
    return yaml.safe_load(DEFAULTS_FILE.read_text(encoding="utf-8"))


def known_model_types() -> list[str]:
    """Return the model_types that `build_model` takes, sorted."""
    return sorted([*FAMILIES, "gpt2"])


def build_model(name: str, source: str, config: Mapping[str, Any]) -> Model:
    """Return the model that the content of a config.json describes. Raises BadModel, in one line."""
    if not isinstance(config, Mapping):
        raise BadModel(f"it holds {type(config).__name__}; allowed: a mapping")
    inner = config.get("text_config")
    # The config of a model that sees or hears as well has that of its language model inside.
    nested = isinstance(inner, Mapping) and config.get("model_type") not in known_model_types()
    if nested:
        source = f"{source}, of which text_config alone is counted"
        outer = {ALIASES.get(key, key): config[key] for key in OUTER_FIELDS if config.get(key) is not None}
        config = outer | {
            ALIASES.get(key, key): value for key, value in inner.items() if value is not None or key not in OUTER_FIELDS
        }
    model_type = config.get("model_type")
    if model_type == "gpt2":
        return _build_gpt2(name, source, config)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        allowed = ", ".join(known_model_types())
        raise BadModel(f"model_type: {format_value(model_type)} is unknown; allowed: {allowed}")
    family = FAMILIES[model_type]
    reader = _make_reader(config, model_type, ALIASES, nested)
    read_attention, read_mlp = family.attention or grouped_attention, family.mlp or gated_mlp
    layers = []
    for layer, window in enumerate(family.windows(reader)):
        linears, vectors, attention = read_attention(family, reader, layer, window)
        norms = [reader.make_vector(norm, "attention", reader.hidden) for norm in NORM_NAMES[: family.norms]]
        linears = [*linears, *read_mlp(family, reader, layer)]
        layers.append(ModelLayer(tuple(linears), (*norms, *vectors), attention))
    last_norm = reader.make_vector("last norm", "head", reader.hidden)
    return _finish_model(name, source, model_type, reader, layers, last_norm)


def _make_reader(
    config: Mapping[str, Any], model_type: str, aliases: Mapping[str, str], nested: bool = False
) -> LayerReader:
    config = {
        key: value for key, value in config.items() if value is not None or aliases.get(key, key) != "torch_dtype"
    }
    defaults = family_defaults()[model_type]
    if config.get("quantization_config"):  # what is not quantised is in 16 bits then, whatever the family's default
        defaults = {**defaults, "torch_dtype": "bfloat16"}
    fields = Fields(config, defaults, aliases)
    dtype = HUGGING_FACE_DTYPES[fields.read_choice("torch_dtype", tuple(HUGGING_FACE_DTYPES))]
    plain = PLAIN_FORMATS[dtype]
    hidden, layers = fields.read_whole("hidden_size"), fields.read_whole("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise BadModel(f"num_hidden_layers: {layers}; allowed: {MOST_LAYERS} or fewer")
    classes = fields.read_names("architectures") or []
    if headless := [name for name in classes if not name.endswith(HEADED_SUFFIXES)]:
        allowed = ", ".join(HEADED_SUFFIXES)
        raise BadModel(f"architectures: {format_value(headless)}; allowed: a name that ends in {allowed}")
    formats = read_formats(fields.read_mapping("quantization_config"), plain, nested)
    return LayerReader(fields, plain, formats, hidden, layers)


def _finish_model(
    name: str,
    source: str,
    model_type: str,
    reader: LayerReader,
    layers: Sequence[ModelLayer],
    last_norm: Vector,
    *,
    positions: Sequence[EmbeddingTable] = (),
) -> Model:
    """Return the model of these layers, with its embeddings and its head. Raises BadModel for fields not read."""
    fields, hidden = reader.fields, reader.hidden
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
        tables=(EmbeddingTable("embed_tokens", vocabulary, hidden, reader.plain), *positions),
        vectors=(last_norm,),
        head=Linear("lm_head", "head", vocabulary, hidden, reader.plain if tied else head_format),
        tied=tied,
        longest_context=longest_context,
        cache_dtype=reader.formats.cache_dtype,
        assumed_defaults=dict(fields.assumed_defaults),
    )


def _build_gpt2(name: str, source: str, config: Mapping[str, Any]) -> Model:
    """Return a GPT-2: biases everywhere, LayerNorms of two vectors, and a table of positions."""
    reader = _make_reader(config, "gpt2", ALIASES | GPT2_ALIASES)
    fields, hidden, bias = reader.fields, reader.hidden, reader.plain
    heads = fields.read_whole("num_attention_heads")
    if hidden % heads:
        raise BadModel(f"n_head: {heads} does not divide n_embd, {hidden}")
    size = fields.read_optional_whole("intermediate_size") or 4 * hidden
    layers = []
    for layer in range(reader.layers):
        linears = (
            reader.make_linear(layer, "attn.c_attn", "attention", 3 * hidden, hidden, bias=bias),
            reader.make_linear(layer, "attn.c_proj", "attention", hidden, hidden, bias=bias),
            reader.make_linear(layer, "mlp.c_fc", "MLP", size, hidden, bias=bias),
            reader.make_linear(layer, "mlp.c_proj", "MLP", hidden, size, bias=bias),
        )
        norms = tuple(reader.make_vector(norm, "attention", 2 * hidden) for norm in ("ln_1", "ln_2"))
        layers.append(ModelLayer(linears, norms, Attention(2 * hidden, 2 * hidden)))
    positions = EmbeddingTable("wpe", fields.read_whole("max_position_embeddings"), hidden, reader.plain)
    last_norm = reader.make_vector("ln_f", "head", 2 * hidden)
    return _finish_model(name, source, "gpt2", reader, layers, last_norm, positions=(positions,))
