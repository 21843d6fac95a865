"""The configuration: read strictly, checked against its schema, completed with defaults, held against the machine.

Every fault is one line that names the key, the value and what is allowed; all faults are told at once.
"""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path

import yaml

from roofline import checkpoint
from roofline.devices import copy_levels
from roofline.operators import gemm
from roofline.operators.decode_attention import Shape, workspace_bytes

MIB = 1 << 20


class Faults(Exception):
    """What is wrong with a configuration, a line each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self.lines = lines


# ---------------------------------------------------------------- reading


class _StrictLoader(yaml.SafeLoader):
    """YAML without its silence about a key that stands twice."""


def _mapping_without_duplicates(loader, node, deep=False):
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key '{key}' stands twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG,
    lambda loader, node: _mapping_without_duplicates(loader, node, deep=True),
)


def read_file(path: Path | str) -> dict:
    """A configuration file as it stands. Raises Faults where it is missing, empty, malformed or no mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        config = yaml.load(text, _StrictLoader)
    except FileNotFoundError:
        raise Faults([f"{path}: no such file; restore it with: git checkout -- {path}"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([f"{path}: cannot be read ({error})"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise Faults([f"{path}{line}: {getattr(error, 'problem', None) or 'not YAML'}"]) from None
    if config is None:
        raise Faults([f"{path}: empty; it needs at least one key, such as 'devices: auto'"])
    if not isinstance(config, dict):
        raise Faults([f"{path}: a {type(config).__name__}, allowed: a mapping of keys to values"])
    return config


# ---------------------------------------------------------------- the schema


def schema_faults(config: Mapping, schema: Mapping) -> list[str]:
    """What the schema forbids, a line a fault."""
    import jsonschema

    errors = jsonschema.Draft202012Validator(schema).iter_errors(config)
    in_order = sorted(errors, key=lambda error: [str(part) for part in error.absolute_path])
    told = [line for error in in_order for line in _told(error)]
    return list(dict.fromkeys(told + _not_finite(config)))


def with_defaults(config: Mapping, schema: Mapping) -> dict:
    """The configuration with every missing key at its default."""
    completed = dict(config)
    for key, part in schema.get("properties", {}).items():
        if "default" in part:
            completed.setdefault(key, part["default"])
        elif part.get("type") == "object":
            completed[key] = with_defaults(completed.get(key) or {}, part)
    return completed


def _told(error) -> list[str]:
    key = _key(error.absolute_path)
    value = error.instance
    match error.validator:
        case "additionalProperties":
            known = list(error.schema.get("properties", {}))
            parents = ".".join(str(part) for part in error.absolute_path)
            return [_unknown_key(parents, name, known) for name in value if name not in known]
        case "required":
            return [f"{key}: {name} is missing" for name in error.validator_value if name not in value]
        case "uniqueItems":
            twice = next(item for i, item in enumerate(value) if item in value[:i])
            return [f"{key}: {twice!r} is listed twice; allowed: each once"]
        case "minItems" | "minProperties":
            return [f"{key}: an empty list; allowed: one entry or more"]
        case "enum":
            return [f"{key}: {value!r} is unknown; allowed: {', '.join(map(str, error.validator_value))}"]
        case "anyOf" if key == "devices":
            return _devices_told(value)
        case "pattern":
            return [f"{key}: {value!r}; allowed: lower-case letters, digits, '_', '-', '.'"]
    return [f"{key}: {value!r}; allowed: {_allowed(error.schema)}"]


def _not_finite(value, path=()) -> list[str]:
    """JSON Schema lets YAML's .inf and .nan pass for numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{_key(path)}: {value}; allowed: a finite number"]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [line for key, child in children for line in _not_finite(child, (*path, key))]


def _devices_told(value) -> list[str]:
    allowed = "auto, all, or a list such as [gpu0, cpu]"
    if value == []:
        return [f"devices: an empty list; allowed: {allowed}"]
    if isinstance(value, list):
        twice = sorted({str(item) for item in value if value.count(item) > 1})
        unknown = [item for item in value if not isinstance(item, str) or not _is_device_name(item)]
        return [f"devices: {name!r} is listed twice; allowed: each once" for name in twice] + [
            f"devices: {item!r} is unknown; allowed: {allowed}" for item in unknown
        ]
    return [f"devices: {value!r} is unknown; allowed: {allowed}"]


def _is_device_name(name: str) -> bool:
    return name == "cpu" or (name.startswith("gpu") and name[3:].isdigit())


def _unknown_key(parent: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{parent + '.' if parent else ''}{name}: unknown key; {hint}allowed: {', '.join(known)}"


def _key(path) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".") or "the configuration"


def _allowed(schema: Mapping) -> str:
    names = {
        "integer": "a whole number",
        "number": "a number (write 1.0e+9, not 1e9)",
        "string": "text",
        "array": "a list",
        "object": "a mapping of keys to values",
        "null": "null",
    }
    types = schema.get("type", [])
    kinds = [names[kind] for kind in ([types] if isinstance(types, str) else types)]
    bounds = [
        f"{word} {schema[bound]}"
        for bound, word in (("minimum", "from"), ("maximum", "to"), ("exclusiveMinimum", "above"))
        if bound in schema
    ]
    return " ".join([" or ".join(kinds) or "another value", *bounds])


# ---------------------------------------------------------------- held against the machine


def choose_devices(wanted: str | list[str], present: Mapping) -> list[str]:
    """Names of the devices to measure. Raises Faults for one that is not here or whose CuPy is unusable."""
    gpus = [name for name, identity in present.items() if identity.kind == "gpu"]
    chosen = {"auto": [*gpus[:1], "cpu"], "all": [*gpus, "cpu"]}[wanted] if isinstance(wanted, str) else wanted
    faults = [
        f"devices: {name} is not on this machine; here: {', '.join(present)}" for name in chosen if name not in present
    ]
    unusable = {present[name].fault for name in chosen if name in present and present[name].fault}
    faults += [f"devices: {fault}" for fault in sorted(unusable)]
    if faults:
        raise Faults(faults)
    return list(chosen)


def preset_of(config: Mapping, name: str) -> checkpoint.Preset:
    return checkpoint.Preset(**config["model"]["presets"][name])


def machine_faults(config: Mapping, chosen: list) -> list[str]:
    """What this machine cannot do of what the configuration asks, with bytes needed and bytes there.

    `chosen` are identities of devices.
    """
    faults = _model_faults(config)
    for identity in chosen:
        levels, wanted = copy_levels(identity.device), config["bandwidth"]["levels"]
        if not set(levels) & set(wanted):
            faults.append(
                f"bandwidth.levels: {identity.device} has none of {', '.join(wanted)}; it has {', '.join(levels)}"
            )
    for identity in chosen if not faults else []:
        faults += _memory_faults(config, identity)
    return faults


def _model_faults(config: Mapping) -> list[str]:
    known = config["model"]["presets"]
    presets = config["decode_attn"]["presets"]
    faults = [
        f"decode_attn.presets: {name!r} is unknown; allowed: {', '.join(known)} (model.presets)"
        for name in presets
        if name not in known
    ]
    names = [operation["name"] for operation in config["operations"]]
    faults += [
        f"operations: the name {name!r} is given twice; allowed: each once"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    path = config["model"]["checkpoint"]
    if path is None or faults:
        return faults
    if len(presets) > 1:
        return [f"model.checkpoint: one file cannot be {', '.join(presets)}; allowed: one entry in decode_attn.presets"]
    try:
        checkpoint.inspect(path, preset_of(config, presets[0]))
    except checkpoint.BadCheckpoint as error:
        return [str(error)]
    return []


def _memory_faults(config: Mapping, identity) -> list[str]:
    needs = {}
    attention = config["decode_attn"]
    for name in attention["presets"]:
        preset = preset_of(config, name)
        for seq_len in attention["seq_lens"]:
            key = f"decode_attn.seq_lens: {seq_len} (preset {name}, batch {max(attention['batch_sizes'])})"
            shapes = [Shape(batch, preset.heads, preset.head_size, seq_len) for batch in attention["batch_sizes"]]
            needs[key] = max(
                workspace_bytes(shape, dtype, identity.last_level_cache_bytes)
                for shape in shapes
                for dtype in attention["dtypes"]
            )
    size = config["peak_flops"]["size"]
    needs[f"peak_flops.size: {size}"] = max(
        gemm.workspace_bytes(size, dtype) for dtype in config["peak_flops"]["dtypes"]
    )
    size_mib = config["bandwidth"]["size_mib"]
    needs[f"bandwidth.size_mib: {size_mib}"] = 2 * size_mib * MIB
    free = identity.memory_free_bytes
    return [
        f"{what} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"
        for what, needed in needs.items()
        if needed > free
    ]


# ---------------------------------------------------------------- all of it


def complete(config: Mapping, schema_path: Path | str) -> dict:
    """The configuration with its defaults. Raises Faults with everything that the schema forbids."""
    schema = yaml.safe_load(Path(schema_path).read_text(encoding="utf-8"))
    faults = schema_faults(config, schema)
    if faults:
        raise Faults(faults)
    return with_defaults(config, schema)


def require_possible(config: Mapping, chosen: list) -> None:
    """Raises Faults with everything that the chosen devices cannot do of it."""
    faults = machine_faults(config, chosen)
    if faults:
        raise Faults(faults)
