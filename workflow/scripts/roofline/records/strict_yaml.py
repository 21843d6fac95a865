"""YAML read strictly: a key that stands twice and a value that cannot be read are faults, each with its line."""

import sys
from collections.abc import Hashable
from pathlib import Path

import yaml

MOST_NODES = 100_000  # aliases of aliases make billions of a few lines


class YamlFaults(Exception):
    """What is wrong with a file, one line each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self.lines = lines


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str):
        super().__init__(text)
        self.twice: list[tuple[int, str]] = []
        self.nodes, self.within = 0, {}  # so many there are with every alias written out, and within an anchored one

    def compose_node(self, parent, index):
        mark, before = self.peek_event().start_mark, self.nodes
        alias, node = self.check_event(yaml.AliasEvent), super().compose_node(parent, index)
        self.nodes += self.within.get(node, 1) if alias else 1
        self.within[node] = self.nodes - before
        if self.nodes > MOST_NODES:
            raise yaml.composer.ComposerError(None, None, f"more than {MOST_NODES} values, aliases written out", mark)
        return node

    def construct_object(self, node, deep=False):
        try:
            value = super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError) as error:
            problem = f"a value that cannot be read ({str(error).split(';')[0]})"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
        if isinstance(value, int) and value.bit_length() > sys.float_info.max_exp:
            raise yaml.constructor.ConstructorError(None, None, "a number too large to compute with", node.start_mark)
        return value

    def construct_whole_mapping(self, node):
        """Deep, so that an alias within its own anchor is refused."""
        seen = set()
        for key_node in (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"):
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"{key} is no key", key_node.start_mark)
            if key in seen:
                self.twice.append((key_node.start_mark.line + 1, key))
            seen.add(key)
        return self.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _Loader.construct_whole_mapping)


def read_yaml(path: Path | str):
    """The contents of a YAML file. Raises YamlFaults, or OSError where it cannot be opened."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise YamlFaults([f"{path}: not a regular file"])  # to read a pipe or a device could take for ever
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        content = loader.get_single_data()
    except UnicodeDecodeError as error:
        raise YamlFaults([f"{path}: cannot be read ({error})"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        problem = f"{error.context}, {problem}" if problem.startswith("but ") else problem
        raise YamlFaults([f"{path}{line}: {problem}"]) from None
    except RecursionError:
        raise YamlFaults([f"{path}: nested too deeply"]) from None
    if loader.twice:
        twice = sorted(loader.twice, key=lambda found: found[0])
        raise YamlFaults([f"{path}, line {line}: the key '{key}' stands twice" for line, key in twice])
    return content
