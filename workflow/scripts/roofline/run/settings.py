"""The configuration: read strictly, checked, completed with defaults, held against the machine.

An error is one line with the key, the value and what is allowed. All errors are reported at once.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from roofline.core.terms import UserError
from roofline.operators import registry
from roofline.operators.base import Operator
from roofline.records.files import read_yaml
from roofline.run.config import by_effort, config_model

CHECKOUT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True)
class Checked:
    """A complete config, and the operators that it registers and does not leave out, by their rules."""

    config: BaseModel
    operators: dict[str, Operator]


# ---------------------------------------------------------------- reading


def read_file(path: Path | str) -> dict:
    """The content of a configuration file. Raises UserError if it is missing, empty, malformed or not a mapping."""
    try:
        config = read_yaml(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if not isinstance(config, dict):
        found = "empty" if config is None else f"a {type(config).__name__}"
        raise UserError(f"{path}: should be a mapping of keys to values, such as 'devices: auto', but is {found}")
    return config


# ---------------------------------------------------------------- checking


def complete(config: Mapping) -> Checked:
    """The configuration with its defaults and its effort's budgets. Raises UserError with all that is not allowed."""
    paths = config.get("operators", [])
    named = isinstance(paths, list) and all(isinstance(path, str) for path in paths)
    operators = registry.collect_operators(dict.fromkeys(paths) if named else [])
    model = config_model(operators)
    try:
        checked = model.model_validate(config)
    except ValidationError as error:
        raise UserError(_lines_of(error, config, model)) from None
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
