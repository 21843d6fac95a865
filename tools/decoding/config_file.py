"""Models by name, from the list that comes with the code, or by the path of a config.json."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from architecture import Model
from config_fields import BadModel
from families import build_model

# The source and the config of each model that comes with the code, by name.
SHIPPED_MODELS = yaml.safe_load(Path(__file__).with_name("shipped.yaml").read_text(encoding="utf-8"))
CONFIG = "config.json"
# Tools that leave config.json as it was write one of these next to it, without the name of the method.
METHODS_BY_FILE = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq"}


def find_model(model: str) -> dict[str, Any]:
    """Return the `name`, `source` and `config` of a model, which is called its entry below.

    `model` is a name of the list, the path of a config.json, or that of a folder with one. Raises BadModel.
    """
    shipped = ", ".join(SHIPPED_MODELS)
    if not model or not model.isprintable():
        raise BadModel(f"MODEL: {model!r} is not a model; allowed: the path of a config.json, or {shipped}")
    path = Path(model) / CONFIG if Path(model).is_dir() else Path(model)
    if model.lower() in SHIPPED_MODELS and not path.exists():
        return {"name": model.lower(), **SHIPPED_MODELS[model.lower()]}
    if not path.is_file():
        raise BadModel(f"{model}: no such file or {CONFIG} in it; allowed: a {CONFIG}, a folder with one, or {shipped}")
    config, source = _read_json(path), model
    if path.name == CONFIG and isinstance(config, dict):
        for file_name, method in METHODS_BY_FILE.items():
            description = path.with_name(file_name)
            if not config.get("quantization_config") and description.is_file():
                config["quantization_config"] = _read_quantisation(description, method)
                source = f"{model} with {file_name}"
    name = path.parent.name if path.name == CONFIG and path.parent.name else path.stem
    return {"name": name, "source": source, "config": config}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadModel(f"{path}: cannot be read as JSON ({reason})") from None


def _read_quantisation(path: Path, method: str) -> dict[str, Any]:
    """Return a quantization_config. The file of ModelOpt has all of it but its version one level down."""
    description = _read_json(path)
    inner = description.pop("quantization", {}) if isinstance(description, dict) else None
    if not isinstance(inner, dict):
        raise BadModel(f"{path}: it has no mapping; allowed: what quantization_config has")
    return {"quant_method": method, **description, **inner}


def file_name(name: str) -> str:
    """Return a model's name with only the characters that the path of a record may have."""
    return re.sub(r"[^\w.=+-]", "_", name)


def read_model(entry: Mapping[str, Any]) -> Model:
    """Return the model of an entry from `find_model`. Raises BadModel with its source."""
    name, source = entry["name"], entry["source"]
    try:
        return build_model(name, source, entry["config"])
    except BadModel as error:
        raise BadModel(f"{name if name in SHIPPED_MODELS else source}: {error}") from None
