"""The fields of a config.json: each is read once, checked, and taken from the family's defaults where it is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from roofline.api import join_words

LARGEST_WHOLE = 1 << 40  # beyond it nothing real comes, and products of several stay exact

# By section of the config: fields that cost nothing in a decode step.
FREE_FIELDS_FILE = "free_fields.yaml"
FREE_FIELDS = yaml.safe_load(Path(__file__).with_name(FREE_FIELDS_FILE).read_text(encoding="utf-8"))


class BadModel(ValueError):
    """A model's config is wrong; the message says how, in one line."""


class Fields:
    """The fields of a config or of a mapping in it. All `read_...` methods raise BadModel for a bad value.

    `config` is the content of the file, `defaults` are the family's, `aliases` has its names by those of the file,
    `prefix` is the path of the mapping in the file.
    """

    def __init__(self, config: Mapping[str, Any], defaults: Mapping, aliases: Mapping | None = None, prefix: str = ""):
        aliases = aliases or {}
        self._names_in_file = {name: alias for alias, name in aliases.items() if alias in config}
        self.defaults, self._names_read, self.prefix = defaults, set(), format_name(prefix)
        self.values: dict[str, Any] = {}
        self.assumed_defaults: dict[str, str] = {}
        for key, value in config.items():
            name = aliases.get(key, key)
            earlier = self.values.get(name)
            if earlier is not None and value is not None and earlier != value:
                raise BadModel(f"{key}: {format_value(value)} contradicts {name}, {format_value(earlier)}")
            self.values[name] = earlier if value is None else value

    def read_whole(self, name: str, minimum: int = 1) -> int:
        """Return a whole number from `minimum` to LARGEST_WHOLE."""
        value = self._read(name)
        if value is None:
            raise BadModel(f"{self.name_in_file(name)} is missing")
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not is_whole or not minimum <= value <= LARGEST_WHOLE:
            raise self._bad_value(name, value, f"a whole number of {minimum} or more")
        return int(value)

    def read_optional_whole(self, name: str, minimum: int = 1) -> int | None:
        """Return a whole number, or None where it is missing or null."""
        return None if self._read(name) is None else self.read_whole(name, minimum)

    def read_size(self, name: str) -> int | None:
        """Return a whole number; None where it is missing or null and the family has no default."""
        return self.read_whole(name) if self.defaults.get(name) else self.read_optional_whole(name)

    def mark_read(self, name: str) -> None:
        """Accept any value of a field that has no effect next to others."""
        self._names_read.add(name)

    def read_flag(self, name: str) -> bool:
        """Return true or false; false where it is missing or null."""
        value = self._read(name) or False
        if not isinstance(value, bool):
            raise self._bad_value(name, value, "true or false")
        return value

    def read_choice(self, name: str, allowed: Sequence) -> Any:
        """Return the allowed value that the field equals, 8 for 8.0. None among them allows a missing field."""
        value = self._read(name)
        if isinstance(value, bool) or value not in allowed:
            choices = ", ".join(str(choice) for choice in allowed if choice is not None)
            raise BadModel(f"{self.name_in_file(name)}: {format_value(value)} is unknown; allowed: {choices}")
        return allowed[allowed.index(value)]

    def read_names(self, name: str) -> list[str] | None:
        """Return the strings of a list and of the lists in it; None where it is missing or null."""
        value = self._read(name)
        if value is None:
            return None
        names: list[Any] = []
        for item in value if isinstance(value, list) else [None]:
            names += item if isinstance(item, list) else [item]
        if not all(isinstance(item, str) for item in names):
            raise self._bad_value(name, value, "a list of names")
        return names

    def read_list(self, name: str, allowed: Sequence, count: int | None = None) -> tuple | None:
        """Return a list of allowed values, of `count` if it is set; None where it is missing, null or empty."""
        value = self._read(name)
        if value in (None, []):
            return None
        if not isinstance(value, list) or count not in (None, len(value)) or any(item not in allowed for item in value):
            choices = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else ", ".join(map(str, allowed))
            raise self._bad_value(name, value, f"a list of {count or 'some'} of {choices}")
        return tuple(value)

    def read_mapping(self, name: str) -> Mapping[str, Any] | None:
        """Return a mapping; None where it is missing, null or empty."""
        value = self._read(name)
        if value is not None and not isinstance(value, Mapping):
            raise self._bad_value(name, value, "a mapping")
        return value or None

    def require_nothing_else(self, free: Sequence[str] = ()) -> None:
        """Raise BadModel for fields that are set, were not read, and are not known to be free, of all or here."""
        allowed = self._names_read.union(FREE_FIELDS["quantization_config" if self.prefix else "config"], free)
        unread = [self.name_in_file(name) for name, value in self.values.items() if value and name not in allowed]
        if unread:
            # Not "remove it": its class may have a default that differs.
            raise BadModel(f"{join_words(unread)}: its cost is not known; see {FREE_FIELDS_FILE} if it is nothing")

    def _read(self, name: str) -> Any:
        self._names_read.add(name)
        if name in self.values:  # null too: it says that there is none
            return self.values[name]
        value = self.defaults.get(name)
        if value is not None:
            self.assumed_defaults[name] = str(value)
        return value

    def _bad_value(self, name: str, value: Any, allowed: str) -> BadModel:
        return BadModel(f"{self.name_in_file(name)}: {format_value(value)}; allowed: {allowed}")

    def name_in_file(self, name: str) -> str:
        """Return the name that the file has for a field, with the path of the mapping."""
        return format_name(self.prefix + str(self._names_in_file.get(name, name)))


def format_name(name: Any) -> str:
    """Return the name of a field as a message shows it: in one line."""
    return name if isinstance(name, str) and name.isprintable() else format_value(name)


def format_value(value: Any) -> str:
    """Return a value as a message shows it: in one line of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
