"""The report of a fleet from the archives of its nodes. It measures nothing."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roofline.analysis.fleet import Measured, card_id, fleet
from roofline.analysis.quantities import Run
from roofline.core.device_kinds import KINDS, accelerators, in_order
from roofline.records.base import write
from roofline.records.files import write_text
from roofline.records.fleet import Fleet, FleetNode, FleetNodes, Load
from roofline.report import fleet_page
from roofline.run.archive import ENDING, Refused
from roofline.run.paths import RESULTS
from roofline.run.runs import opened
from roofline.run.settings import complete

NODES = "nodes.json"
# Settings that no figure of a card depends on. A run in a folder of its own has absolute paths in the last two.
NO_MATTER = {"cost", "author", "plot", "health", "operations", "profiles", "operators", "model"}
UNSET = "not set"
FILES = ("fleet.html", "FLEET.md", "fleet.json", "passing_nodes.txt", "failing_nodes.txt")


def report(nodes: FleetNodes, folder: Path, settings: Mapping | None = None, into: Path | None = None) -> Fleet:
    """Read the archives that the nodes name, relative to a folder, and write the report there, or into another.

    An archive that cannot be read, was measured with other settings than these, or is unlike most is left out, and its
    node fails with the reason. Raises CorruptRecord where what is stored of the card's model cannot be read, Faults
    where the settings are not allowed, and OSError.
    """
    asked = complete(dict(settings)).as_dict if settings is not None else None
    measured, faults = _read((node.node, path, folder / path) for node in nodes.nodes for path in node.archives)
    if asked is not None:
        faults |= _other_settings(measured, asked)
    alike = [one for one in measured if one[0] not in faults]
    unlike = _unlike(alike)
    faults |= {named: f"{named}: {'; '.join(reasons)}" for named, reasons in unlike.items()}
    kept = [one for named, one in alike if named not in unlike]
    return _written(fleet([_judged_node(node, faults) for node in nodes.nodes], kept), into or folder)


def report_archives(paths: Sequence[Path], into: Path) -> Fleet:
    """The same of archives or results folders that were collected by hand: a node has the name of its archive without
    the ending. Several archives of one card are runs of one node, which has the name of the oldest."""
    return _written(fleet_of_archives(paths, into), into)


def fleet_of_archives(paths: Sequence[Path], folder: Path) -> Fleet:
    """What `report_archives` writes; paths are named relative to the folder."""
    found, faults = _read((_name(path), str(path), path) for path in paths)
    if faults:
        raise Refused("\n".join(faults.values()))
    measured = sorted(found, key=lambda one: _queried(one[1].run))
    nodes = _nodes(measured, folder)
    _require_alike(measured)
    return fleet(nodes.nodes, [one for _, one in measured])


def _judged_node(node: FleetNode, faults: Mapping[str, str]) -> FleetNode:
    reasons = [faults[path] for path in node.archives if path in faults]
    return node.model_copy(update={"status": "failed", "reason": "; ".join(reasons)}) if reasons else node


def _written(found: Fleet, folder: Path) -> Fleet:
    write_all(found, folder)
    return found


def _nodes(measured: Sequence[tuple[str, Measured]], folder: Path) -> FleetNodes:
    """Of runs, the oldest first."""
    nodes: list[FleetNode] = []
    of: dict[str, FleetNode] = {}
    for path, one in measured:
        cards = {card_id(record, one.node) for record in _judged(one.run)}
        relative = os.path.relpath(path, folder)
        node = next((of[card] for card in cards if card in of), None)
        if node:
            node.archives.append(relative)
        else:
            node = FleetNode(node=one.node, status="measured", reason=None, archives=[relative])
            nodes.append(node)
        of |= dict.fromkeys(cards, node)
    twice = [name for name, count in Counter(one.node for one in nodes).items() if count > 1]
    twice += _same_names(measured)
    if twice:
        raise Refused("\n".join(f"{name}: archives of several nodes have this name; rename them" for name in twice))
    return FleetNodes(nodes=sorted(nodes, key=lambda one: one.node))


def _same_names(measured: Sequence[tuple[str, Measured]]) -> list[str]:
    """Nodes without a GPU whose archives lie in several folders: a CPU is known by its node alone."""
    folders: dict[str, set[Path]] = {}
    for path, one in measured:
        if not any(KINDS[record.device_kind].accelerator for record in _judged(one.run)):
            folders.setdefault(one.node, set()).add(Path(path).absolute().parent)
    return [node for node, some in folders.items() if len(some) > 1]


def write_all(found: Fleet, folder: Path) -> None:
    """The table, both pages, and the nodes as Slurm's --nodelist and --exclude take them."""
    folder.mkdir(parents=True, exist_ok=True)
    write(found, folder / "fleet.json")
    write_text(fleet_page.html(found), folder / "fleet.html")
    write_text(fleet_page.markdown(found), folder / "FLEET.md")
    for name, some in (("passing", found.passing), ("failing", found.failing)):
        write_text("".join([",".join(some), "\n" * bool(some)]), folder / f"{name}_nodes.txt")


# ---------------------------------------------------------------- reading


def _read(archives: Iterable[tuple[str, str, Path]]) -> tuple[list[tuple[str, Measured]], dict[str, str]]:
    """Runs with how they were named, from nodes, names and places; and by name a line for each that cannot be read."""
    found, refused = [], {}
    for node, named, path in archives:
        try:
            with opened(path) as (results, run):
                found.append((named, Measured(node, run, _loads(results, run))))
        except Refused as error:
            refused[named] = " ".join(str(error).split())
    return found, refused


def _loads(results: Path, run: Run) -> dict[str, dict[str, Load]]:
    """Power and temperature under the sustained loads of each device; none where an archive has no such records.

    Read as plain JSON: the run was checked already, and checking some hundred samples of each record again takes most
    of the time of a report.
    """
    return {name: dict(_sustained((results / entry.record).parent)) for name, entry in run.roofline.devices.items()}


def _sustained(device: Path) -> Iterator[tuple[str, Load]]:
    records = [json.loads(path.read_bytes()) for path in sorted(device.glob("peak_flops/*.json"))]
    for record in records:
        if load := (record.get("peak") or {}).get("sustained"):
            heat = [point["temperature_c"] for point in load["curve"] if point.get("temperature_c") is not None]
            yield record["dtype"], Load(power_w=load["power_w"], temperature_c=max(heat, default=None))


def _name(path: Path) -> str:
    """Of an archive or a results folder; make fleet leaves nodes/{node}/run1.tar.gz."""
    full = path.absolute()
    if full.parent.parent.name == "nodes":
        return full.parent.name
    return (full.parent if full.name == RESULTS.name else full).name.removesuffix(ENDING)


def _queried(run: Run) -> str:
    return min(record.queried_at for record in run.devices.values())


def _judged(run: Run) -> list:
    """The GPUs of a run; the CPU where it has none."""
    records = in_order(run.devices.values(), lambda one: one.device_kind)
    return accelerators(records, lambda one: one.device_kind) or records


# ---------------------------------------------------------------- what may be in one report


def _require_alike(measured: Sequence[tuple[str, Measured]]) -> None:
    """Raises Refused with a line for each archive of another model or effort than most, and for each run twice."""
    unlike = _unlike(measured)
    if unlike:
        raise Refused("\n".join(f"{named}: refused, {why}" for named, reasons in unlike.items() for why in reasons))


def _unlike(measured: Sequence[tuple[str, Measured]]) -> dict[str, list[str]]:
    """Why archives cannot be in one report with most others, by how they were named."""
    gpus = any(KINDS[record.device_kind].accelerator for _, one in measured for record in _judged(one.run))
    found, seen = {}, {}
    models = {
        named: {record.name for record in _judged(one.run) if KINDS[record.device_kind].accelerator is gpus}
        for named, one in measured
    }
    usual = _most(name for some in models.values() for name in some)
    effort = _most(one.run.effort for _, one in measured)
    for named, one in measured:
        reasons = [
            f"its card is {model}; allowed: {usual}, as the rest of this fleet"
            for model in sorted(models[named] - {usual})
        ]
        if one.run.effort != effort:
            reasons.append(f"its effort is {one.run.effort}; allowed: {effort}, as the rest of this fleet")
        if one.run.fingerprint in seen:
            reasons.append(f"it is the same run as {seen[one.run.fingerprint]}")
        seen.setdefault(one.run.fingerprint, named)
        if reasons:
            found[named] = reasons
    return found


def _other_settings(measured: Sequence[tuple[str, Measured]], asked: Mapping) -> dict[str, str]:
    """A line for each archive that was not measured with these settings, with the first that differs."""
    wanted, found = _flat(asked), {}
    for named, one in measured:
        had = _flat(one.run.manifest.config)
        differing = [key for key in sorted(wanted | had) if had.get(key, UNSET) != wanted.get(key, UNSET)]
        if differing:
            first, more = differing[0], len(differing) - 1
            what = f"{first} is {had.get(first, UNSET)}, and {wanted.get(first, UNSET)} in the fleet's settings"
            found[named] = f"{named}: measured with other settings: {what}" + (f"; {more} more differ" if more else "")
    return found


def _flat(config: Mapping, before: str = "") -> dict[str, Any]:
    """Settings that card figures depend on, by dotted keys."""
    found = {}
    for key, value in config.items():
        if before or key not in NO_MATTER:
            nested = isinstance(value, Mapping) and value
            found |= _flat(value, f"{before}{key}.") if nested else {f"{before}{key}": value}
    return found


def _most(values: Iterable) -> str | None:
    return next((value for value, _ in Counter(values).most_common(1)), None)
