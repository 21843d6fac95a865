"""Files: written whole or not at all, their hashes, and YAML of which no key may stand twice."""

import hashlib
import os
from pathlib import Path, PurePosixPath

import yaml

from roofline.core.terms import UserError

RESULTS = Path("results")  # of a run, in its folder


def below_results(path: Path | str) -> str:
    """results/gpu0/prediction.json as records name it: gpu0/prediction.json."""
    return str(PurePosixPath(path).relative_to(RESULTS.as_posix()))


def write_text(text: str, path: Path | str) -> None:
    write_bytes(text.encode(), path)


def write_bytes(content: bytes, path: Path | str) -> None:
    """Write a file next to its place and rename it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def file_sha256(path: Path | str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Loader(yaml.SafeLoader):
    """Notes keys that stand twice, with their lines."""

    def __init__(self, text: str):
        super().__init__(text)
        self.twice: list[tuple[int, str]] = []

    def compose_mapping_node(self, anchor):
        node, seen = super().compose_mapping_node(anchor), set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                self.twice.append((key.start_mark.line + 1, key.value))
            seen.add(key.value)
        return node


def read_yaml(path: Path | str):
    """The contents of a YAML file. Raises UserError, or OSError if it cannot be opened."""
    try:
        loader = _Loader(Path(path).read_text(encoding="utf-8"))
        content = loader.get_single_data()
    except ValueError as error:  # no UTF-8, or a date or a number that is none
        raise UserError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        problem = f"{error.context}, {problem}" if problem.startswith("but ") else problem
        raise UserError(f"{path}{line}: {problem}") from None
    if loader.twice:
        twice = sorted(loader.twice)
        raise UserError([f"{path}, line {line}: the key '{key}' occurs twice" for line, key in twice])
    return content
