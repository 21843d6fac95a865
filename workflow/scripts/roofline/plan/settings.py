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

from roofline.core.grouping import group_by
from roofline.core.terms import UserError
from roofline.operators import registry
from roofline.operators.base import Operator
from roofline.plan.config import Config, config_model, fill_by_effort
from roofline.records.files import read_yaml

CHECKOUT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True)
class Checked:
    """A complete config, and the operators that it registers and does not leave out, by their rules."""

    config: Config
    operators: dict[str, Operator]


# ---------------------------------------------------------------- reading


def read_file(path: Path | str) -> dict:
    """Return the content of a configuration file. Raises UserError if it is missing, malformed or not a mapping."""
    try:
        config = read_yaml(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if not isinstance(config, dict):
        content = "empty" if config is None else f"a {type(config).__name__}"
        raise UserError(f"{path}: should be a mapping of keys to values, such as 'devices: auto', but is {content}")
    return config


# ---------------------------------------------------------------- checking


def complete(config: Mapping) -> Checked:
    """Return the checked configuration, with its defaults and the budgets of its effort, and its operators.

    A key without a value has its default, as a section does whose keys are all comments.
    Raises UserError with all errors of the configuration, a line for each.
    """
    paths = config.get("operators") or []
    are_paths = isinstance(paths, list) and all(isinstance(path, str) for path in paths)
    operators = registry.collect_operators(dict.fromkeys(paths) if are_paths else [])
    model = config_model(operators)
    config = {key: value for key, value in config.items() if value is not None or key not in model.model_fields}
    try:
        checked = model.model_validate(config)
    except ValidationError as error:
        raise UserError(describe_errors(error, config, model)) from None
    rules = [rule for rule in operators if operators[rule].measured_with_ceilings or getattr(checked, rule).enabled]
    return Checked(fill_by_effort(checked, checked.effort), {rule: operators[rule] for rule in rules})


def describe_errors(error: ValidationError, config: Mapping, model: type[BaseModel]) -> list[str]:
    """Return a line for each place with an error: pydantic reports every branch of a union."""
    lines = []
    for place, errors in group_by(error.errors(), lambda details: _error_path(details, config)).items():
        messages = dict.fromkeys(_message(details, model) for details in errors)
        lines.append(f"{_format_key(place)}: {' or '.join(messages)}{_describe_value(errors[0])}")
    return lines


def _error_path(error: ErrorDetails, config: Mapping) -> tuple:
    """Return the keys that lead to an error, without the branches of unions that pydantic names too."""
    place, value = [], config
    for part in error["loc"]:
        try:
            value = value[part]
        except (LookupError, TypeError):
            if error["type"] != "missing":
                continue
        place.append(part)
    return tuple(place)


def _format_key(place: tuple) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _message(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return the message of pydantic, or a line of our own for an unknown key."""
    if error["type"] != "extra_forbidden":
        return error["msg"].removeprefix("Value error, ")
    *sections, name = error["loc"]
    for section in sections:
        fields = getattr(model, "model_fields", None)
        model = fields[section].annotation if fields else (get_args(model) or (None,))[-1]
    names = list(getattr(model, "model_fields", {}))
    near = difflib.get_close_matches(str(name), names, 1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; known: {', '.join(names)}"


def _describe_value(error: ErrorDetails) -> str:
    """Return the wrong value, with advice if a number came as text."""
    if error["type"] in ("extra_forbidden", "missing"):
        return ""
    as_text = error["type"] in ("int_type", "float_type") and isinstance(error["input"], str)
    hint = "; that is text: leave out quotes, write 1.0e+9 for 1e9, and use --configfile instead of --config {...}"
    return f" (got {error['input']!r:.100}){hint if as_text else ''}"
