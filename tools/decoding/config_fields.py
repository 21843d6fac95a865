"""The fields of a config.json: each is read once, checked, and taken from the family's defaults where it is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from roofline.api import join_words

LARGEST = 1 << 40  # beyond it nothing real comes, and products of several stay exact

# By section of the config: fields that cost nothing in a decode step.
FREE: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("free_fields.yaml").read_text(encoding="utf-8"))


class BadModel(ValueError):
    """What is wrong with a model's config, in one line."""


class Fields:
    """`given` as the file has it; `aliases` of a family for its names; `prefix`: the mapping in the file, if any."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping, aliases: Mapping | None = None, prefix: str = ""):
        names = aliases or {}
        self._shown = {ours: theirs for theirs, ours in names.items() if theirs in given}
        self._defaults, self._read, self.prefix = defaults, set(), printable(prefix)
        self.given: dict[str, Any] = {}
        self.assumed: dict[str, str] = {}
        for key, value in given.items():
            name = names.get(key, key)
            known = self.given.get(name)
            if known is not None and value is not None and known != value:
                raise BadModel(f"{key}: {shown(value)} contradicts {name}, {shown(known)}")
            self.given[name] = known if value is None else value

    def whole(self, name: str, least: int = 1) -> int:
        """A whole number. Raises BadModel, as all of these do."""
        value = self._value(name)
        if value is None:
            raise BadModel(f"{self._name(name)} is missing")
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not least <= value <= LARGEST:
            raise BadModel(f"{self._name(name)}: {shown(value)}; allowed: a whole number of {least} or more")
        return int(value)

    def optional(self, name: str, least: int = 1) -> int | None:
        """None where it is missing or null."""
        return None if self._value(name) is None else self.whole(name, least)

    def knows(self, name: str) -> bool:
        """Whether the family has a default for it."""
        return self._defaults.get(name) is not None

    def flag(self, name: str) -> bool:
        value = self._value(name) or False
        if not isinstance(value, bool):
            raise BadModel(f"{self._name(name)}: {shown(value)}; allowed: true or false")
        return value

    def word(self, name: str, allowed: Sequence) -> Any:
        """One of these values."""
        value = self._value(name)
        if isinstance(value, bool) or value not in allowed:
            known = ", ".join(str(one) for one in allowed if one is not None)
            raise BadModel(f"{self._name(name)}: {shown(value)} is unknown; allowed: {known}")
        return allowed[allowed.index(value)]  # 8 for 8.0

    def names(self, name: str) -> list[str] | None:
        """A list of strings, or of lists of them."""
        value = self._value(name)
        if value is None:
            return None
        some = value if isinstance(value, list) else [None]
        found = [one for each in some for one in (each if isinstance(each, list) else [each])]
        if not all(isinstance(one, str) for one in found):
            raise BadModel(f"{self._name(name)}: {shown(value)}; allowed: a list of names")
        return found

    def listed(self, name: str, allowed: Sequence, count: int | None = None) -> tuple | None:
        """A list of these values; with `count`, of that many."""
        value = self._value(name)
        if value in (None, []):
            return None
        if not isinstance(value, list) or count not in (None, len(value)) or not all(one in allowed for one in value):
            what = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(allowed)
            raise BadModel(f"{self._name(name)}: {shown(value)}; allowed: a list of {count or 'some'} of {what}")
        return tuple(value)

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self._value(name)
        if value is not None and not isinstance(value, Mapping):
            raise BadModel(f"{self._name(name)}: {shown(value)}; allowed: a mapping")
        return value or None

    def require_nothing_else(self) -> None:
        """Raises BadModel for fields that say something, were not read and are not known to be free."""
        known = self._read.union(FREE["quantization_config" if self.prefix else "config"])
        left = [self._name(name) for name, value in self.given.items() if value and name not in known]
        if left:
            raise BadModel(f"{join_words(left)}: what this costs is not known; remove it if it costs nothing")

    def _value(self, name: str) -> Any:
        self._read.add(name)
        if name in self.given:  # null too: it says that there is none
            return self.given[name]
        value = self._defaults.get(name)
        if value is not None:
            self.assumed[name] = str(value)
        return value

    def _name(self, name: str) -> str:
        return printable(self.prefix + str(self._shown.get(name, name)))


def printable(name: Any) -> str:
    return name if isinstance(name, str) and name.isprintable() else shown(name)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
