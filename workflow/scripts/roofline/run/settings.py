"""The configuration: read strictly, checked, completed with defaults, held against the machine.

Every fault is one line that names the key, the value and what is allowed; all faults are reported at once.
"""

import datetime
import difflib
import math
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from roofline.core.device_kinds import accelerators
from roofline.devices import kind_of, level_of, memory_levels
from roofline.devices.levels import ARRAYS, TRANSFERS
from roofline.measure import nsight_compute
from roofline.operators import registry
from roofline.operators.base import Operator
from roofline.records.files import YamlFaults, read_yaml
from roofline.run import counters
from roofline.run.config import by_effort, config_model
from roofline.run.operator_faults import operator_faults

MIB = 1 << 20
CHECKOUT = Path(__file__).resolve().parents[4]
ENGINE_KEYS = ("__use_yte__", "pathvars")  # Snakemake would take these for its own, before the config is checked
SHORTEST_BEGINNING = 4  # of a key, to be taken for it
LEAST_CACHES = 2  # an array of fewer last-level caches is partly read from them


class Faults(Exception):
    """What is wrong with a configuration, a line each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True)
class Checked:
    """A complete config, and the operators that it registers and does not leave out, by their rules."""

    config: BaseModel
    operators: dict[str, Operator]

    @property
    def as_dict(self) -> dict:
        return self.config.model_dump()


# ---------------------------------------------------------------- reading


def read_file(path: Path | str) -> dict:
    """A configuration file as it stands. Raises Faults where it is missing, empty, malformed or no mapping."""
    try:
        config = read_yaml(path)
    except YamlFaults as faults:
        raise Faults(faults.lines) from None
    except FileNotFoundError:
        raise Faults([f"{path}: no such file{_remedy(Path(path))}"]) from None
    except OSError as error:
        raise Faults([f"{path}: cannot be read ({error})"]) from None
    if config is None:
        raise Faults([f"{path}: empty; it needs at least one key, such as 'devices: auto'"])
    if not isinstance(config, dict):
        raise Faults([f"{path}: a {type(config).__name__}, allowed: a mapping of keys to values"])
    if taken := [key for key in ENGINE_KEYS if key in config]:
        raise Faults([f"{path}: {key}: unknown key" for key in taken])
    return config


def _remedy(path: Path) -> str:
    """What brings the checkout's own configuration back, from wherever Snakemake runs."""
    if path.resolve() != CHECKOUT / "config" / "config.yaml":
        return ""
    where = "" if Path.cwd() == CHECKOUT else f"-C {shlex.quote(str(CHECKOUT))} "
    return f"; restore it with: git {where}checkout -- config/config.yaml"


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


# ---------------------------------------------------------------- checking


def complete(config: Mapping) -> Checked:
    """The configuration with its defaults and its effort's budgets. Raises Faults with all that is not allowed."""
    paths = config.get("operators", [])
    named = isinstance(paths, list) and all(isinstance(path, str) for path in paths)
    try:
        operators = registry.registered(dict.fromkeys(paths) if named else [])
    except registry.BadOperator as error:
        raise Faults([str(error)]) from None
    model = config_model(operators)
    try:
        checked = model.model_validate(config)
    except ValidationError as error:
        raise Faults(list(dict.fromkeys(lines_of(error, config, model)))) from None
    kept = {
        rule: operator
        for rule, operator in operators.items()
        if operator.measured_with_ceilings or getattr(checked, rule).enabled
    }
    return Checked(by_effort(checked, checked.effort), kept)


def lines_of(error: ValidationError, config: Mapping, model: type[BaseModel]) -> list[str]:
    """What is wrong with a configuration, a line for each place."""
    schema = model.model_json_schema()
    faults: dict[tuple, list[dict]] = {}
    for fault in error.errors():
        faults.setdefault(_place(fault, config), []).append(fault)
    return [_line(place, of_place, schema) for place, of_place in faults.items()]


def _place(fault: Mapping, config: Mapping) -> tuple:
    """Where in the config a fault is: pydantic names the branches of unions too."""
    place, value = [], config
    for part in fault["loc"]:
        if isinstance(value, Mapping) and (part in value or fault["type"] == "missing"):
            place.append(part)
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            place.append(part)
            value = value[part]
    return tuple(place)


def _line(place: tuple, faults: list[dict], schema: Mapping) -> str:
    """One fault; of several at a place, those of other branches of a union, what holds for all."""
    key, fault = _key(place), faults[0]
    shown = _shown(fault["input"])
    kinds = {each["type"] for each in faults}
    allowed = _schema_at(place, schema)
    if kinds & {"extra_forbidden", "invalid_key"}:
        known = list(_schema_at(place[:-1], schema).get("properties", {}))
        return _unknown_key(_key(place[:-1]) if place[:-1] else "", place[-1], known, fault["input"])
    if "missing" in kinds:
        return f"{_key(place[:-1])}: {place[-1]} is missing"
    if "value_error" in kinds:
        message = str(next(each for each in faults if each["type"] == "value_error")["ctx"]["error"])
        return (
            f"{key}: {message}"
            if _names_its_value(message)
            else f"{key}: {shown}{' ' if message[:3] == 'is ' else '; '}{message}"
        )
    if "too_short" in kinds or "string_too_short" in kinds:
        return f"{key}: {shown} is empty; allowed: {'text' if shown == repr('') else 'one entry or more'}"
    if names := allowed.get("enum") or ([allowed["const"]] if "const" in allowed else []):
        return f"{key}: {shown} is unknown; allowed: {', '.join(map(str, names))}"
    if "finite_number" in kinds:
        return f"{key}: {shown}; allowed: a finite number"
    # On Snakemake's command line numbers within a mapping or a list arrive as text.
    as_text = isinstance(fault["input"], str) and re.fullmatch(r"[+-]?\d+\.?\d*", fault["input"])
    hint = " (without quotes; within the braces or brackets of --config all is text: use --configfile)"
    numeric = {"integer", "number"} & set(_types(allowed))
    return f"{key}: {shown}; allowed: {_allowed(allowed)}{hint if as_text and numeric else ''}"


def _names_its_value(message: str) -> bool:
    return "' is " in message or message.startswith("the name") or re.match(r"\d+ is listed", message) is not None


def _schema_at(place: tuple, schema: Mapping) -> Mapping:
    """The part of a JSON schema that speaks of a place; null is left to `_types`."""
    part = schema
    for step in place:
        part = _resolved(part, schema)
        if isinstance(step, int):
            part = part.get("items", {})
        else:
            part = part.get("properties", {}).get(step) or part.get("additionalProperties") or {}
    return _resolved(part, schema) if isinstance(part, Mapping) else {}


def _resolved(part: Mapping, schema: Mapping) -> Mapping:
    """With references followed and the null of a union as one of its types."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return _resolved({**schema["$defs"][name], **{k: v for k, v in part.items() if k != "$ref"}}, schema)
    branches = [_resolved(one, schema) for one in part.get("anyOf", [])]
    whole = [one for one in branches if one.get("type") != "null"]
    if len(whole) == 1:
        types = _types(whole[0]) + (["null"] if len(branches) > len(whole) else [])
        return {**whole[0], "type": types}
    return part


def _types(schema: Mapping) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def _allowed(schema: Mapping) -> str:
    names = {
        "integer": "a whole number",
        "number": "a number (write 1.0e+9, not 1e9)",
        "string": "text",
        "array": "a list",
        "object": "a mapping of keys to values",
        "boolean": "true or false",
    }
    kinds = [names[kind] for kind in _types(schema) if kind in names]
    words = (("minimum", "from"), ("maximum", "to"), ("exclusiveMinimum", "above"))
    bounds = [f"{word} {schema[bound]:g}" for bound, word in words if bound in schema]
    value = " ".join([" or ".join(kinds) or "another value", *bounds])
    return f"{value}, or null" if "null" in _types(schema) else value


def _shown(value) -> str:
    """A value as the file has it, on one line and not endless."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = str(value) if isinstance(value, datetime.date) else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _unknown_key(parent: str, name: str, known: list[str], value) -> str:
    begins = [key for key in known if len(str(name)) >= SHORTEST_BEGINNING and key.startswith(str(name))]
    near = begins or difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    if not near and not parent and isinstance(value, Mapping):  # looks like an operator's section
        hint = "no operator of the library; a file of your own is listed in operators: [examples/gelu.py]; "
    return f"{parent + '.' if parent else ''}{name}: unknown key; {hint}allowed: {', '.join(known)}"


def _key(path) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".") or "the configuration"


# ---------------------------------------------------------------- held against the machine


def choose_devices(checked: Checked, present: Mapping) -> list[str]:
    """Names of the devices to measure. Raises Faults with all that this machine cannot do of the configuration."""
    config, wanted = checked.config, checked.config.devices
    gpus = accelerators(present, lambda name: present[name].kind)
    chosen = {"auto": [*gpus[:1], "cpu"], "all": [*gpus, "cpu"]}[wanted] if isinstance(wanted, str) else wanted
    faults = [
        f"devices: {name} is not on this machine; here: {', '.join(present)}" for name in chosen if name not in present
    ]
    here = [present[name] for name in chosen if name in present]
    faults += [
        f"operations: {one.name}: {one.device} is not measured; allowed: {', '.join(chosen)}"
        for one in config.operations
        if one.device and one.device not in chosen
    ]
    faults += [f"devices: {fault}" for fault in sorted({identity.fault for identity in here if identity.fault})]
    for operator in checked.operators.values():
        faults += operator_faults(operator, config, here)
    for identity in here:
        faults += _level_faults(config, identity, chosen) + _stream_faults(config, identity, chosen)
    if faults:
        raise Faults(faults)
    return list(chosen)


def profiler(config: BaseModel) -> Path | None:
    """Nsight Compute's program, where counters are wanted and it is there. Raises Faults where they are required and it
    is not, and for a name of it that is none."""
    if config.counters == "off":
        return None
    try:
        found = nsight_compute.find()
    except nsight_compute.NoProgram as error:
        raise Faults([str(error)]) from None
    if found is None and config.counters == "required":
        raise Faults([f"counters: required, and {nsight_compute.MISSING}"])
    return found


def require_counters(program: Path, chosen: Iterable[str]) -> None:
    """Raises Faults with the devices whose counters may not be read."""
    faults = []
    for device in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                counters.probe(program, device, Path(folder))
            except nsight_compute.Refused as error:
                faults.append(f"counters: required, and refused on {device}: {error}")
    if faults:
        raise Faults(faults)


def devices_with(operator: Operator, config: BaseModel, chosen: Iterable[str]) -> list[str]:
    """The devices that have an implementation of an operator, of those that the config names."""
    wanted = getattr(config, operator.rule).implementations
    return [device for device in chosen if operator.implementations_on(kind_of(device), wanted)]


def asked(checked: Checked, chosen: Iterable[str]) -> dict:
    """What roofline.json depends on apart from the records."""
    config, chosen = checked.config, list(chosen)
    without = [
        {"device": device, "operator": operator.name, "reason": f"no implementation for {kind_of(device)}"}
        for operator in checked.operators.values()
        if not operator.measured_with_ceilings
        for device in chosen
        if device not in devices_with(operator, config, chosen)
    ]
    operations = [operation.model_dump() for operation in config.operations]
    dtypes = config.peak_flops.dtypes
    return {"effort": config.effort, "dtypes": dtypes, "operations": operations, "without": without}


def _level_faults(config: BaseModel, identity, chosen) -> list[str]:
    if _levels_of(config, identity, chosen):
        return []
    wanted, levels = config.bandwidth.levels, memory_levels(identity.device)
    return [f"bandwidth.levels: {identity.device} has none of {', '.join(wanted)}; it has {', '.join(levels)}"]


def _levels_of(config: BaseModel, identity, chosen) -> set[str]:
    return {level_of(name) for name in memory_levels(identity.device, chosen)} & set(config.bandwidth.levels)


def _stream_faults(config: BaseModel, identity, chosen) -> list[str]:
    """Arrays that a cache would keep, or that do not fit the device."""
    levels, settings, free = _levels_of(config, identity, chosen), config.bandwidth, identity.memory_free_bytes
    size, cache = settings.size_mib, identity.last_level_cache_bytes
    arrays = max((ARRAYS[level] for level in levels.intersection(ARRAYS)), default=0)
    least = f"bandwidth.size_mib: null ({arrays} arrays of {LEAST_CACHES} last-level caches each)"
    needs = (
        {least: arrays * LEAST_CACHES * cache} if size is None else {f"bandwidth.size_mib: {size}": arrays * size * MIB}
    )
    if levels.intersection(TRANSFERS):
        needs[f"bandwidth.transfer_size_mib: {settings.transfer_size_mib}"] = settings.transfer_size_mib * MIB
    faults = [
        f"{what} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"
        for what, needed in needs.items()
        if needed > free
    ]
    least_mib = math.ceil(LEAST_CACHES * cache / MIB)
    if size is not None and size < least_mib and arrays:
        faults.append(
            f"bandwidth.size_mib: {size} is too small for {identity.device}: its last-level cache keeps "
            f"{cache / MIB:g} MiB, and an array of twice that is needed; allowed: {least_mib} or more, or null"
        )
    return faults
