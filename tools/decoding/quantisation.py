"""Which matrices of a model are stored in fewer bits, by its quantization_config."""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import number_formats
from config_fields import BadModel, Fields, format_name, format_value
from number_formats import ROW_BLOCK, NumberFormat

SECTION = "quantization_config"
PREFIX = f"{SECTION}."
BITS, BLOCK_SIZES = (2, 3, 4, 8), range(1, 1 << 20)
FIELD_DEFAULTS = {"group_size": 128, "zero_point": True}
COMPRESSED_WEIGHTS_DEFAULTS = {"num_bits": 8, "type": "int", "symmetric": True}  # of compressed-tensors
# Fields that name modules which are not quantised.
EXCLUDING_FIELDS = ("modules_to_not_convert", "ignored_layers", "ignore", "llm_int8_skip_modules", "exclude_modules")
HEAD_QUANTISING_METHODS = ("compressed-tensors", "modelopt")  # they quantise the head unless a rule excludes it
ROUTER_RULE = r"re:.*\.(gate|router)$"  # of experts: too small to be worth it, and not quantised
SINGLE_EXPERT = re.compile(r"experts\W*\d")
MIXTRAL_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
COMPRESSED_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision")
COMPRESSED_FORMATS += ("nvfp4-pack-quantized", "mxfp4-pack-quantized", None)
Rules = list[tuple[str, NumberFormat]]  # module, part of its name or pattern, with its format; the first match counts
NumberedFormat = tuple[int, NumberFormat]  # the format of a rule, after the rule's place among all


@dataclass(frozen=True)
class WeightFormats:
    """The format of each matrix by its module's name, such as model.layers.0.mlp.down_proj.

    It is that of the first rule that matches the name in full, in part or by a pattern.
    """

    default: NumberFormat
    parts: Mapping[str, NumberedFormat] = field(default_factory=dict)  # by a part of the name, or a pattern
    patterns: Sequence[tuple[re.Pattern, NumberedFormat]] = ()
    cache_dtype: str = "bf16"  # of K/V
    nested: bool = False  # the language model of a larger one
    has_expert_rules: bool = False  # a rule names single experts

    def __call__(self, module: str, copies: int = 1) -> NumberFormat:
        """Return the format of a matrix, or of all experts by the name of the first. Raises BadModel if they differ."""
        if copies == 1 or not self.has_expert_rules:
            return self._find_format(module)
        formats = {self._find_format(module.replace("experts.0.", f"experts.{expert}.")) for expert in range(copies)}
        if len(formats) > 1:
            raise BadModel(f"{SECTION}: the experts of {module} differ; allowed: one format for all of a layer")
        return formats.pop()

    def _find_format(self, module: str) -> NumberFormat:
        names = _alternative_names(module, self.nested)
        matches = [self.parts[part] for name in names for part in _name_parts(name) if part in self.parts]
        matches += [numbered for pattern, numbered in self.patterns if any(map(pattern.match, names))]
        _, number_format = min(matches, key=lambda match: match[0], default=(0, self.default))
        return number_format


def read_formats(config: Mapping[str, Any] | None, plain: NumberFormat, nested: bool = False) -> WeightFormats:
    """Return the formats of a quantization_config; `plain` is that of matrices that are not quantised.

    Raises BadModel for what is not known.
    """
    if not config:
        return WeightFormats(plain)
    fields = _open_fields(config)
    method = fields.read_choice("quant_method", tuple(METHODS))
    rules, default = METHODS[method](fields, plain)
    excluded = [ROUTER_RULE, *(name for key in EXCLUDING_FIELDS for name in fields.read_names(key) or [])]
    quantises_head = fields.read_flag("lm_head") or method in HEAD_QUANTISING_METHODS
    if not quantises_head and fields.values.get("llm_int8_skip_modules") is None:
        excluded.append("lm_head")
    rules = [*((name, plain) for name in excluded), *rules]
    cache_dtype, parts = _read_cache_dtype(fields), {}
    fields.require_nothing_else()
    for number, (name, number_format) in enumerate(rules):
        parts.setdefault(name, (number, number_format))
    patterns = [(pattern, numbered) for name, numbered in parts.items() if (pattern := _compile_pattern(name))]
    has_expert_rules = any(SINGLE_EXPERT.search(name) for name, _ in rules)
    return WeightFormats(default, parts, patterns, cache_dtype, nested, has_expert_rules)


def _open_fields(config: Any, prefix: str = PREFIX, defaults: Mapping[str, Any] = FIELD_DEFAULTS) -> Fields:
    if not isinstance(config, Mapping):
        raise BadModel(f"{format_name(prefix[:-1])}: {format_value(config)}; allowed: a mapping")
    return Fields(config, defaults, prefix=prefix)


def _read_cache_dtype(fields: Fields) -> str:
    """Return the dtype that K/V are kept in."""
    if scheme := fields.read_mapping("kv_cache_scheme"):
        scheme_fields = _open_fields(scheme, f"{PREFIX}kv_cache_scheme.")
        scheme_fields.read_choice("num_bits", (8,))
        scheme_fields.read_choice("type", ("float",))
    return "fp8" if fields.read_choice("kv_cache_quant_algo", ("FP8", None)) or scheme else "bf16"


def _alternative_names(module: str, nested: bool) -> list[str]:
    """Return the names that a rule may use for a module.

    They are its own, that of the matrix into which engines merge it, and that of Mixtral's files; in a larger model
    each of them below a prefix too.
    """
    merged = re.sub(r"\b[qkv]_proj$", "qkv_proj", re.sub(r"\b(gate|up)_proj$", "gate_up_proj", module))
    names = [module, merged]
    if ".mlp.experts." in module:
        parent, _, matrix = module.replace(".mlp.", ".block_sparse_moe.").rpartition(".")
        names.append(f"{parent}.{MIXTRAL_NAMES[matrix]}")
    if not nested:
        return names
    inner_names = [name.replace("model.", "model.language_model.", 1) for name in names]
    return [f"language_model.{name}" for name in names] + inner_names


def _name_parts(name: str) -> list[str]:
    """Return every run of the words between a name's dots: a, b and a.b of a.b."""
    words = name.split(".")
    return [".".join(words[first:end]) for end in range(len(words) + 1) for first in range(end)]


def _compile_pattern(rule: str) -> re.Pattern | None:
    """Return the pattern of a rule: a regular expression after re:, or one with * or ?. None for a plain name."""
    try:
        if rule.startswith("re:"):
            return re.compile(rule[3:])
        if any(sign in rule for sign in "*?["):
            return re.compile(f"{fnmatch.translate(rule)}|{fnmatch.translate(f'{rule}.*')}")
    except (re.error, OverflowError, RecursionError) as error:
        raise BadModel(f"{SECTION}: {format_value(rule)} is not a regular expression ({error})") from None
    return None


# ---------------------------------------------------------------- methods: rules, and the format of all other matrices


def _read_group_format(fields: Fields, plain: NumberFormat) -> NumberFormat:
    """Return the format of GPTQ or AWQ: with zero points unless the config says that there are none."""
    bits = fields.read_choice("bits", BITS)
    size = fields.read_whole("group_size", minimum=-1) or fields.read_whole("group_size")
    zero_points = fields.read_flag("zero_point") and not fields.read_flag("sym")
    block = (1, size) if size > 0 else ROW_BLOCK
    return number_formats.integer_format(bits, block, plain.name, zero_points=zero_points)


def _read_gptq(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    number_format, rules = _read_group_format(fields, plain), []
    common = {key: fields.values[key] for key in ("bits", "group_size", "sym") if key in fields.values}
    for name, changes in (fields.read_mapping("dynamic") or {}).items():
        changed_fields = _open_fields(changes, f"{PREFIX}dynamic.", FIELD_DEFAULTS | common)
        changed_format = _read_group_format(changed_fields, plain)
        changed_fields.require_nothing_else()
        rules.append((f"re:{re.sub('^[+-]:', '', name)}", plain if name.startswith("-:") else changed_format))
    if quantised := fields.read_names("modules_in_block_to_quantize"):
        return rules + [(name, number_format) for name in quantised], plain
    return rules, number_format


def _read_bitsandbytes(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    # Each flag is read, or it would be one that is not known.
    in_4_bits = any([fields.read_flag("load_in_4bit"), fields.read_flag("_load_in_4bit")])
    in_8_bits = any([fields.read_flag("load_in_8bit"), fields.read_flag("_load_in_8bit")])
    if in_4_bits == in_8_bits:
        raise BadModel(f"{PREFIX}load_in_4bit and load_in_8bit; allowed: one of them true")
    fields.read_choice("bnb_4bit_quant_type", ("nf4", "fp4", None))
    # A scale of 64 numbers is in fp32. If it is quantised too, it has 8 bits, and 256 of them share one in fp32.
    scale_bytes = 1 + 4 / 256 if fields.read_flag("bnb_4bit_use_double_quant") else 4
    if in_8_bits:
        return [], NumberFormat("int8", 8, "int8", ROW_BLOCK, 4)
    return [], NumberFormat("4 bits", 4, "bf16", (1, 64), scale_bytes)


def _read_modelopt(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    """Read NVIDIA's: one algorithm, or one for each module that is named. The config_groups repeat it."""
    fields.read_mapping("config_groups")
    rules = []
    for name, config in (fields.read_mapping("quantized_layers") or {}).items():
        layer_fields = _open_fields(config, f"{PREFIX}quantized_layers.")
        rules.append((name, _read_modelopt_format(layer_fields, plain)))
        layer_fields.require_nothing_else()
    return rules, _read_modelopt_format(fields, plain, mixed=bool(rules))


def _read_modelopt_format(fields: Fields, plain: NumberFormat, mixed: bool = False) -> NumberFormat:
    group_size = fields.read_optional_whole("group_size") if fields.values.get("group_size") else 16
    formats = {
        "FP8": number_formats.fp8_format(None),
        "FP8_PB_WO": number_formats.fp8_format((128, 128)),
        "FP8_PER_CHANNEL_PER_TOKEN": number_formats.fp8_format(ROW_BLOCK),
        "NVFP4": number_formats.fp4_format(group_size, plain.name),
        None: plain,
    }
    if mixed:
        formats = {"MIXED_PRECISION": plain}
    return formats[fields.read_choice("quant_algo", tuple(formats))]


def _read_compressed_tensors(fields: Fields, plain: NumberFormat) -> tuple[Rules, NumberFormat]:
    """Read groups of targets. The most specific target counts: a module's name, a regular expression, all linears."""
    fields.read_choice("format", COMPRESSED_FORMATS)
    if sparsity := fields.read_mapping("sparsity_config"):
        _open_fields(sparsity, f"{PREFIX}sparsity_config.").read_choice("format", ("dense", None))
    rules: Rules = []
    for name, config in (fields.read_mapping("config_groups") or {}).items():
        group = _open_fields(config, f"{PREFIX}config_groups.{name}.")
        group.read_choice("format", COMPRESSED_FORMATS)
        number_format = _read_group_weights(group, plain)
        rules += [(target, number_format) for target in group.read_names("targets") or []]
        group.require_nothing_else()
    if not rules:
        raise BadModel(f"{PREFIX}config_groups: allowed: groups with targets and weights")
    names = [name for name, _ in rules if name not in ("Linear", "lm_head") and not name.startswith("re:")]
    if classes := [name for name in names if "." not in name]:
        raise BadModel(f"{PREFIX}config_groups: targets {format_value(classes)}; allowed: Linear, names, re:")
    rules.sort(key=lambda rule: rule[0].startswith("re:"))  # no name of a module is Linear
    return rules, next((number_format for name, number_format in rules if name == "Linear"), plain)


def _read_group_weights(group: Fields, plain: NumberFormat) -> NumberFormat:
    """Return the format of the weights of a group of compressed-tensors."""
    weights, activations = group.read_mapping("weights"), group.read_mapping("input_activations")
    if not weights:
        return plain
    fields = _open_fields(weights, f"{group.prefix}weights.", COMPRESSED_WEIGHTS_DEFAULTS)
    bits, kind = fields.read_choice("num_bits", BITS), fields.read_choice("type", ("int", "float"))
    group_size = fields.read_optional_whole("group_size", minimum=-1)
    block_structure = fields.read_list("block_structure", BLOCK_SIZES, 2)
    group_block = (1, group_size) if group_size and group_size > 0 else None
    blocks = {"tensor": None, "channel": ROW_BLOCK, "group": group_block, "tensor_group": group_block}
    blocks |= {"block": block_structure, None: group_block or (ROW_BLOCK if group_size else block_structure)}
    strategy = fields.read_choice("strategy", tuple(blocks))
    block = blocks[strategy]
    if block is None and strategy not in ("tensor", None):
        raise BadModel(f"{fields.prefix}strategy: {strategy} without its sizes")
    symmetric, _ = fields.read_flag("symmetric"), fields.read_flag("dynamic")
    fields.require_nothing_else()
    if kind == "int":
        product_dtype = "int8" if bits == 8 and activations else plain.name
        return number_formats.integer_format(bits, block, product_dtype, zero_points=not symmetric)
    if bits == 4 and group_block:
        return number_formats.fp4_format(group_size, plain.name)
    if bits == 8:
        return number_formats.fp8_format(block)
    raise BadModel(f"{fields.prefix}num_bits: floats of {bits} bits; allowed: 8, or 4 in groups")


METHODS: dict[str, Callable[[Fields, NumberFormat], tuple[Rules, NumberFormat]]] = {
    "awq": lambda fields, plain: ([], _read_group_format(fields, plain)),
    "bitsandbytes": _read_bitsandbytes,
    "compressed-tensors": _read_compressed_tensors,
    "fbgemm_fp8": lambda fields, plain: ([], number_formats.fp8_format(ROW_BLOCK)),
    "fp8": lambda fields, plain: ([], number_formats.fp8_format(fields.read_list("weight_block_size", BLOCK_SIZES, 2))),
    "gptq": _read_gptq,
    "modelopt": _read_modelopt,
    "mxfp4": lambda fields, plain: ([("experts", number_formats.fp4_format(32, "bf16"))], plain),
}
