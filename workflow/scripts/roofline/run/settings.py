"""The configuration: read strictly, checked, completed with defaults, held against the machine.

Every error is one line that names the key and the value, and says what is allowed, mostly in pydantic's words; all
errors are reported at once.
"""

import difflib
import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from roofline.core.device_kinds import accelerators
from roofline.core.terms import Faults
from roofline.devices.discovery import kind_of, level_of, memory_levels
from roofline.devices.levels import ARRAYS, TRANSFERS
from roofline.measure import nsight_compute
from roofline.operators import registry
from roofline.operators.base import Operator
from roofline.records.files import read_yaml
from roofline.run import counters
from roofline.run.config import by_effort, config_model
from roofline.run.operator_faults import operator_faults

MIB = 1 << 20
CHECKOUT = Path(__file__).resolve().parents[4]
LEAST_CACHES = 2  # an array of fewer last-level caches is partly read from them


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
    """The content of a configuration file. Raises Faults if it is missing, empty, malformed or not a mapping."""
    try:
        config = read_yaml(path)
    except FileNotFoundError:
        raise Faults([f"{path}: no such file"]) from None
    except OSError as error:
        raise Faults([f"{path}: cannot be read ({error})"]) from None
    if config is None:
        raise Faults([f"{path}: empty; it needs at least one key, such as 'devices: auto'"])
    if not isinstance(config, dict):
        raise Faults([f"{path}: should be a mapping of keys to values, not a {type(config).__name__}"])
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
        raise Faults(_lines_of(error, config, model)) from None
    kept = {
        rule: operator
        for rule, operator in operators.items()
        if operator.measured_with_ceilings or getattr(checked, rule).enabled
    }
    return Checked(by_effort(checked, checked.effort), kept)


def _lines_of(error: ValidationError, config: Mapping, model: type[BaseModel]) -> list[str]:
    """What is wrong with a configuration, a line for each place: of a union pydantic reports every branch."""
    found: dict[tuple, dict[str, ErrorDetails]] = {}
    for one in error.errors():
        found.setdefault(_place(one, config), {})[_message(one, model)] = one
    return [
        f"{_key(place)}: {' or '.join(messages)}{_got(next(iter(messages.values())))}"
        for place, messages in found.items()
    ]


def _place(error: ErrorDetails, config: Mapping) -> tuple:
    """Where in the config an error is: pydantic names the branches of unions too."""
    place, value = [], config
    for part in error["loc"]:
        try:
            value = value[part]
        except (LookupError, TypeError):
            if error["type"] != "missing":
                continue
        place.append(part)
    return tuple(place)


def _key(place: tuple) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _message(error: ErrorDetails, model: type[BaseModel]) -> str:
    """In pydantic's words, but for keys that are unknown."""
    if error["type"] != "extra_forbidden":
        return error["msg"].removeprefix("Value error, ")
    *sections, name = error["loc"]
    for section in sections:
        fields = getattr(model, "model_fields", None)
        model = fields[section].annotation if fields else (get_args(model) or (None,))[-1]
    known = list(getattr(model, "model_fields", {}))
    near = difflib.get_close_matches(str(name), known, 1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; known: {', '.join(known)}"


def _got(error: ErrorDetails) -> str:
    """The value, and how a number is written that came as text."""
    if error["type"] in ("extra_forbidden", "missing"):
        return ""
    as_text = error["type"] in ("int_type", "float_type") and isinstance(error["input"], str)
    hint = "; that is text: leave out quotes, write 1.0e+9 for 1e9, and use --configfile instead of --config {...}"
    return f" (got {error['input']!r:.100}){hint if as_text else ''}"


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
        f"operations: {one.name}: {one.device} is not measured; known: {', '.join(chosen)}"
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
    """Nsight Compute's program, if counters are wanted and it is there. Raises Faults if NCU names no program, or if
    counters are required and it is missing."""
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
    least_mib = math.ceil(LEAST_CACHES * cache / MIB)
    needs = {f"bandwidth.size_mib: {size or 'null'}": arrays * (size or least_mib) * MIB}
    if levels.intersection(TRANSFERS):
        needs[f"bandwidth.transfer_size_mib: {settings.transfer_size_mib}"] = settings.transfer_size_mib * MIB
    faults = [
        f"{what} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"
        for what, needed in needs.items()
        if needed > free
    ]
    if arrays and size and size < least_mib:
        faults.append(
            f"bandwidth.size_mib: {size} is too small for {identity.device}, whose last-level cache would keep much of "
            f"it; it should be {least_mib} or more, or null"
        )
    return faults
