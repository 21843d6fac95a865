"""The commands of workflow/commands/ as modules: they are scripts, in no package."""

import importlib.util
from pathlib import Path
from types import ModuleType

COMMANDS = Path(__file__).parents[1] / "workflow" / "commands"


def load(name: str) -> ModuleType:
    """Its own module at every call."""
    spec = importlib.util.spec_from_file_location(f"{name}_command", COMMANDS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
