"""Records of versions 3 and 4, and tables (roofline.json) of version 2, as today's. No other module knows how they
were.

Version 3 held the text of every operator; today only that of a user's own is stored, in one file beside the table.
Version 4 told whether a block was timed twice, and not how often; neither had a digest.
"""

import re
from collections.abc import Iterable

from roofline.core.dtypes import dtype_of

OLD, NEW = (3, 4), 5
COLLECTIONS = ("peak_flops.json", "bandwidth.json")  # of each device: all its records of a kind in one file
OLD_TABLE, NEW_TABLE = 2, 3
OF_CELL = ("label", "series", "plan_summary", "textbook_regime", "remedies")
OF_ROW = ("title", "label", "series", "remedies")
RENAMED = {
    "lab_tflops": "reference_tflops",
    "on_lab_inputs_tflops": "on_reference_inputs_tflops",
    "held_back_by": "limited_by",
}


def is_old(content: object) -> bool:
    """Whether what a file holds is a record or a table of an earlier version; the formats with a version of their
    own have no such kind."""
    if not isinstance(content, dict):
        return False
    own = ("comparison", "distribution", "health", "spread")
    return _is_old_table(content) or (content.get("schema_version") in OLD and content.get("kind", own[0]) not in own)


def _is_old_table(content: dict) -> bool:
    return "kind" not in content and content.get("schema_version") == OLD_TABLE and "ceilings" in content


def current(content: dict) -> dict:
    """An old record or table as today's kind of record reads it."""
    return _table(content) if _is_old_table(content) else _record(content)


def _table(content: dict) -> dict:
    found = {key: value for key, value in content.items() if key != "operator_info"} | {"schema_version": NEW_TABLE}
    found["ceilings"] = [_ceiling(one) for one in content["ceilings"]]
    found["operators"] = [
        {key: value for key, value in one.items() if key not in OF_ROW} for one in content.get("operators", ())
    ]
    for device in found.get("instructions", ()):
        device["kernels"] = [{k: v for k, v in one.items() if k != "name"} for one in device.get("kernels", ())]
    found["checks"] = [_check(one) for one in found.pop("faults", ())]
    return found


def _ceiling(content: dict) -> dict:
    of_name = _accesses(content["name"]) if content["kind"] == "memory" else {"dtype": dtype_of(content["name"])}
    return of_name | {RENAMED.get(key, key): value for key, value in content.items()}


def _check(fault: dict) -> dict:
    """Of a table of version 2, which has those alone that failed and make figures doubtful."""
    found = {key: value for key, value in fault.items() if key != "criterion"}
    return {**found, "check": fault["criterion"], "result": "fail", "doubts_figures": True}


def _record(content: dict) -> dict:
    found = {**content, "schema_version": NEW}
    found.pop("info", None)
    if "bandwidths" in found:
        found["bandwidths"] = [_accesses(one["name"]) | one for one in found["bandwidths"]]
    for cells in ("measurements", "cells"):
        if cells in found:
            found[cells] = [{key: value for key, value in one.items() if key not in OF_CELL} for one in found[cells]]
    return _attempts(found)


def _attempts(content):
    """The number of attempts instead of whether there were two, wherever a block's contention stands."""
    if isinstance(content, dict):
        found = {key: _attempts(value) for key, value in content.items() if key != "measured_again"}
        return found | {"attempts": 2} if content.get("measured_again") else found
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return [_attempts(one) for one in content]
    return content


def _accesses(ceiling: str) -> dict:
    """What names of memory ceilings said alone: dram_read_4_cores, h2d_pageable, p2p_gpu1_both."""
    cores = re.search(r"_(one|\d+)_cores?$", ceiling)
    pinned = "pageable" if ceiling.endswith("_pageable") else "pinned"
    return {
        "cores": int(cores[1].replace("one", "1")) if cores else None,
        "host_memory": pinned if ceiling.startswith(("h2d", "d2h")) else None,
        "both_ways": ceiling.endswith("_both"),
    }


def clocks(collections: Iterable[dict]) -> dict[tuple[str, str], dict]:
    """Clocks and operands that an old table lacks and its collections have, by device and ceiling."""
    known = {}
    for record in (record for collection in collections for record in collection["records"]):
        for one in record.get("bandwidths", ()):
            known[record["device"], one["name"]] = {"sm_clock_mhz": one.get("sm_clock_mhz")}
        if peak := record.get("peak"):
            load = peak.get("sustained") or {}
            known[record["device"], record["dtype"]] = {
                "clock_mhz": peak.get("clock_mhz"),
                "sustained_clock_mhz": load.get("sm_clock_mhz"),
                "inputs": peak.get("inputs"),
            }
    return known


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
