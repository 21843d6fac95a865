"""The report of a fleet from the archives of its nodes. It measures nothing."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from roofline.analysis.fleet import Measured, card_id, fleet
from roofline.analysis.quantities import Run
from roofline.core.device_kinds import KINDS, accelerators, in_order
from roofline.records.base import write
from roofline.records.convert import COLLECTIONS
from roofline.records.files import write_text
from roofline.records.fleet import Fleet, FleetNode, FleetNodes, Load
from roofline.report import fleet_page
from roofline.run.archive import ENDING, Refused
from roofline.run.paths import RESULTS
from roofline.run.runs import opened

NODES = "nodes.json"
FILES = ("fleet.html", "FLEET.md", "fleet.json", "passing_nodes.txt", "failing_nodes.txt")


def report(nodes: FleetNodes, folder: Path, into: Path | None = None) -> Fleet:
    """Read the archives that the nodes name, relative to a folder, and write the report there, or into another.

    Raises Refused with a line for each archive that cannot be read or is not like the others, CorruptRecord where what
    is stored of the card's model cannot be read, and OSError.
    """
    measured = _read((node.node, path, folder / path) for node in nodes.nodes for path in node.archives)
    return _written(_fleet(nodes, measured), into or folder)


def report_archives(paths: Sequence[Path], into: Path) -> Fleet:
    """The same of archives or results folders that were collected by hand: a node has the name of its archive without
    the ending. Several archives of one card are runs of one node, which has the name of the oldest."""
    return _written(fleet_of_archives(paths, into), into)


def fleet_of_archives(paths: Sequence[Path], folder: Path) -> Fleet:
    """What `report_archives` writes; paths are named relative to the folder."""
    measured = sorted(_read((_name(path), str(path), path) for path in paths), key=lambda one: _queried(one[1].run))
    return _fleet(_nodes(measured, folder), measured)


def _fleet(nodes: FleetNodes, measured: Sequence[tuple[str, Measured]]) -> Fleet:
    _require_alike(measured)
    return fleet(nodes.nodes, [one for _, one in measured])


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
    if twice:
        raise Refused("\n".join(f"{name}: archives of several nodes have this name; rename them" for name in twice))
    return FleetNodes(nodes=sorted(nodes, key=lambda one: one.node))


def write_all(found: Fleet, folder: Path) -> None:
    """The table, both pages, and the nodes as Slurm's --nodelist and --exclude take them."""
    folder.mkdir(parents=True, exist_ok=True)
    write(found, folder / "fleet.json")
    write_text(fleet_page.html(found), folder / "fleet.html")
    write_text(fleet_page.markdown(found), folder / "FLEET.md")
    for name, some in (("passing", found.passing), ("failing", found.failing)):
        write_text("".join([",".join(some), "\n" * bool(some)]), folder / f"{name}_nodes.txt")


# ---------------------------------------------------------------- reading


def _read(archives: Iterable[tuple[str, str, Path]]) -> list[tuple[str, Measured]]:
    """Runs with how they were named, from nodes, names and places. Raises Refused with a line for each that is none."""
    found, refused = [], []
    for node, named, path in archives:
        try:
            with opened(path) as (results, run):
                found.append((named, Measured(node, run, _loads(results, run))))
        except Refused as error:
            refused.append(str(error))
    if refused:
        raise Refused("\n".join(refused))
    return found


def _loads(results: Path, run: Run) -> dict[str, dict[str, Load]]:
    """Power and temperature under the sustained loads of each device; none where an archive has no such records.

    Read as plain JSON: the run was checked already, and checking some hundred samples of each record again takes most
    of the time of a report.
    """
    return {name: dict(_sustained((results / entry.record).parent)) for name, entry in run.roofline.devices.items()}


def _sustained(device: Path) -> Iterator[tuple[str, Load]]:
    collection = device / COLLECTIONS[0]  # of earlier versions
    records = json.loads(collection.read_bytes())["records"] if collection.is_file() else []
    records += [json.loads(path.read_bytes()) for path in sorted(device.glob("peak_flops/*.json"))]
    for record in records:
        if load := (record.get("peak") or {}).get("sustained"):
            heat = [point["temperature_c"] for point in load["curve"] if point.get("temperature_c") is not None]
            yield record["dtype"], Load(power_w=load["power_w"], temperature_c=max(heat, default=None))


def _name(path: Path) -> str:
    """Of an archive or a results folder."""
    full = path.absolute()
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
    gpus = any(KINDS[record.device_kind].accelerator for _, one in measured for record in _judged(one.run))
    refused, seen = [], {}
    models = {
        named: {record.name for record in _judged(one.run) if KINDS[record.device_kind].accelerator is gpus}
        for named, one in measured
    }
    usual = _most(name for some in models.values() for name in some)
    effort = _most(one.run.effort for _, one in measured)
    for named, one in measured:
        for model in sorted(models[named] - {usual}):
            refused.append(f"{named}: refused, its card is {model}; allowed: {usual}, as most of this fleet")
        if one.run.effort != effort:
            refused.append(
                f"{named}: refused, its effort is {one.run.effort}; allowed: {effort}, as most of this fleet"
            )
        if one.run.fingerprint in seen:
            refused.append(f"{named}: refused, it is the same run as {seen[one.run.fingerprint]}")
        seen.setdefault(one.run.fingerprint, named)
    if refused:
        raise Refused("\n".join(refused))


def _most(values: Iterable) -> str | None:
    return next((value for value, _ in Counter(values).most_common(1)), None)
