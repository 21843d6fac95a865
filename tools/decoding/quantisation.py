"""Which matrices of a model are stored in fewer bits, by its quantization_config."""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import number_formats
from config_fields import BadModel, Fields, printable, shown
from number_formats import BY_ROW, NumberFormat

WHERE = "quantization_config."
BITS, SIZES = (2, 3, 4, 8), range(1, 1 << 20)
DEFAULTS = {"group_size": 128, "zero_point": True}
WEIGHTS = {"num_bits": 8, "type": "int", "symmetric": True}  # of compressed-tensors
LEFT = ("modules_to_not_convert", "ignored_layers", "ignore", "llm_int8_skip_modules", "exclude_modules")
OF_WHOLE_MODELS = ("compressed-tensors", "modelopt")  # the head is quantised unless a rule leaves it alone
ROUTERS = r"re:.*\.(gate|router)$"  # of experts: too small to be worth it, and left alone
ONE_EXPERT = re.compile(r"experts\W*\d")
OF_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
PACKED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision")
PACKED += ("nvfp4-pack-quantized", "mxfp4-pack-quantized", None)
Rules = list[tuple[str, NumberFormat]]


@dataclass(frozen=True)
class WeightFormats:
    """The format of each matrix by its module's name, such as model.layers.0.mlp.down_proj: that of the first rule
    which names it, in full, in part or by a pattern. Rules have their places."""

    otherwise: NumberFormat
    parts: Mapping[str, tuple[int, NumberFormat]] = field(default_factory=dict)
    patterns: Sequence[tuple[int, re.Pattern, NumberFormat]] = ()
    cache: str = "bf16"  # what K/V are kept in
    nested: bool = False  # the language model of a larger one
    one_by_one: bool = False  # a rule names single experts

    def __call__(self, module: str, copies: int = 1) -> NumberFormat:
        """Of a matrix, or of all experts by the name of the first. Raises BadModel if those differ."""
        if copies == 1 or not self.one_by_one:
            names = _names(module, self.nested)
            found = [self.parts[part] for name in names for part in _parts(name) if part in self.parts]
            found += [(place, of) for place, rule, of in self.patterns if any(map(rule.match, names))]
            return min(found, key=lambda one: one[0])[1] if found else self.otherwise
        each = {self(module.replace("experts.0.", f"experts.{expert}.")) for expert in range(copies)}
        if len(each) > 1:
            raise BadModel(f"{WHERE[:-1]}: the experts of {module} differ; allowed: one format for all of a layer")
        return each.pop()


def stored(given: Mapping[str, Any] | None, plain: NumberFormat, nested: bool = False) -> WeightFormats:
    """Raises BadModel for what is not known."""
    if not given:
        return WeightFormats(plain)
    fields = _fields(given)
    method = fields.word("quant_method", tuple(METHODS))
    rules, otherwise = METHODS[method](fields, plain)
    left = [ROUTERS, *(name for key in LEFT for name in fields.names(key) or [])]
    whole = method in OF_WHOLE_MODELS or fields.given.get("llm_int8_skip_modules") is not None
    left += [] if fields.flag("lm_head") or whole else ["lm_head"]
    rules = [*((name, plain) for name in left), *rules]
    cache, parts, patterns = _cache(fields), {}, []
    fields.require_nothing_else()
    for place, (name, of) in enumerate(rules):
        if pattern := _pattern(name):
            patterns.append((place, pattern, of))
        else:
            parts.setdefault(name, (place, of))
    one_by_one = any(ONE_EXPERT.search(name) for name, _ in rules)
    return WeightFormats(otherwise, parts, patterns, cache, nested, one_by_one)


def _fields(given: Any, prefix: str = WHERE, defaults: Mapping[str, Any] = DEFAULTS) -> Fields:
    if not isinstance(given, Mapping):
        raise BadModel(f"{printable(prefix[:-1])}: {shown(given)}; allowed: a mapping")
    return Fields(given, defaults, prefix=prefix)


def _cache(fields: Fields) -> str:
    """What K/V are kept in."""
    scheme = fields.mapping("kv_cache_scheme")
    if scheme:
        inner = _fields(scheme, f"{WHERE}kv_cache_scheme.")
        inner.word("num_bits", (8,))
        inner.word("type", ("float",))
    return "fp8" if fields.word("kv_cache_quant_algo", ("FP8", None)) or scheme else "bf16"


def _names(module: str, nested: bool) -> list[str]:
    """What a rule may call it: as it is, as engines merge it, as Mixtral's files have it; all below a prefix in a
    larger model."""
    found = [module, re.sub(r"\b[qkv]_proj$", "qkv_proj", re.sub(r"\b(gate|up)_proj$", "gate_up_proj", module))]
    if ".mlp.experts." in module:
        before, _, last = module.replace(".mlp.", ".block_sparse_moe.").rpartition(".")
        found.append(f"{before}.{OF_MIXTRAL[last]}")
    below = [one.replace("model.", "model.language_model.", 1) for one in found]
    return [f"language_model.{one}" for one in found] + below if nested else found


def _parts(name: str) -> list[str]:
    pieces = name.split(".")
    return [".".join(pieces[first:last]) for last in range(len(pieces) + 1) for first in range(last)]


def _pattern(rule: str) -> re.Pattern | None:
    """A regular expression after re:, or a pattern with * or ?."""
    if not (regular := rule.startswith("re:")) and not any(sign in rule for sign in "*?["):
        return None
    try:
        return re.compile(rule[3:] if regular else f"{fnmatch.translate(rule)}|{fnmatch.translate(f'{rule}.*')}")
    except (re.error, OverflowError, RecursionError) as error:
        raise BadModel(f"{WHERE[:-1]}: {shown(rule)} is not a regular expression ({error})") from None


# ---------------------------------------------------------------- methods: rules, and the format of what none names


def _groups(fields: Fields, plain: NumberFormat) -> NumberFormat:
    """GPTQ's and AWQ's: with zero points unless the config says that there are none."""
    bits, size = fields.word("bits", BITS), fields.whole("group_size", least=-1) or fields.whole("group_size")
    zero_points = fields.flag("zero_point") and not fields.flag("sym")
    block = (1, size) if size > 0 else BY_ROW
    return number_formats.integers(bits, block, plain.name, zero_points=zero_points)


def _gptq(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    of, rules = _groups(fields, plain), []
    base = {key: fields.given[key] for key in ("bits", "group_size", "sym") if key in fields.given}
    for name, changes in (fields.mapping("dynamic") or {}).items():
        inner = _fields({**base, **_fields(changes, f"{WHERE}dynamic.").given}, f"{WHERE}dynamic.")
        changed = _groups(inner, plain)
        inner.require_nothing_else()
        rules.append((f"re:{re.sub('^[+-]:', '', name)}", plain if name.startswith("-:") else changed))
    blocks = fields.names("modules_in_block_to_quantize")
    return (rules + [(name, of) for name in blocks], plain) if blocks else (rules, of)


def _bitsandbytes(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    four, eight = (any([fields.flag(f"load_in_{bits}bit"), fields.flag(f"_load_in_{bits}bit")]) for bits in (4, 8))
    if four == eight:
        raise BadModel(f"{WHERE}load_in_4bit and load_in_8bit; allowed: one of them true")
    fields.word("bnb_4bit_quant_type", ("nf4", "fp4", None))
    of_four = number_formats.four_bits(fields.flag("bnb_4bit_use_double_quant"))
    return [], of_four if four else number_formats.INT8


def _modelopt(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    """NVIDIA's: one algorithm, or one for each module that is named; its groups repeat that."""
    fields.mapping("config_groups")
    rules = []
    for name, given in (fields.mapping("quantized_layers") or {}).items():
        inner = _fields(given, f"{WHERE}quantized_layers.")
        rules.append((name, _algorithm(inner, plain)))
        inner.require_nothing_else()
    return rules, _algorithm(fields, plain, mixed=bool(rules))


def _algorithm(fields: Fields, plain: NumberFormat, mixed: bool = False) -> NumberFormat:
    size = fields.optional("group_size") if fields.given.get("group_size") else 16
    known = {
        "FP8": number_formats.fp8(None),
        "FP8_PB_WO": number_formats.fp8((128, 128)),
        "FP8_PER_CHANNEL_PER_TOKEN": number_formats.fp8(BY_ROW),
        "NVFP4": number_formats.fp4(size, plain.name),
        None: plain,
    }
    return {**known, "MIXED_PRECISION": plain}[fields.word("quant_algo", ("MIXED_PRECISION",) if mixed else (*known,))]


def _compressed(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    """The most specific target counts: the name of a module, a regular expression, all linear layers."""
    fields.word("format", PACKED)
    if sparsity := fields.mapping("sparsity_config"):
        _fields(sparsity, f"{WHERE}sparsity_config.").word("format", ("dense", None))
    targets = []
    for name, given in (fields.mapping("config_groups") or {}).items():
        group = _fields(given, f"{WHERE}config_groups.{name}.")
        group.word("format", PACKED)
        of = _weights(group, plain)
        targets += [(one, of) for one in group.names("targets") or []]
        group.require_nothing_else()
    if not targets:
        raise BadModel(f"{WHERE}config_groups: allowed: groups with targets and weights")
    classes = [name for name, _ in targets if name != "Linear" and not re.search(r"^re:|\.|^lm_head$", name)]
    if classes:
        raise BadModel(f"{WHERE}config_groups: targets {shown(classes)}; allowed: Linear, names, re:")
    targets.sort(key=lambda one: 2 if one[0] == "Linear" else one[0].startswith("re:"))
    return [("re:" if name == "Linear" else name, of) for name, of in targets], plain


def _weights(group: Fields, plain: NumberFormat) -> NumberFormat:
    given, activations = group.mapping("weights"), group.mapping("input_activations")
    if not given:
        return plain
    fields = _fields(given, f"{group.prefix}weights.", WEIGHTS)
    bits, kind = fields.word("num_bits", BITS), fields.word("type", ("int", "float"))
    size, by_block = fields.optional("group_size", least=-1), fields.listed("block_structure", SIZES, 2)
    of_size = (1, size) if size and size > 0 else None
    blocks = {"tensor": None, "channel": BY_ROW, "group": of_size, "tensor_group": of_size, "block": by_block}
    guess = "group" if of_size else "channel" if size else "block" if by_block else "tensor"
    strategy = fields.word("strategy", (*blocks, None)) or guess
    block = blocks[strategy]
    if block is None and strategy != "tensor":
        raise BadModel(f"{fields.prefix}strategy: {strategy} without its sizes")
    symmetric, _ = fields.flag("symmetric"), fields.flag("dynamic")
    fields.require_nothing_else()
    if kind == "int":
        arithmetic = "int8" if bits == 8 and activations else plain.name
        return number_formats.integers(bits, block, arithmetic, zero_points=not symmetric)
    if bits == 4 and of_size:
        return number_formats.fp4(size, plain.name)
    if bits == 8:
        return number_formats.fp8(block)
    raise BadModel(f"{fields.prefix}num_bits: floats of {bits} bits; allowed: 8, or 4 in groups")


METHODS: dict[str, Callable[[Fields, NumberFormat], tuple[Rules, NumberFormat]]] = {
    "awq": lambda fields, plain: ([], _groups(fields, plain)),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "fbgemm_fp8": lambda fields, plain: ([], number_formats.fp8(BY_ROW)),
    "fp8": lambda fields, plain: ([], number_formats.fp8(fields.listed("weight_block_size", SIZES, 2))),
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": lambda fields, plain: ([("experts", number_formats.fp4(32, "bf16"))], plain),
}
