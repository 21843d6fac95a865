"""Which matrices of a model are stored in fewer bits, by its quantization_config."""

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import Any

import number_formats
from config_fields import BadModel, Fields
from number_formats import NumberFormat

METHODS = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "mxfp4")
BITS = (2, 3, 4, 8)
EXCLUDING = ("modules_to_not_convert", "ignored_layers", "ignore", "llm_int8_skip_modules")
ROUTERS = re.compile(r"\.(gate|router)$")  # of experts: too small to be worth it, and left alone
Stored = Callable[[str], NumberFormat]


def stored(given: Mapping[str, Any] | None, plain: NumberFormat) -> Stored:
    """The format of each matrix by its module's name, such as model.layers.0.mlp.down_proj. Raises BadModel."""
    if given is None:
        return lambda module: plain
    method = given.get("quant_method")
    if method not in METHODS:
        raise BadModel(f"quantization_config.quant_method: {method!r} is unknown; allowed: {', '.join(METHODS)}")
    fewer = _format(str(method), given, plain.name)
    left = [name for key in EXCLUDING for name in _names(given, key)]
    if method != "compressed-tensors":
        left.append("lm_head")
    experts_alone = method == "mxfp4"

    def of(module: str) -> NumberFormat:
        excluded = ROUTERS.search(module) or any(_is_of(module, name) for name in left)
        return plain if excluded or (experts_alone and ".experts." not in module) else fewer

    return of


def _names(given: Mapping[str, Any], key: str) -> list[str]:
    names = given.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadModel(f"quantization_config.{key}: {names!r}; allowed: a list of names")
    return names


def _is_of(module: str, name: str) -> bool:
    """Whether an exclusion names a module: as a pattern, a regular expression after re:, or a part of its name."""
    if name.startswith("re:"):
        try:
            return re.match(name[3:], module) is not None
        except re.error as error:
            raise BadModel(f"quantization_config: {name!r} is not a regular expression ({error})") from None
    if "*" in name:
        return fnmatch.fnmatch(module, name) or fnmatch.fnmatch(module, f"{name}.*")
    return f".{name}." in f".{module}."


def _format(method: str, given: Mapping[str, Any], plain: str) -> NumberFormat:
    fields = Fields(given, {"group_size": 128})
    if method == "mxfp4":
        return number_formats.MXFP4
    if method == "fp8":
        return number_formats.fp8(_block(given.get("weight_block_size")))
    if method in ("gptq", "awq"):
        bits = fields.whole("bits")
        if bits not in BITS:
            raise BadModel(f"quantization_config.bits: {bits}; allowed: {', '.join(map(str, BITS))}")
        size = fields.optional("group_size", least=-1)
        return number_formats.groups(bits, size if size and size > 0 else 1 << 62, plain)
    if method == "bitsandbytes":
        return number_formats.normal_floats() if given.get("load_in_4bit") else number_formats.rows(8, "int8")
    return _compressed(given, plain)


def _block(given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != 2 or not all(type(one) is int and one > 0 for one in given):
        raise BadModel(f"quantization_config.weight_block_size: {given!r}; allowed: two whole numbers of 1 or more")
    return given[0], given[1]


def _compressed(given: Mapping[str, Any], plain: str) -> NumberFormat:
    """Of compressed-tensors, the first group's: its schemes name all linear layers."""
    groups = given.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(first.get("weights"), Mapping) or len(groups) > 1:
        raise BadModel("quantization_config.config_groups: allowed: one group with its weights")
    weights = first["weights"]
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float" and bits == 8:
        return number_formats.fp8(_block(weights.get("block_structure")))
    if kind == "int" and bits in BITS:
        size = weights.get("group_size")
        if type(size) is int and size > 0:
            return number_formats.groups(bits, size, plain)
        return number_formats.rows(bits, "int8" if bits == 8 and first.get("input_activations") else plain)
    allowed = f"float of 8, int of {', '.join(map(str, BITS))}"
    raise BadModel(f"quantization_config: weights of {bits!r} bits of type {kind!r}; allowed: {allowed}")
