"""The layers of a model, from the fields of its config.json, for each model_type that is known.

Defaults of fields: families.yaml. Shapes: modeling_*.py of transformers 5.23.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from architecture import Attention, EmbeddingTable, Linear, Model, ModelLayer, Vector
from config_fields import BadModel, Fields, shown
from number_formats import NAMES, PLAIN, NumberFormat
from quantisation import WeightFormats, stored

FULL, SLIDING = "full_attention", "sliding_attention"
ALIASES = {"dtype": "torch_dtype", "_sliding_window_pattern": "sliding_window_pattern"}
ALIASES |= {"sliding_window_size": "sliding_window"}  # Gemma 2 has both
DEFAULTS = Path(__file__).with_name("families.yaml")
OF_ALL = ("torch_dtype", "dtype", "quantization_config", "tie_word_embeddings")  # next to text_config
HEADED = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
NORMS = ("input norm", "norm after attention", "norm before the MLP", "norm after the MLP")
MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Reader:
    """What a layer is read with."""

    fields: Fields
    plain: NumberFormat  # of what is not quantised
    stored: WeightFormats
    hidden: int
    layers: int

    def linear(self, layer: int, module: str, part, outputs: int, inputs: int, *, bias=False, copies=1, per_token=1):
        where = f"model.layers.{layer}.{module}"
        of = PLAIN["fp32"] if bias == "fp32" else self.plain
        stored = self.stored(where, copies)
        return Linear(module, part, outputs, inputs, stored, of if bias else None, copies=copies, per_token=per_token)

    def vector(self, name: str, part, elements: int) -> Vector:
        return Vector(name, part, elements, self.plain)


@dataclass(frozen=True)
class Family:
    """Biases and norms are as the family has them; a name is that of the field which says so."""

    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norms: bool = False
    sinks: bool = False
    norms: int = 2  # next to those
    windows: Callable[[Reader], list[int | None]] = lambda reader: [None] * reader.layers
    attention: Callable[["Family", Reader, int, int | None], tuple[list[Linear], list[Vector], Attention]] | None = None
    mlp: Callable[["Family", Reader, int], list[Linear]] | None = None


def _is(reader: Reader, setting: bool | str) -> bool:
    return reader.fields.flag(setting) if isinstance(setting, str) else setting


def grouped(family: Family, reader: Reader, layer: int, window: int | None):
    """Queries in groups that share keys and values."""
    fields = reader.fields
    queries = fields.whole("num_attention_heads")
    shared = fields.optional("num_key_value_heads") or queries
    if queries % shared:
        raise BadModel(f"num_key_value_heads: {shared} does not divide num_attention_heads, {queries}")
    size = fields.whole("head_dim") if fields.knows("head_dim") else fields.optional("head_dim")
    if size is None:
        if reader.hidden % queries:
            raise BadModel(f"num_attention_heads: {queries} does not divide hidden_size, {reader.hidden}")
        size = reader.hidden // queries
    of_qkv, of_o = _is(reader, family.qkv_bias), _is(reader, family.o_bias)
    linears = [
        reader.linear(layer, "self_attn.q_proj", "attention", queries * size, reader.hidden, bias=of_qkv),
        reader.linear(layer, "self_attn.k_proj", "attention", shared * size, reader.hidden, bias=of_qkv),
        reader.linear(layer, "self_attn.v_proj", "attention", shared * size, reader.hidden, bias=of_qkv),
        reader.linear(layer, "self_attn.o_proj", "attention", reader.hidden, queries * size, bias=of_o),
    ]
    vectors = [reader.vector("q_norm and k_norm", "attention", 2 * size)] if family.qk_norms else []
    vectors += [reader.vector("sinks", "attention", queries)] if family.sinks else []
    return linears, vectors, Attention(2 * shared * size, 2 * queries * size, window, size)


def latent(family: Family, reader: Reader, layer: int, window: int | None):
    """DeepSeek's: a latent vector a token is kept, and the matrices that make K and V of it are absorbed into those
    of the queries and of the output (DeepSeek-V2, 2405.04434, 2.1)."""
    fields, hidden = reader.fields, reader.hidden
    queries, rank = fields.whole("num_attention_heads"), fields.whole("kv_lora_rank")
    rotated, plain, values = (fields.whole(f"{name}_head_dim") for name in ("qk_rope", "qk_nope", "v"))
    of_queries = fields.optional("q_lora_rank")
    for name in ("num_key_value_heads", "head_dim", "intermediate_size"):  # in files, even if nothing uses them
        fields.optional(name)
    bias = _is(reader, family.qkv_bias)
    linears, vectors = [], [reader.vector("kv_a_layernorm", "attention", rank)]
    inputs, name = hidden, "self_attn.q_proj"
    if of_queries:
        linears.append(reader.linear(layer, "self_attn.q_a_proj", "attention", of_queries, hidden, bias=bias))
        vectors.append(reader.vector("q_a_layernorm", "attention", of_queries))
        inputs, name = of_queries, "self_attn.q_b_proj"
    linears += [
        reader.linear(layer, name, "attention", queries * (plain + rotated), inputs),
        reader.linear(layer, "self_attn.kv_a_proj_with_mqa", "attention", rank + rotated, hidden, bias=bias),
        reader.linear(layer, "self_attn.kv_b_proj", "attention", queries * (plain + values), rank),
        reader.linear(layer, "self_attn.o_proj", "attention", hidden, queries * values, bias=bias),
    ]
    products, unabsorbed = queries * (rank + rotated + rank), queries * (plain + rotated + values)
    return linears, vectors, Attention(rank + rotated, products, window, unabsorbed=unabsorbed)


def by_layer_types(reader: Reader) -> list[int | None]:
    """Windows where layer_types names them; without it in all layers but each second (gpt-oss, Gemma 2) or sixth."""
    fields, window = reader.fields, reader.fields.optional("sliding_window", least=0)
    every = fields.whole("sliding_window_pattern") if fields.knows("sliding_window_pattern") else 2
    types = fields.listed("layer_types", (FULL, SLIDING), reader.layers)
    if types is None:
        types = [SLIDING if (layer + 1) % every else FULL for layer in range(reader.layers)]
        fields.assumed["layer_types"] = f"{FULL} every {every} layers"
    return [window if one == SLIDING else None for one in types]


def of_upper_layers(reader: Reader) -> list[int | None]:
    """Qwen's: windows where they are switched on, from layer max_window_layers on or where layer_types names them."""
    windows, types = if_switched_on(reader), reader.fields.listed("layer_types", (FULL, SLIDING), reader.layers)
    first = reader.fields.whole("max_window_layers", least=0) if any(windows) and not types else 0
    types = types or [SLIDING if layer >= first else FULL for layer in range(reader.layers)]
    return [window if one == SLIDING else None for one, window in zip(types, windows, strict=True)]


def if_switched_on(reader: Reader) -> list[int | None]:
    """Those of Qwen's mixtures: in all layers, whatever max_window_layers says."""
    reader.fields.optional("max_window_layers", least=0)
    on, windows = reader.fields.flag("use_sliding_window"), in_all_layers(reader)
    return windows if on else [None] * reader.layers


def in_all_layers(reader: Reader) -> list[int | None]:
    return [reader.fields.optional("sliding_window", least=0)] * reader.layers


def gated(family: Family, reader: Reader, layer: int, size: int | None = None, module="mlp", **experts) -> list[Linear]:
    """Two matrices in, one out."""
    size, part = size or reader.fields.whole("intermediate_size"), "experts" if experts else "MLP"
    bias = _is(reader, family.mlp_bias)
    shapes = {"gate_proj": (size, reader.hidden), "up_proj": (size, reader.hidden), "down_proj": (reader.hidden, size)}
    return [
        reader.linear(layer, f"{module}.{name}", part, *shape, bias=bias, **experts) for name, shape in shapes.items()
    ]


def _experts(reader: Reader, field_name: str) -> dict[str, int]:
    number, chosen = reader.fields.whole(field_name), reader.fields.whole("num_experts_per_tok")
    if chosen > number:
        raise BadModel(f"num_experts_per_tok: {chosen} is above {field_name}, {number}")
    return {"copies": number, "per_token": chosen}


def local_experts(family: Family, reader: Reader, layer: int) -> list[Linear]:
    """Mixtral's and gpt-oss's: experts in every layer, behind a router."""
    experts, bias = _experts(reader, "num_local_experts"), _is(reader, family.mlp_bias)
    router = reader.linear(layer, "mlp.router", "experts", experts["copies"], reader.hidden, bias=bias)
    return [router, *gated(family, reader, layer, module="mlp.experts.0", **experts)]


def some_experts(family: Family, reader: Reader, layer: int) -> list[Linear]:
    """Qwen3's: experts but in the layers that are named, and between every decoder_sparse_step."""
    fields = reader.fields
    experts, size = _experts(reader, "num_experts"), fields.whole("moe_intermediate_size")
    step, dense = fields.whole("decoder_sparse_step"), fields.listed("mlp_only_layers", range(MOST_LAYERS)) or ()
    if layer in dense or (layer + 1) % step:
        return gated(family, reader, layer)
    fields.whole("intermediate_size")
    router = reader.linear(layer, "mlp.gate", "experts", experts["copies"], reader.hidden)
    return [router, *gated(family, reader, layer, size, "mlp.experts.0", **experts)]


def routed_and_shared(family: Family, reader: Reader, layer: int, corrected: bool = True) -> list[Linear]:
    """DeepSeek's: dense layers first, then routed experts next to shared ones; the router's correction is in fp32."""
    fields = reader.fields
    experts, size = _experts(reader, "n_routed_experts"), fields.whole("moe_intermediate_size")
    shared, step = fields.optional("n_shared_experts", least=0) or 0, fields.whole("moe_layer_freq")
    if layer < fields.whole("first_k_dense_replace", least=0) or layer % step:
        return gated(family, reader, layer)
    return [
        reader.linear(layer, "mlp.gate", "experts", experts["copies"], reader.hidden, bias=corrected and "fp32"),
        *gated(family, reader, layer, size, "mlp.experts.0", **experts),
        *(gated(family, reader, layer, size * shared, "mlp.shared_experts") if shared else []),
    ]


FAMILIES: dict[str, Family] = {
    "llama": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "gemma": Family("attention_bias", "attention_bias"),
    "gemma2": Family("attention_bias", "attention_bias", norms=4, windows=by_layer_types),
    "gemma3_text": Family("attention_bias", "attention_bias", qk_norms=True, norms=4, windows=by_layer_types),
    "mistral": Family(windows=in_all_layers),
    "mixtral": Family(windows=in_all_layers, mlp=local_experts),
    "phi3": Family(windows=in_all_layers),
    "qwen2": Family(qkv_bias=True, windows=of_upper_layers),
    "qwen3": Family("attention_bias", "attention_bias", qk_norms=True, windows=of_upper_layers),
    "qwen3_moe": Family("attention_bias", "attention_bias", qk_norms=True, windows=if_switched_on, mlp=some_experts),
    "gpt_oss": Family("attention_bias", "attention_bias", True, sinks=True, windows=by_layer_types, mlp=local_experts),
    "deepseek_v2": Family("attention_bias", attention=latent, mlp=partial(routed_and_shared, corrected=False)),
    "deepseek_v3": Family("attention_bias", attention=latent, mlp=routed_and_shared),
    "kimi_k2": Family("attention_bias", attention=latent, mlp=routed_and_shared),
}
GPT2 = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
GPT2 |= {"n_inner": "intermediate_size", "n_positions": "max_position_embeddings"}


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """By model_type."""
    return yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))


def known() -> list[str]:
    return sorted([*FAMILIES, "gpt2"])


def build(name: str, source: str, given: Mapping[str, Any]) -> Model:
    """A model from the content of its config.json. Raises BadModel, in one line."""
    if not isinstance(given, Mapping):
        raise BadModel(f"it holds {type(given).__name__}; allowed: a mapping")
    inner = given.get("text_config")
    nested = isinstance(inner, Mapping) and given.get("model_type") not in known()  # it sees or hears as well
    if nested:
        source = f"{source}, of which text_config alone is counted"
        both = [*((key, given.get(key)) for key in OF_ALL), *inner.items()]
        given = {ALIASES.get(key, key): value for key, value in both if value is not None or key not in OF_ALL}
    kind = given.get("model_type")
    if kind == "gpt2":
        return _gpt2(name, source, given)
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise BadModel(f"model_type: {shown(kind)} is unknown; allowed: {', '.join(known())}")
    family = FAMILIES[kind]
    reader = _reader(given, kind, ALIASES, nested)
    windows = family.windows(reader)
    layers = []
    for layer in range(reader.layers):
        linears, vectors, attention = (family.attention or grouped)(family, reader, layer, windows[layer])
        norms = [reader.vector(name, "attention", reader.hidden) for name in NORMS[: family.norms]]
        after = (family.mlp or gated)(family, reader, layer)
        layers.append(ModelLayer((*linears, *after), (*norms, *vectors), attention))
    norm = reader.vector("last norm", "head", reader.hidden)
    return _whole(name, source, kind, reader, layers, (norm,), ())


def _reader(given: Mapping[str, Any], kind: str, aliases: Mapping[str, str], nested: bool = False) -> Reader:
    """What is left of a quantised model is in 16 bits, whatever the default of its class."""
    given = {key: value for key, value in given.items() if value is not None or aliases.get(key, key) != "torch_dtype"}
    of_family = defaults()[kind] | ({"torch_dtype": "bfloat16"} if given.get("quantization_config") else {})
    fields = Fields(given, of_family, aliases)
    plain = PLAIN[NAMES[fields.word("torch_dtype", tuple(NAMES))]]
    sizes = (fields.whole("hidden_size"), fields.whole("num_hidden_layers"))
    if sizes[1] > MOST_LAYERS:
        raise BadModel(f"num_hidden_layers: {sizes[1]}; allowed: {MOST_LAYERS} or fewer")
    if headless := [one for one in fields.names("architectures") or [] if not one.endswith(HEADED)]:
        raise BadModel(f"architectures: {shown(headless)}; allowed: a name that ends in {', '.join(HEADED)}")
    return Reader(fields, plain, stored(fields.mapping("quantization_config"), plain, nested), *sizes)


def _whole(name, source, kind, reader: Reader, layers, vectors, tables) -> Model:
    fields, hidden = reader.fields, reader.hidden
    vocabulary, head = fields.whole("vocab_size"), reader.stored("lm_head")
    tied, longest = fields.flag("tie_word_embeddings"), fields.whole("max_position_embeddings")
    if tied and (fields.mapping("quantization_config") or {}).get("lm_head"):
        raise BadModel("tie_word_embeddings and quantization_config.lm_head; allowed: one of them true")
    fields.require_nothing_else()
    embedding = EmbeddingTable("embed_tokens", vocabulary, hidden, reader.plain)
    head = Linear("lm_head", "head", vocabulary, hidden, reader.plain if tied else head)  # tied: not quantised
    around = ((embedding, *tables), vectors, head, tied, longest)
    return Model(name, source, kind, tuple(layers), *around, reader.stored.cache, dict(fields.assumed))


def _gpt2(name: str, source: str, given: Mapping[str, Any]) -> Model:
    """With biases everywhere, LayerNorms of two vectors, and a table of positions."""
    reader = _reader(given, "gpt2", ALIASES | GPT2)
    fields, hidden = reader.fields, reader.hidden
    number = fields.whole("num_attention_heads")
    if hidden % number:
        raise BadModel(f"n_head: {number} does not divide n_embd, {hidden}")
    size = fields.optional("intermediate_size") or 4 * hidden
    layers = [
        ModelLayer(
            (
                reader.linear(layer, "attn.c_attn", "attention", 3 * hidden, hidden, bias=True),
                reader.linear(layer, "attn.c_proj", "attention", hidden, hidden, bias=True),
                reader.linear(layer, "mlp.c_fc", "MLP", size, hidden, bias=True),
                reader.linear(layer, "mlp.c_proj", "MLP", hidden, size, bias=True),
            ),
            tuple(reader.vector(norm, "attention", 2 * hidden) for norm in ("ln_1", "ln_2")),
            Attention(2 * hidden, 2 * hidden),
        )
        for layer in range(reader.layers)
    ]
    positions = EmbeddingTable("wpe", fields.whole("max_position_embeddings"), hidden, reader.plain)
    return _whole(name, source, "gpt2", reader, layers, (reader.vector("ln_f", "head", 2 * hidden),), (positions,))
