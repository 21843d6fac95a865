"""Models by name, from the list that comes with the code, or by the path of a config.json."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from architecture import Model
from config_fields import BadModel
from families import build

SHIPPED = Path(__file__).with_name("shipped.yaml")
CONFIG = "config.json"
# Next to it, from tools that leave config.json as it was, with the method that they leave out.
QUANTISED = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq"}


@cache
def shipped() -> dict[str, dict]:
    """The source and the config of each model that comes with the code, by name."""
    return yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))


def find(named: str) -> dict[str, Any]:
    """Name, source and config of a model: one of the list, a config.json, or a folder with one. Raises BadModel."""
    known = ", ".join(shipped())
    if not named or not named.isprintable():
        raise BadModel(f"MODEL: {named!r} is not a model; allowed: the path of a config.json, or {known}")
    path = Path(named) / CONFIG if Path(named).is_dir() else Path(named)
    if named.lower() in shipped() and not path.exists():
        return {"name": named.lower(), **shipped()[named.lower()]}
    if not path.is_file():
        raise BadModel(f"{named}: no such file or {CONFIG} in it; allowed: a {CONFIG}, a folder with one, or {known}")
    config, source = _read(path), named
    for other, method in QUANTISED.items() if path.name == CONFIG and isinstance(config, dict) else ():
        description = path.with_name(other)
        if not config.get("quantization_config") and description.is_file():
            config["quantization_config"], source = _quantisation(description, method), f"{named} with {other}"
    name = path.parent.name if path.name == CONFIG and path.parent.name else path.stem
    return {"name": name, "source": source, "config": config}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadModel(f"{path}: cannot be read as JSON ({why})") from None


def _quantisation(path: Path, method: str) -> dict[str, Any]:
    """ModelOpt's has everything but its own version one level down."""
    given = _read(path)
    inner = given.pop("quantization", {}) if isinstance(given, dict) else None
    if not isinstance(inner, dict):
        raise BadModel(f"{path}: it has no mapping; allowed: what quantization_config has")
    return {"quant_method": method, **given, **inner}


def file_name(name: str) -> str:
    """A model's name as far as the path of a record may have it."""
    return re.sub(r"[^\w.=+-]", "_", name)


def read(found: Mapping[str, Any]) -> Model:
    """The model of what `find` gave. Raises BadModel with its source."""
    try:
        return build(found["name"], found["source"], found["config"])
    except BadModel as error:
        raise BadModel(f"{found['name'] if found['name'] in shipped() else found['source']}: {error}") from None


def require_contexts(model: Model, contexts: Sequence[int]) -> None:
    """Raises BadModel for contexts that the model cannot attend to."""
    longest = model.longest_context
    if beyond := [context for context in contexts if context > longest]:
        raise BadModel(f"{model.name}: {max(beyond)} tokens (CONTEXT, or IN and OUT); allowed: {longest} or fewer")
