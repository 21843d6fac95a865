"""Records of version 3 as today's: what was text in them is left out. No other module knows how they were.

Version 3 held the text of every operator; today only that of a user's own is stored, in one file beside the table.
"""

from collections.abc import Iterable

OLD, NEW = 3, 4
OF_CELL = ("label", "series", "plan_summary", "textbook_regime", "remedies")


def is_old(content: object) -> bool:
    """Whether what a file holds is a record of version 3; the formats with a version of their own have no such kind."""
    own = ("comparison", "distribution", "health", "spread")
    return isinstance(content, dict) and content.get("schema_version") == OLD and content.get("kind", own[0]) not in own


def current(content: dict) -> dict:
    """A record of version 3 as today's kind of record reads it."""
    found = {**content, "schema_version": NEW}
    found.pop("info", None)
    for cells in ("measurements", "cells"):
        if cells in found:
            found[cells] = [{key: value for key, value in one.items() if key not in OF_CELL} for one in found[cells]]
    if content["kind"] == "collection":
        found["records"] = [current(one) for one in found["records"]]
    return found


def own_operator(contents: Iterable[dict], kinds: dict[str, str]) -> dict | None:
    """The text of the operator that records of version 3 measured, as its file holds it today; `kinds` are those of
    the devices."""
    contents = [one for one in contents if one.get("info")]
    if not contents:
        return None
    info = contents[0]["info"]
    axis = info.get("axis") and tuple(info["axis"].get(key) for key in ("key", "symbol", "at_least"))
    return {
        "schema_version": NEW,
        "kind": "own_operator",
        **{key: value for key, value in info.items() if key != "axis"},
        "axis": axis,
        "cases": [
            {
                "kind": kinds[content["device"]],
                "advice": one["remedies"],
                "textbook_regime": one.get("textbook_regime"),
                **{key: one[key] for key in ("preset", "dtype", "shape", "implementation", "label", "series")},
            }
            for content in contents
            for one in content["measurements"]
        ],
    }
