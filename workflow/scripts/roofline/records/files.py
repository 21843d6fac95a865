"""Files: written as a whole or not at all, their hashes, and YAML in which no key may occur twice."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from roofline.core.terms import UserError

RESULTS = Path("results")  # of a run, in its folder
_temporary: set[Path] = set()  # to be removed


def below_results(path: Path | str) -> str:
    """Return a path of a result as records name it: gpu0/prediction.json for results/gpu0/prediction.json."""
    return str(PurePosixPath(path).relative_to(RESULTS.as_posix()))


@contextlib.contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """Yield the path of a file or folder that is there until the block ends, or the program by a signal."""
    _temporary.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _temporary.discard(path)


def remove_temporary() -> None:
    """Remove what temporary blocks have made that are not over, since the program is about to end."""
    for path in [*_temporary]:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(text: str, path: Path | str) -> None:
    """Write a text in UTF-8 as write_bytes does."""
    write_bytes(text.encode(), path)


def write_bytes(content: bytes, path: Path | str) -> None:
    """Write a file under a temporary name in its folder, which is made if need be, and rename it into place."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary(path.with_name(f".{path.name}.{os.getpid()}.tmp")) as unfinished:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)


def file_sha256(path: Path | str) -> str:
    """Return the SHA-256 of a file in hexadecimal digits. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_results(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each of these results by its path as records name it. Raises OSError."""
    return {below_results(path): file_sha256(path) for path in paths}


class _Loader(yaml.SafeLoader):
    """A safe loader that notes the keys that occur twice in a mapping, with their lines."""

    def __init__(self, text: str):
        super().__init__(text)
        self.repeated_keys: list[tuple[int, str]] = []

    def compose_mapping_node(self, anchor: object) -> yaml.MappingNode:
        """Return a mapping as the base class does, and note its repeated keys."""
        node = super().compose_mapping_node(anchor)  # type: ignore[arg-type]  # a name or None; the stubs say a dict
        keys = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in keys:
                self.repeated_keys.append((key.start_mark.line + 1, key.value))
            keys.add(key.value)
        return node


def read_yaml(path: Path | str) -> Any:
    """Return the contents of a YAML file. Raises UserError for invalid YAML, OSError if it cannot be opened."""
    try:
        loader = _Loader(Path(path).read_text(encoding="utf-8"))
        content = loader.get_single_data()
    except ValueError as error:  # not UTF-8, or an invalid date or number
        raise UserError(f"{path}: cannot be read ({error})") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = error.problem or str(error).splitlines()[0]
        problem = f"{error.context}, {problem}" if problem.startswith("but ") else problem
        raise UserError(f"{path}{line}: {problem}") from None
    except RecursionError:
        raise UserError(f"{path}: lists or mappings lie too deep within one another") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None
    if loader.repeated_keys:
        keys = sorted(loader.repeated_keys)
        raise UserError([f"{path}, line {line}: the key '{key}' occurs twice" for line, key in keys])
    return content
