"""The layers of a model, from the fields of its config.json, for each model_type that families.yaml has.

Shapes: modeling_*.py of transformers 5.24.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from architecture import Attention, Matrix, Model, ModelLayer, Part
from config_fields import BadModel, Fields, format_value
from number_formats import HUGGING_FACE_FORMATS, NumberFormat
from quantisation import WeightFormats, read_formats

DESCRIPTIONS_FILE = Path(__file__).with_name("families.yaml")
FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
WINDOW_FIELDS = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
DTYPE_FIELDS = ("torch_dtype", "dtype")
OUTER_FIELDS = (*DTYPE_FIELDS, "quantization_config", "tie_word_embeddings")  # next to text_config
HEADED_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")  # of classes that have a head
NORM_NAMES = ("input norm", "norm after attention", "norm before the MLP", "norm after the MLP")
MOST_LAYERS = 10_000
Setting = bool | str  # a name is that of the field which says so
Layers = list[tuple[str, int | None]]  # the kind of each layer's attention, and its window if it has one


@dataclass(frozen=True)
class Family:
    """The settings of a model_type, as families.yaml has them."""

    defaults: Mapping[str, Any] = field(default_factory=dict)  # of the config class, by field
    aliases: Mapping[str, str] = field(default_factory=dict)  # our names of fields by other ones
    free: list[str] = field(default_factory=list)  # fields that cost nothing in this family
    layer_kinds: str = "full"  # which layers have which attention: a function of LAYER_KINDS
    other_kind: str = SLIDING  # of layers that are not full attention
    period: int | str = 1  # layers from one full attention to the next, by default
    kind_flags: str = ""  # a field that has 1 for each layer of the other kind
    fields_by_kind: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # fields that replace others
    attention: str = "grouped"
    keys_are_values: Setting = False  # full attention: values have no matrix, but maybe another number of heads
    sizes_by_layer: bool = False  # transformers saves some
    qkv_bias: Setting = False
    o_bias: Setting = False
    value_size: str = ""  # the field of the size of a head's values, if it is not that of its keys
    qk_norms: str = ""  # weights for a "head" or for the "width" of all heads
    qk_norms_if: Setting = True
    output_gate: bool = False  # as wide as the queries, from the same matrix
    sinks: Mapping[str, Setting] = field(default_factory=dict)  # by kind
    norms: int = 2  # of the layer
    norm_vectors: int = 1  # of each norm: 2 for LayerNorm, whose weights have a bias
    learned_positions: bool = False  # a table of them
    split_projections: bool = False  # of gated DeltaNet
    mlp: str = "dense"
    gated: bool = True  # two matrices in, one out; or one in, one out
    mlp_bias: Setting = False
    mlp_vectors: int = 0  # numbers that the activation learns
    head_bias: Setting = False
    sparse_layers: str = "all"  # which layers have experts: a function of SPARSE_LAYERS
    expert_size: str = "moe_intermediate_size"
    dense_size: str = "intermediate_size"
    shared_count: str = ""  # the field of the number of shared experts
    shared_size: str = ""  # the field of the size of all shared experts
    shared_gate: bool = False
    router_bias: Setting = False  # "correction": one in fp32


@dataclass(frozen=True)
class LayerReader:
    """The fields of a config and the formats of its weights, from which the layers of a family are read."""

    family: Family
    fields: Fields
    plain: NumberFormat  # of matrices that are not quantised, and of vectors
    formats: WeightFormats
    hidden: int
    layers: int
    layer: int = 0  # the layer that is read
    kind: str = FULL  # of its attention
    window: int | None = None

    @cached_property
    def shared(self) -> bool:
        """Return whether the layer uses the K/V of an earlier one of its kind."""
        if "num_kv_shared_layers" not in self.fields.defaults:
            return False
        return self.layer >= self.layers - self.fields.read_whole("num_kv_shared_layers", minimum=0)

    def read_size(self, name: str) -> int | None:
        """Return a size: by the field of this layer or of this kind of attention, else by the common field."""
        names = {kind: fields[name] for kind, fields in self.family.fields_by_kind.items() if name in fields}
        sizes = {kind: self.fields.read_optional_whole(field_name) for kind, field_name in names.items()}
        return self._layer_fields.read_optional_whole(name) or sizes.get(self.kind) or self.fields.read_size(name)

    @cached_property
    def _layer_fields(self) -> Fields:
        """Return the sizes of this layer alone, which transformers saves by its number, with leading zeros."""
        section = self.fields.read_mapping("per_layer_config") if self.family.sizes_by_layer else None
        by_layer = Fields(section or {}, {}, prefix="per_layer_config.")
        number = str(self.layer).lstrip("0")
        key = next((name for name in by_layer.values if name.lstrip("0") == number), "")
        sizes = Fields(by_layer.read_mapping(key) or {}, {}, prefix=f"per_layer_config.{key}.")
        sizes.require_nothing_else(("head_dim", "num_key_value_heads"))
        return sizes

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

    def is_set(self, setting: Setting) -> bool:
        """Return the setting, or what the field of its name says."""
        return self.fields.read_flag(setting) if isinstance(setting, str) else setting

    def bias_format(self, setting: Setting) -> NumberFormat | None:
        """Return the format of a bias if there is one."""
        return self.plain if self.is_set(setting) else None


AttentionParts = tuple[list[Matrix], list[Matrix], Attention]
MlpParts = tuple[list[Matrix], list[Matrix]]  # matrices, vectors


def grouped_attention(reader: LayerReader) -> AttentionParts:
    """Return attention whose queries are in groups that share keys and values."""
    if reader.kind == LINEAR:
        return delta_attention(reader)
    fields, family, hidden = reader.fields, reader.family, reader.hidden
    heads = reader.read_size("num_attention_heads") or fields.read_whole("num_attention_heads")
    keys_are_values = reader.is_set(family.keys_are_values)
    read_size = fields.read_size if family.keys_are_values and not keys_are_values else reader.read_size
    kv_heads = read_size("num_key_value_heads") or heads
    if heads % kv_heads:
        raise BadModel(f"num_key_value_heads: {kv_heads} does not divide num_attention_heads, {heads}")
    head_size = reader.read_size("head_dim")
    if head_size is None:
        if hidden % heads:
            raise BadModel(f"num_attention_heads: {heads} does not divide hidden_size, {hidden}")
        head_size = hidden // heads
    value_size = (reader.read_size(family.value_size) if family.value_size else None) or head_size
    qkv_bias, o_bias = reader.bias_format(family.qkv_bias), reader.bias_format(family.o_bias)
    outputs = {"q_proj": heads * head_size * (1 + family.output_gate)}
    if not reader.shared:
        outputs["k_proj"] = kv_heads * head_size
        if not (keys_are_values and reader.kind == FULL):
            outputs["v_proj"] = kv_heads * value_size
    linears = [
        reader.make_linear(f"self_attn.{name}", "attention", size, hidden, qkv_bias) for name, size in outputs.items()
    ]
    linears.append(reader.make_linear("self_attn.o_proj", "attention", hidden, heads * value_size, o_bias))
    vectors = []
    if family.qk_norms and reader.is_set(family.qk_norms_if):
        normed_heads = heads + kv_heads if family.qk_norms == "width" else 2 - reader.shared
        vectors.append(reader.make_vector("q_norm and k_norm", "attention", head_size * normed_heads))
    has_sinks = {kind: reader.is_set(setting) for kind, setting in family.sinks.items()}
    if has_sinks.get(reader.kind):
        vectors.append(reader.make_vector("sinks", "attention", heads))
    sizes, common_size = head_size + value_size, head_size if value_size == head_size else None
    numbers, multiply_adds = kv_heads * sizes, heads * sizes
    of_cache = 0 if reader.shared else numbers, numbers
    chunked = reader.kind == CHUNKED
    counts = {"heads": heads, "key_heads": kv_heads}
    return linears, vectors, Attention(*of_cache, multiply_adds, reader.window, common_size, chunked=chunked, **counts)


def delta_attention(reader: LayerReader) -> AttentionParts:
    """Return a gated DeltaNet (Yang et al. 2024, 2412.06464), whose state does not grow with the context.

    The state has a matrix for each head, and the last inputs of a convolution over queries, keys and values.
    """
    fields = reader.fields
    key_heads, value_heads = fields.read_whole("linear_num_key_heads"), fields.read_whole("linear_num_value_heads")
    key_size, value_size = fields.read_whole("linear_key_head_dim"), fields.read_whole("linear_value_head_dim")
    kernel = fields.read_whole("linear_conv_kernel_dim")
    if value_heads % key_heads:
        raise BadModel(f"linear_num_key_heads: {key_heads} does not divide linear_num_value_heads, {value_heads}")
    keys, values = key_heads * key_size, value_heads * value_size
    outputs = {"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * value_heads}
    if reader.family.split_projections:
        outputs = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values}
        outputs |= {"in_proj_b": value_heads, "in_proj_a": value_heads}
    linears = [
        reader.make_linear(f"linear_attn.{name}", "attention", size, reader.hidden) for name, size in outputs.items()
    ]
    linears.append(reader.make_linear("linear_attn.out_proj", "attention", reader.hidden, values))
    convolved, elements = 2 * keys + values, value_heads * key_size * value_size
    sizes = {"conv1d": convolved * kernel, "dt_bias, A_log and norm": 2 * value_heads + value_size}
    vectors = [reader.make_vector(name, "attention", size) for name, size in sizes.items()]
    state_format = HUGGING_FACE_FORMATS[fields.read_choice("mamba_ssm_dtype", tuple(HUGGING_FACE_FORMATS))]
    state_bytes = state_format.matrix_bytes(elements, 1) + reader.plain.matrix_bytes(convolved, kernel - 1)
    # A token multiplies the state with its key, adds an outer product to it, and multiplies it with its query.
    state = {"state_bytes": state_bytes, "state_dtype": state_format.product_dtype}
    return linears, vectors, Attention(0, 0, 0, **state, state_multiply_adds=3 * elements, heads=key_heads)


def latent_attention(reader: LayerReader) -> AttentionParts:
    """Return DeepSeek's attention, which caches a latent vector per token.

    The matrices that make K and V of the vector are absorbed into those of the queries and of the output
    (DeepSeek-V2, 2405.04434, 2.1).
    """
    fields, hidden = reader.fields, reader.hidden
    heads, rank = fields.read_whole("num_attention_heads"), fields.read_whole("kv_lora_rank")
    rotary_size, plain_size = fields.read_whole("qk_rope_head_dim"), fields.read_whole("qk_nope_head_dim")
    value_size, query_rank = fields.read_whole("v_head_dim"), fields.read_optional_whole("q_lora_rank")
    key_size = fields.read_optional_whole("qk_head_dim") or plain_size + rotary_size  # transformers saves the sum
    if key_size != plain_size + rotary_size:
        raise BadModel(f"qk_head_dim: {key_size} is not qk_nope_head_dim + qk_rope_head_dim")
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
        reader.make_linear(name, "attention", heads * key_size, inputs),
        reader.make_linear("self_attn.kv_a_proj_with_mqa", "attention", rank + rotary_size, hidden, bias),
        reader.make_linear("self_attn.kv_b_proj", "attention", heads * (plain_size + value_size), rank),
        reader.make_linear("self_attn.o_proj", "attention", hidden, heads * value_size, bias),
    ]
    numbers, multiply_adds = rank + rotary_size, heads * (rank + rotary_size + rank)
    unabsorbed = heads * (key_size + value_size)
    return linears, vectors, Attention(numbers, numbers, multiply_adds, reader.window, None, unabsorbed, heads=heads)


def layers_alike(reader: LayerReader) -> Layers:
    """Return full attention in every layer."""
    return [(FULL, None)] * reader.layers


def windows_in_all_layers(reader: LayerReader) -> Layers:
    """Return the same window for every layer, if the config has one."""
    return [(SLIDING, reader.fields.read_optional_whole("sliding_window", minimum=0))] * reader.layers


def windows_if_switched_on(reader: LayerReader) -> Layers:
    """Return the windows of Qwen's mixtures: in all layers, whatever max_window_layers says."""
    reader.fields.read_optional_whole("max_window_layers", minimum=0)
    windows = windows_in_all_layers(reader)
    return windows if reader.fields.read_flag("use_sliding_window") else layers_alike(reader)


def windows_of_upper_layers(reader: LayerReader) -> Layers:
    """Return Qwen's windows: if switched on, where layer_types names them or from layer max_window_layers on."""
    layers, kinds = windows_if_switched_on(reader), _read_layer_types(reader)
    has_windows = any(window for _, window in layers)
    first = reader.fields.read_whole("max_window_layers", minimum=0) if has_windows and not kinds else 0
    kinds = kinds or tuple(SLIDING if layer >= first else FULL for layer in range(reader.layers))
    return [layer if kind == SLIDING else (FULL, None) for kind, layer in zip(kinds, layers, strict=True)]


def layers_by_type(reader: LayerReader) -> Layers:
    """Return what layer_types says, or a list of flags; without both, every `period`-th layer is full attention."""
    fields, family = reader.fields, reader.family
    window_field = WINDOW_FIELDS.get(family.other_kind)
    window = fields.read_optional_whole(window_field, minimum=0) if window_field else None
    kinds, flags = _read_layer_types(reader), None
    if family.kind_flags:
        flags = fields.read_list(family.kind_flags, (0, 1), reader.layers)
    if isinstance(family.period, str) and (kinds or flags):
        fields.mark_read(family.period)
    elif not kinds and not flags:
        period = fields.read_whole(family.period) if isinstance(family.period, str) else family.period
        if period == family.period:  # not of the file, nor of a field that has a default
            fields.assumed_defaults["layer_types"] = f"{FULL} every {period} layers"
        flags = tuple((layer + 1) % period for layer in range(reader.layers))
    kinds = kinds or tuple(family.other_kind if flag else FULL for flag in flags or ())
    return [(kind, None if kind == FULL else window) for kind in kinds]


def _read_layer_types(reader: LayerReader) -> tuple | None:
    return reader.fields.read_list("layer_types", (FULL, reader.family.other_kind), reader.layers)


def dense_mlp(
    reader: LayerReader, size: int | None = None, module: str = "mlp", part: Part = "MLP", **experts: int
) -> list[Matrix]:
    """Return the matrices in and the one out; `experts` has their copies, and those that a token uses."""
    size = size or reader.fields.read_size("intermediate_size") or 4 * reader.hidden  # as GPT-2 has it
    bias = reader.bias_format(reader.family.mlp_bias)
    names = ("gate_proj", "up_proj") if reader.family.gated else ("up_proj",)
    inward = [reader.make_linear(f"{module}.{name}", part, size, reader.hidden, bias, **experts) for name in names]
    return [*inward, reader.make_linear(f"{module}.down_proj", part, reader.hidden, size, bias, **experts)]


def plain_mlp(reader: LayerReader) -> MlpParts:
    """Return the MLP of a dense layer."""
    vectors = reader.family.mlp_vectors
    return dense_mlp(reader), [reader.make_vector("activation", "MLP", vectors)] if vectors else []


def experts_by_period(reader: LayerReader) -> bool:
    """Return Qwen's choice: each decoder_sparse_step-th layer, except where mlp_only_layers names it."""
    dense_layers = reader.fields.read_list("mlp_only_layers", range(MOST_LAYERS)) or ()
    return not (reader.layer + 1) % reader.fields.read_whole("decoder_sparse_step") and reader.layer not in dense_layers


def experts_after_first(reader: LayerReader) -> bool:
    """Return DeepSeek's choice: the layers after the first dense ones, or those that a list names."""
    fields, layer = reader.fields, reader.layer
    types = fields.read_list("mlp_layer_types", ("dense", "sparse"), reader.layers)
    first = fields.read_whole("first_k_dense_replace", minimum=0)
    if isinstance(fields.values.get("moe_layer_freq"), list):
        flags = fields.read_list("moe_layer_freq", (0, 1), reader.layers)
    else:
        period = fields.read_whole("moe_layer_freq")
        flags = tuple(number >= first and not number % period for number in range(reader.layers))
    return types[layer] == "sparse" if types else bool(flags and flags[layer])


def experts_interleaved(reader: LayerReader) -> bool:
    """Return Llama 4's choice: each interleave_moe_layer_step-th layer, or those of moe_layers."""
    fields, layer = reader.fields, reader.layer
    period, layers = fields.read_whole("interleave_moe_layer_step"), fields.read_list("moe_layers", range(MOST_LAYERS))
    return layer in layers if layers else not (layer + 1) % period


def routed_experts(reader: LayerReader) -> list[Matrix]:
    """Return a router and its experts."""
    fields, family = reader.fields, reader.family
    copies, per_token = fields.read_whole("num_experts"), fields.read_whole("num_experts_per_tok")
    if per_token > copies:
        names = [fields.name_in_file(name) for name in ("num_experts_per_tok", "num_experts")]
        raise BadModel(f"{names[0]}: {per_token} is above {names[1]}, {copies}")
    corrected = family.router_bias == "correction"
    bias = HUGGING_FACE_FORMATS["float32"] if corrected else reader.bias_format(family.router_bias)
    router, size = reader.make_linear("mlp.gate", "experts", copies, reader.hidden, bias), family.expert_size
    experts = dense_mlp(reader, fields.read_whole(size), "mlp.experts.0", "experts", copies=copies, per_token=per_token)
    return [router, *experts]


def sparse_mlp(reader: LayerReader) -> MlpParts:
    """Return routed experts, maybe next to shared ones, or the MLP of a layer that has none."""
    fields, family = reader.fields, reader.family
    experts, size = routed_experts(reader), fields.read_whole(family.expert_size)
    shared_name = family.shared_size or family.shared_count
    shared = fields.read_optional_whole(shared_name, minimum=0) if shared_name else None
    if not SPARSE_LAYERS[family.sparse_layers](reader):
        return dense_mlp(reader, fields.read_whole(family.dense_size)), []
    fields.mark_read(family.dense_size)
    if shared:
        shared_size = shared if family.shared_size else shared * size
        experts += dense_mlp(reader, shared_size, "mlp.shared_experts", "experts")
    if family.shared_gate:
        experts.append(reader.make_linear("mlp.shared_expert_gate", "experts", 1, reader.hidden))
    return experts, []


def gemma4_mlp(reader: LayerReader) -> MlpParts:
    """Return Gemma 4's MLP, with experts next to it if they are enabled, and what the layer does with its embedding."""
    fields, hidden = reader.fields, reader.hidden
    wide = fields.read_flag("use_double_wide_mlp") and reader.shared
    linears = dense_mlp(reader, fields.read_whole("intermediate_size") * (2 if wide else 1))
    vectors = [reader.make_vector("layer_scalar", "MLP", 1)]
    if fields.read_flag("enable_moe_block"):
        linears += routed_experts(reader)
        vectors += [reader.make_norm(f"norm {number} of the experts", "experts") for number in (1, 2, 3)]
        vectors.append(reader.make_vector("router scales", "experts", hidden + fields.read_whole("num_experts")))
    if size := fields.read_optional_whole("hidden_size_per_layer_input", minimum=0):
        linears += [
            reader.make_linear("per_layer_input_gate", "MLP", size, hidden),
            reader.make_linear("per_layer_projection", "MLP", hidden, size),
            reader.make_linear("per_layer_model_projection", "MLP", size, hidden),  # this layer's rows of one matrix
        ]
        vectors.append(reader.make_norm("post_per_layer_input_norm", "MLP"))
    return linears, vectors


LAYER_KINDS: dict[str, Callable[[LayerReader], Layers]] = {
    "full": layers_alike,
    "sliding": windows_in_all_layers,
    "switched": windows_if_switched_on,
    "upper": windows_of_upper_layers,
    "typed": layers_by_type,
}
SPARSE_LAYERS: dict[str, Callable[[LayerReader], bool]] = {
    "all": lambda reader: True,
    "by_period": experts_by_period,
    "after_first": experts_after_first,
    "interleaved": experts_interleaved,
}
ATTENTIONS = {"grouped": grouped_attention, "latent": latent_attention}
MLPS = {"dense": plain_mlp, "sparse": sparse_mlp, "gemma4": gemma4_mlp}
DESCRIPTIONS = yaml.safe_load(DESCRIPTIONS_FILE.read_text(encoding="utf-8"))
ALIASES = DESCRIPTIONS["aliases"]
MISSING_PARTS = {name: part for part, names in DESCRIPTIONS["refused"].items() for name in names}


def _read_family(model_type: str) -> Family:
    """Return the family of an entry of families.yaml on top of the one that it is like."""
    entry = dict(DESCRIPTIONS["families"][model_type])
    parent = _read_family(entry.pop("like")) if "like" in entry else Family()
    merged = {name: getattr(parent, name) | entry.get(name, {}) for name in ("defaults", "aliases")}
    return replace(parent, **{**entry, **merged, "free": [*parent.free, *entry.get("free", ())]})


FAMILIES = {model_type: _read_family(model_type) for model_type in DESCRIPTIONS["families"]}
MODEL_TYPES = sorted(FAMILIES)


def build_model(name: str, source: str, config: Mapping[str, Any]) -> Model:
    """Return the model that the content of a config.json describes. Raises BadModel, in one line."""
    if not isinstance(config, Mapping):
        raise BadModel(f"it holds {type(config).__name__}; allowed: a mapping")
    # The config of a model that sees or hears as well has that of its language model inside.
    inner = config.get("text_config")
    nested = isinstance(inner, Mapping) and str(config.get("model_type")) not in MISSING_PARTS
    if nested:
        source = f"{source}, of which text_config alone is counted"
        outer = {ALIASES.get(key, key): config[key] for key in OUTER_FIELDS if config.get(key) is not None}
        inner = {key: value for key, value in inner.items() if value is not None or key not in OUTER_FIELDS}
        config = outer | {ALIASES.get(key, key) if key in OUTER_FIELDS else key: inner[key] for key in inner}
    elif config.get("vision_config"):
        source = f"{source}, without its vision_config"
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in MISSING_PARTS:
        raise BadModel(f"model_type: {model_type} is not counted; it has {MISSING_PARTS[model_type]}")
    if model_type not in MODEL_TYPES:
        raise BadModel(f"model_type: {format_value(model_type)} is unknown; allowed: {', '.join(MODEL_TYPES)}")
    reader = _make_reader(config, model_type, nested)
    family, fields, hidden = reader.family, reader.fields, reader.hidden
    layers = _read_layers(reader)
    tables, vectors = [], [reader.make_norm("last norm", "head")]
    vocabulary, head_format = fields.read_whole("vocab_size"), reader.formats("lm_head")
    tables.append(Matrix("embed_tokens", "head", vocabulary, hidden, reader.plain))
    if family.learned_positions:
        tables.append(Matrix("wpe", "head", fields.read_whole("max_position_embeddings"), hidden, reader.plain))
    if "vocab_size_per_layer_input" in fields.defaults:
        rows = fields.read_whole("vocab_size_per_layer_input")
        if size := fields.read_optional_whole("hidden_size_per_layer_input", minimum=0):
            tables.append(Matrix("embed_tokens_per_layer", "head", rows, reader.layers * size, reader.plain))
            vectors.append(reader.make_vector("per_layer_projection_norm", "head", size))
    tied, longest_context = fields.read_flag("tie_word_embeddings"), fields.read_whole("max_position_embeddings")
    if tied and (fields.read_mapping("quantization_config") or {}).get("lm_head"):
        raise BadModel("tie_word_embeddings and quantization_config.lm_head; allowed: one of them true")
    head_bias = reader.bias_format(family.head_bias)
    fields.require_nothing_else(family.free)
    return Model(
        name=name,
        source=source,
        model_type=model_type,
        layers=tuple(layers),
        tables=tuple(tables),
        vectors=tuple(vectors),
        head=Matrix("lm_head", "head", vocabulary, hidden, reader.plain if tied else head_format, head_bias),
        tied=tied,
        longest_context=longest_context,
        cache_dtype=reader.formats.cache_dtype,
        assumed_defaults=dict(fields.assumed_defaults),
    )


def _read_layers(reader: LayerReader) -> list[ModelLayer]:
    family = reader.family
    norms, layers = [reader.make_norm(name) for name in NORM_NAMES[: family.norms]], []
    cached_kinds: set[str] = set()
    for layer, (kind, window) in enumerate(LAYER_KINDS[family.layer_kinds](reader)):
        layer_reader = replace(reader, layer=layer, kind=kind, window=window)
        if layer_reader.shared and kind not in cached_kinds:
            raise BadModel(f"num_kv_shared_layers: layer {layer} has no earlier {kind} with K/V of its own")
        linears, vectors, attention = ATTENTIONS[family.attention](layer_reader)
        mlp_linears, mlp_vectors = MLPS[family.mlp](layer_reader)
        layers.append(ModelLayer((*linears, *mlp_linears), (*norms, *vectors, *mlp_vectors), attention))
        if not layer_reader.shared:
            cached_kinds.add(kind)
    return layers


def _make_reader(config: Mapping[str, Any], model_type: str, nested: bool) -> LayerReader:
    config = {key: value for key, value in config.items() if value is not None or key not in DTYPE_FIELDS}
    family = FAMILIES[model_type]
    defaults = family.defaults
    if config.get("quantization_config"):  # what is not quantised is in 16 bits then, whatever the family's default
        defaults = {**defaults, "torch_dtype": "bfloat16"}
    fields = Fields(config, defaults, ALIASES | family.aliases)
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
