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


@cache
def shipped() -> dict[str, dict]:
    """The source and the config of each model that comes with the code, by name."""
    return yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))


def find(named: str) -> dict[str, Any]:
    """Name, source and config of a model: one of the list, a config.json, or a folder with one. Raises BadModel."""
    known = ", ".join(shipped())
    if not named or not named.isprintable():
        raise BadModel(f"{named!r} is not a model; allowed: the path of a config.json, or {known}")
    path = Path(named)
    if path.is_dir():
        path, missing = path / CONFIG, f"a folder without {CONFIG}"
    else:
        missing = "no such file"
    if named.lower() in shipped() and not path.exists():
        return {"name": named.lower(), **shipped()[named.lower()]}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadModel(f"{named}: {missing}, and no model of the list; allowed: a {CONFIG} or {known}") from None
    except (OSError, ValueError, RecursionError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadModel(f"{named}: cannot be read as JSON ({why})") from None
    name = path.parent.name if path.name == CONFIG and path.parent.name else path.stem
    return {"name": name, "source": named, "config": config}


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
        raise BadModel(f"{model.name}: a context of {max(beyond)} tokens; allowed: {longest} or fewer")
