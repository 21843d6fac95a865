"""The configuration: read strictly, checked against its schema, completed with defaults, held against the machine.

Every fault is one line that names the key, the value and what is allowed; all faults are told at once.
"""

import datetime
import difflib
import math
import shutil
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from roofline import checkpoint, effort, host
from roofline.devices import memory_levels
from roofline.operators import gemm
from roofline.operators.decode_attention import HEAD_SIZES, IMPLEMENTATIONS, Shape, implementations_of, workspace_bytes

MIB = 1 << 20
FP32_BYTES = 4
ENGINE_KEYS = ("__use_yte__", "pathvars")  # Snakemake would take these for its own, before the schema is asked
TRANSFERS = ("h2d", "d2h")  # the levels whose size is bandwidth.transfer_size_mib
ARRAYS = {"hbm": 3, "dram": 3, "d2d": 2}  # the levels whose arrays are bandwidth.size_mib each, and how many they need
LEAST_ON_CPU = 256  # rows of a product: on two cores one of 16 gives an eighth of the peak, 128 two thirds, 256 0.9
LEAST_CACHES = 2  # an array of fewer last-level caches is partly read from them
TILE = 128  # rows and columns of a product's tile on one multiprocessor
# Beyond these, figures overflow or the picture's axes do; nothing real comes near.
COUNTS, SECONDS, BUDGET_S, PRICE = (1e-3, 1e30), (1e-12, 1e12), (1e-9, 1e5), (1e-9, 1e9)


class Faults(Exception):
    """What is wrong with a configuration, a line each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self.lines = lines


# ---------------------------------------------------------------- reading


class _StrictLoader(yaml.SafeLoader):
    """YAML without its silence about a key that stands twice, and with a line number for every value it refuses."""

    def __init__(self, text: str):
        super().__init__(text)
        self.twice: list[tuple[int, str]] = []

    def construct_object(self, node, deep=False):
        try:
            value = super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError) as error:
            problem = f"a value that cannot be read ({str(error).split(';')[0]})"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
        if isinstance(value, int) and value.bit_length() > sys.float_info.max_exp:
            raise yaml.constructor.ConstructorError(None, None, "a number too large to compute with", node.start_mark)
        return value

    def construct_whole_mapping(self, node):
        """Deep, so that an alias within its own anchor is refused."""
        seen = set()
        for key_node in (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"):
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"{key} is no key", key_node.start_mark)
            if key in seen:
                self.twice.append((key_node.start_mark.line + 1, key))
            seen.add(key)
        return self.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _StrictLoader.construct_whole_mapping)


def read_file(path: Path | str) -> dict:
    """A configuration file as it stands. Raises Faults where it is missing, empty, malformed or no mapping."""
    try:
        loader = _StrictLoader(Path(path).read_text(encoding="utf-8"))
        config = loader.get_single_data()
    except FileNotFoundError:
        ours = Path(path).parts[:1] == ("config",)
        remedy = f"; restore it with: git checkout -- {path}" if ours else ""
        raise Faults([f"{path}: no such file{remedy}"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Faults([f"{path}: cannot be read ({error})"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        problem = f"{error.context}, {problem}" if problem.startswith("but ") else problem
        raise Faults([f"{path}{line}: {problem}"]) from None
    except RecursionError:
        raise Faults([f"{path}: nested too deeply"]) from None
    if loader.twice:
        twice = sorted(loader.twice, key=lambda found: found[0])
        raise Faults([f"{path}, line {line}: the key '{key}' stands twice" for line, key in twice])
    if config is None:
        raise Faults([f"{path}: empty; it needs at least one key, such as 'devices: auto'"])
    if not isinstance(config, dict):
        raise Faults([f"{path}: a {type(config).__name__}, allowed: a mapping of keys to values"])
    if taken := [key for key in ENGINE_KEYS if key in config]:
        raise Faults([f"{path}: {key}: unknown key" for key in taken])
    return config


def require_readable(paths: Iterable[Path | str]) -> None:
    """Raises Faults with what is wrong with any of these files: the workflow engine's own reader overlooks much."""
    faults = []
    for path in paths:
        try:
            read_file(path)
        except Faults as found:
            faults += found.lines
    if faults:
        raise Faults(faults)


# ---------------------------------------------------------------- the schema


def schema_faults(config: Mapping, schema: Mapping) -> list[str]:
    """What the schema forbids, a line a fault."""
    import jsonschema

    # JSON Schema takes 16.0 for an integer; as a number of rows, or in a file's name, it is none.
    whole = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: _is_whole(value))
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=whole)
    overlooked = dict(_overlooked(config))
    errors = sorted(validator(schema).iter_errors(config), key=lambda error: list(map(str, error.absolute_path)))
    told = [line for error in errors if tuple(error.absolute_path) not in overlooked for line in _told(error)]
    return list(dict.fromkeys(told + list(overlooked.values())))


def _is_whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
            parent = _key(error.absolute_path) if error.absolute_path else ""
            return [_unknown_key(parent, name, known) for name in value if name not in known and _is_name(name)]
        case "required":
            return [f"{key}: {name} is missing" for name in error.validator_value if name not in value]
        case "uniqueItems":
            twice = next(item for i, item in enumerate(value) if item in value[:i])
            return [f"{key}: {_shown(twice)} is listed twice; allowed: each once"]
        case "minItems" | "minProperties":
            return [f"{key}: {_shown(value)} is empty; allowed: one entry or more"]
        case "enum" if key.startswith("bandwidth.levels") and value == "dram_copy":
            return [f"{key}: 'dram_copy' is now 'dram'; allowed: {', '.join(error.validator_value)}"]
        case "enum":
            return [f"{key}: {_shown(value)} is unknown; allowed: {', '.join(map(str, error.validator_value))}"]
        case "anyOf" if key == "devices":
            return _devices_told(value)
        case "pattern":
            return [f"{key}: {_shown(value)}; allowed: lower-case letters, digits, '_', '-', '.'"]
    # On Snakemake's command line numbers within a mapping or a list arrive as text.
    hint = (
        " (without quotes; within the braces or brackets of --config all is text: use --configfile)"
        if _is_number_as_text(error)
        else ""
    )
    return [f"{key}: {_shown(value)}; allowed: {_allowed(error.schema)}{hint}"]


def _is_number_as_text(error) -> bool:
    value = error.instance
    digits = isinstance(value, str) and value.lstrip("+-").replace(".", "", 1).isdigit()
    types = [kind for branch in error.schema.get("anyOf", [error.schema]) for kind in _types(branch)]
    return digits and not {"integer", "number"}.isdisjoint(types)


def _overlooked(value, path=()) -> Iterator[tuple[tuple, str]]:
    """Places and lines of what a JSON Schema lets pass and YAML can say."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"{_key(path)}: {value}; allowed: a finite number"
    if isinstance(value, str) and not value.isprintable():
        yield path, f"{_key(path)}: {_shown(value)}; allowed: printable text on one line"
    for key in value if isinstance(value, dict) else ():
        if not _is_name(key):
            yield (*path, key), f"{_key(path)}: the key {_shown(key)}; allowed: printable text on one line"
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _overlooked(child, (*path, key))


def _is_name(key) -> bool:
    return isinstance(key, str) and key.isprintable()


def _shown(value) -> str:
    """A value as the file has it, on one line and not endless."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = str(value) if isinstance(value, datetime.date) else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _devices_told(value) -> list[str]:
    allowed = "auto, all, or a list such as [gpu0, cpu]"
    if value == []:
        return [f"devices: [] is empty; allowed: {allowed}"]
    if isinstance(value, list):
        twice = sorted({str(item) for item in value if value.count(item) > 1})
        unknown = [item for item in value if not isinstance(item, str) or not _is_device_name(item)]
        return [f"devices: {name!r} is listed twice; allowed: each once" for name in twice] + [
            f"devices: {_shown(item)} is unknown; allowed: {allowed}" for item in unknown
        ]
    return [f"devices: {_shown(value)} is unknown; allowed: {allowed}"]


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
    if "anyOf" in schema:
        return ", or ".join(map(_allowed, schema["anyOf"]))
    if "const" in schema:
        return str(schema["const"])
    names = {
        "integer": "a whole number",
        "number": "a number (write 1.0e+9, not 1e9)",
        "string": "text",
        "array": "a list",
        "object": "a mapping of keys to values",
    }
    kinds = [names[kind] for kind in _types(schema) if kind != "null"]
    bounds = [
        f"{word} {schema[bound]}"
        for bound, word in (("minimum", "from"), ("maximum", "to"), ("exclusiveMinimum", "above"))
        if bound in schema
    ]
    value = " ".join([" or ".join(kinds) or "another value", *bounds])
    return f"{value}, or null" if "null" in _types(schema) else value


def _types(schema: Mapping) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def _name_faults(config: Mapping) -> list[str]:
    names = [operation["name"] for operation in config["operations"]]
    blank = [place for place, name in enumerate(names) if not name.strip()]
    return [f"operations[{place}].name: {names[place]!r}; allowed: text" for place in blank] + [
        f"operations: the name {name!r} is given twice; allowed: each once"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]


def _magnitude_faults(config: Mapping) -> list[str]:
    values = [("cost.usd_per_hour", config["cost"]["usd_per_hour"], PRICE)]
    for rule in ("peak_flops", "bandwidth", "decode_attn"):
        values.append((f"{rule}.time_budget_s", config[rule]["time_budget_s"], BUDGET_S))
    for place, operation in enumerate(config["operations"]):
        for key, limits in (("flops", COUNTS), ("memory_bytes", COUNTS), ("measured_s", SECONDS)):
            values.append((f"operations[{place}].{key}", operation.get(key), limits))
    return [
        f"{key}: {_shown(value)}; allowed: {'' if key.endswith('_s') else '0, or '}from {lowest:g} to {highest:g}"
        for key, value, (lowest, highest) in values
        if value and not lowest <= value <= highest
    ]


# ---------------------------------------------------------------- held against the machine


def choose_devices(config: Mapping, present: Mapping) -> list[str]:
    """Names of the devices to measure. Raises Faults with all that this machine cannot do of the configuration."""
    wanted = config["devices"]
    gpus = [name for name, identity in present.items() if identity.kind == "gpu"]
    chosen = {"auto": [*gpus[:1], "cpu"], "all": [*gpus, "cpu"]}[wanted] if isinstance(wanted, str) else wanted
    faults = [
        f"devices: {name} is not on this machine; here: {', '.join(present)}" for name in chosen if name not in present
    ]
    here = [present[name] for name in chosen if name in present]
    faults += [f"devices: {fault}" for fault in sorted({identity.fault for identity in here if identity.fault})]
    faults += _preset_faults(config) + _weights_faults(config) + _implementation_faults(config, here)
    for identity in here:
        faults += _level_faults(config, identity) + _memory_faults(config, identity) + _size_faults(config, identity)
    if faults:
        raise Faults(faults)
    return list(chosen)


def preset_of(config: Mapping, name: str) -> checkpoint.Preset:
    return checkpoint.Preset(**config["model"]["presets"][name])


def _implementation_faults(config: Mapping, here: list) -> list[str]:
    """Implementations that no device here has, devices that none is left for, head sizes that one is not made for."""
    wanted = config["decode_attn"]["implementations"]
    kinds = {identity.kind for identity in here}
    theirs = [name for kind in IMPLEMENTATIONS if kind in kinds for name in IMPLEMENTATIONS[kind]]
    faults = [
        f"decode_attn.implementations: {identity.device} has none of {', '.join(wanted)}; "
        f"it has {', '.join(IMPLEMENTATIONS[identity.kind])}"
        for identity in here
        if not implementations_of(identity.kind, wanted)
    ]
    if here and not faults:
        faults = [
            f"decode_attn.implementations: no {name} on {', '.join(identity.device for identity in here)}; "
            f"allowed: {', '.join(theirs)}, or null for all of them"
            for name in wanted or ()
            if name not in theirs
        ]
    fused = [name for name in implementations_of("gpu", wanted) if name.startswith("fused")] if "gpu" in kinds else []
    for name, preset in _known_presets(config).items():
        if fused and preset.head_size not in HEAD_SIZES:
            faults.append(
                f"model.presets.{name}.head_size: {preset.head_size} is not supported by {', '.join(fused)}; "
                f"allowed: {', '.join(map(str, HEAD_SIZES))}, or decode_attn.implementations without them"
            )
    return faults


def _known_presets(config: Mapping) -> dict[str, checkpoint.Preset]:
    names = [name for name in config["decode_attn"]["presets"] if name in config["model"]["presets"]]
    return {name: preset_of(config, name) for name in names}


def _preset_faults(config: Mapping) -> list[str]:
    known = config["model"]["presets"]
    return [
        f"decode_attn.presets: {name!r} is unknown; allowed: {', '.join(known)} (model.presets)"
        for name in config["decode_attn"]["presets"]
        if name not in known
    ] + [
        f"model.presets.{name}: {preset['heads']} heads cannot share {preset['kv_heads']} K/V heads evenly; "
        f"allowed: kv_heads that divide heads"
        for name, preset in known.items()
        if preset.get("kv_heads") and preset["heads"] % preset["kv_heads"]
    ]


def _weights_faults(config: Mapping) -> list[str]:
    """What is wrong with the checkpoint, or with the size of one that has to be generated."""
    path, presets = config["model"]["checkpoint"], _known_presets(config)
    if path is None:
        free = min(host.memory_available_bytes(), shutil.disk_usage(".").free)
        needs = {
            name: (preset.projected_size + preset.hidden_size) * preset.hidden_size * FP32_BYTES
            for name, preset in presets.items()
        }
        return [
            f"model.presets.{name}: weights of a layer need {needed:,} bytes of memory and disk, and {free:,} are free"
            for name, needed in needs.items()
            if needed > free
        ]
    if len(presets) > 1:
        return [f"model.checkpoint: one file cannot be {', '.join(presets)}; allowed: one entry in decode_attn.presets"]
    try:
        for preset in presets.values():
            checkpoint.inspect(path, preset)
    except checkpoint.BadCheckpoint as error:
        return [str(error)]
    return []


def _level_faults(config: Mapping, identity) -> list[str]:
    if _levels_of(config, identity):
        return []
    wanted, levels = config["bandwidth"]["levels"], memory_levels(identity.device)
    return [f"bandwidth.levels: {identity.device} has none of {', '.join(wanted)}; it has {', '.join(levels)}"]


def _levels_of(config: Mapping, identity) -> set[str]:
    return set(memory_levels(identity.device)) & set(config["bandwidth"]["levels"])


def _multiplied(config: Mapping) -> list[str]:
    """The dtypes of matrix products; a register-only multiply-add has neither size nor operands in memory."""
    return [dtype for dtype in config["peak_flops"]["dtypes"] if not dtype.endswith("_fma")]


def _memory_faults(config: Mapping, identity) -> list[str]:
    needs = {}
    attention = config["decode_attn"]
    for name, preset in _known_presets(config).items():
        for seq_len in attention["seq_lens"]:
            key = f"decode_attn.seq_lens: {seq_len} (preset {name}, batch {max(attention['batch_sizes'])})"
            shapes = [
                Shape(batch, preset.heads, preset.kv_heads, preset.head_size, seq_len)
                for batch in attention["batch_sizes"]
            ]
            needs[key] = max(
                workspace_bytes(shape, dtype, identity.last_level_cache_bytes)
                for shape in shapes
                for dtype in attention["dtypes"]
            )
    size = config["peak_flops"]["size"]
    needs[f"peak_flops.size: {size}"] = max(
        (gemm.workspace_bytes(size, dtype) for dtype in _multiplied(config)), default=0
    )
    needs |= _stream_needs(config["bandwidth"], _levels_of(config, identity), identity.last_level_cache_bytes)
    free = identity.memory_free_bytes
    return [
        f"{what} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"
        for what, needed in needs.items()
        if needed > free
    ]


def _stream_needs(bandwidth: Mapping, levels: set[str], cache_bytes: int) -> dict[str, int]:
    """Bytes on a device by the setting that asks for them; without a size, the least that arrays can do with."""
    size, transfer_size = bandwidth["size_mib"], bandwidth["transfer_size_mib"]
    arrays = max((ARRAYS[level] for level in levels.intersection(ARRAYS)), default=0)
    if size is None:
        least = f"bandwidth.size_mib: null ({arrays} arrays of {LEAST_CACHES} last-level caches each)"
        needs = {least: arrays * LEAST_CACHES * cache_bytes}
    else:
        needs = {f"bandwidth.size_mib: {size}": arrays * size * MIB}
    if levels.intersection(TRANSFERS):
        needs[f"bandwidth.transfer_size_mib: {transfer_size}"] = transfer_size * MIB
    return needs


def _size_faults(config: Mapping, identity) -> list[str]:
    """Sizes that would measure something else: a cache for memory, or a device with multiprocessors left idle."""
    faults = []
    size, multiprocessors = config["peak_flops"]["size"], identity.multiprocessors
    filling = TILE * math.ceil(math.sqrt(multiprocessors or 0))
    if _multiplied(config) and size < filling:
        faults.append(
            f"peak_flops.size: {size} is too small to fill {identity.device}: "
            f"{multiprocessors} multiprocessors want {filling} or more"
        )
    if _multiplied(config) and identity.kind == "cpu" and size < LEAST_ON_CPU:
        faults.append(
            f"peak_flops.size: {size} is too small for {identity.device}: so small a product stays under the peak; "
            f"allowed: {LEAST_ON_CPU} or more"
        )
    size_mib, cache_bytes = config["bandwidth"]["size_mib"], identity.last_level_cache_bytes
    least_mib = math.ceil(LEAST_CACHES * cache_bytes / MIB)
    if size_mib is not None and size_mib < least_mib and _levels_of(config, identity).intersection(ARRAYS):
        faults.append(
            f"bandwidth.size_mib: {size_mib} is too small for {identity.device}: its last-level cache keeps "
            f"{cache_bytes / MIB:g} MiB, and an array of twice that is needed; allowed: {least_mib} or more, or null"
        )
    return faults


# ---------------------------------------------------------------- all of it


def complete(config: Mapping, schema_path: Path | str) -> dict:
    """The configuration with its defaults and its effort's budgets. Raises Faults with all that the schema forbids."""
    schema = yaml.safe_load(Path(schema_path).read_text(encoding="utf-8"))
    faults = schema_faults(config, schema)
    if faults:
        raise Faults(faults)
    completed = with_defaults(config, schema)
    faults = _name_faults(completed) + _magnitude_faults(completed)
    if faults:
        raise Faults(faults)
    return effort.fill(completed)
