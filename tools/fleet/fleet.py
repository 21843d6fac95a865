"""make fleet ARCHIVES="...": which cards of a fleet are slow, from archives of its nodes. It measures nothing.

    python tools/fleet/fleet.py ARCHIVE ... [--into FOLDER] [--wanted]

ARCHIVE is an archive or a results folder; its node has the name of the file without the ending. All must be runs of one
model of card and one effort. Writes fleet.png, fleet.json, passing_nodes.txt and failing_nodes.txt. With --wanted, a
node whose archive is missing or cannot be used fails, where it would be refused otherwise. Status: 0 all nodes pass,
1 some fail, 2 nothing to report.
"""

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from glob import glob
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

import heat_map
from outliers import FEWEST_CARDS, Fleet, any_gpu, build_fleet, cards_of

from roofline.api import (
    RESULTS,
    Run,
    UserError,
    count_words,
    exit_with,
    figure_style,
    join_words,
    open_run,
    percent,
    write_text,
)

FAILING, NOTHING = 1, 2
SCHEMA_VERSION = 1  # of fleet.json
CARDS_SHOWN, AGAIN_SHOWN, NODES_SHOWN, DPI = 8, 3, 5, 160

ValueT = TypeVar("ValueT")


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its status. Raises UserError and OSError."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="+", metavar="ARCHIVE")
    parser.add_argument("--into", type=Path, default=Path("fleet"))
    parser.add_argument("--wanted", action="store_true")
    options = parser.parse_args(arguments)
    paths = [Path(match) for pattern in options.archives for match in sorted(glob(pattern)) or [pattern]]
    runs, refused = read_runs(paths)
    if refused and not (options.wanted and runs):
        raise UserError([*refused.values()])
    fleet = build_fleet(runs, refused)
    write_report(fleet, options.into)
    print(format_screen(fleet))
    print(f"{options.into}/: fleet.png, fleet.json, passing_nodes.txt, failing_nodes.txt")
    if fleet.failing:
        return FAILING
    return 0 if fleet.judged or options.wanted else NOTHING


def read_runs(paths: Sequence[Path]) -> tuple[dict[str, Run], dict[str, str]]:
    """Return the runs by their nodes, and by node a line for each archive that cannot be used.

    Raises UserError if two archives have the same name.
    """
    names = [node_of(path) for path in paths]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{twice[0]}: several archives have this name; name each after its node")
    runs, refused = {}, {}
    for name, path in zip(names, paths, strict=True):
        try:
            if not path.exists():
                raise UserError(f"{path}: there is no such file")
            runs[name] = open_run(path)
        except UserError as error:
            refused[name] = " ".join(str(error).split())
    refused |= find_unlike_runs(runs)
    return {name: run for name, run in runs.items() if name not in refused}, refused


def node_of(path: Path) -> str:
    """Return the node of an archive or a results folder: its name, or the name of the folder around results/."""
    full = path.absolute()
    return (full.parent if full.name == RESULTS.name else full).name.removesuffix(".tar.gz")


def find_unlike_runs(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return by node why its run cannot be compared with most."""
    gpus, reasons, first_nodes = any_gpu(runs.values()), {}, {}
    models = {name: {run.devices[card].name for card in cards_of(run, gpus)} for name, run in runs.items()}
    usual_model = _most_common(model for names in models.values() for model in names)
    usual_effort = _most_common(run.effort for run in runs.values())
    methods = {name: {run.devices[card].method for card in cards_of(run, gpus)} for name, run in runs.items()}
    usual_method = _most_common(method for of_run in methods.values() for method in of_run)
    for name, run in runs.items():
        if unusual := sorted(models[name] - {usual_model}):
            reasons[name] = f"{name}: its card is {unusual[0]}, and most are {usual_model}"
        elif run.effort != usual_effort:
            reasons[name] = f"{name}: its effort is {run.effort}, and that of most is {usual_effort}"
        elif unusual_methods := sorted(methods[name] - {usual_method}):
            reasons[name] = f"{name}: its measuring method is {unusual_methods[0]}, and that of most is {usual_method}"
        elif run.fingerprint in first_nodes:
            reasons[name] = f"{name}: it is the same run as {first_nodes[run.fingerprint]}"
        first_nodes.setdefault(run.fingerprint, name)
    return reasons


def _most_common(values: Iterable[ValueT]) -> ValueT | None:
    ranked = Counter(values).most_common(1)
    return ranked[0][0] if ranked else None


def write_report(fleet: Fleet, folder: Path) -> None:
    """Write the picture, the table and the lists of nodes, as --nodelist and --exclude take them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps({"schema_version": SCHEMA_VERSION} | asdict(fleet), indent=1) + "\n", folder / "fleet.json")
    for name, nodes in (("passing", fleet.passing), ("failing", fleet.failing)):
        text = ",".join(nodes)
        write_text(f"{text}\n" if nodes else "", folder / f"{name}_nodes.txt")
    figure_style.save(heat_map.draw_heat_map(fleet), [folder / "fleet.png"], DPI)


def format_screen(fleet: Fleet) -> str:
    """Return what the terminal shows, in 25 lines at most."""
    node_count = len(fleet.passing) + len(fleet.failing)
    nodes = count_words(node_count, "node")
    lines = [f"{fleet.cards} × {fleet.model}, {nodes}, {count_words(len(fleet.figures), 'figure')}"]
    slow = list(dict.fromkeys(outlier.card for outlier in fleet.outliers))
    if slow:
        lines.append(f"{count_words(len(slow), 'slow card')}:")
        lines += _shorten(describe_slow_cards(fleet, slow[:CARDS_SHOWN]), len(slow))
    elif fleet.judged:
        lines.append("No slow card.")
    else:
        lines.append(f"Not judged: {count_words(fleet.cards, 'card')}, and {FEWEST_CARDS} or more are needed.")
    again = list(dict.fromkeys(row.card for row in fleet.rows if row.run > 1))
    names = [join_words(row.name for row in fleet.rows if row.card == card) for card in again[:AGAIN_SHOWN]]
    lines += _shorten([f"One card, which counts once: {words}" for words in names], len(again))
    doubtful = sum(len(row.not_judged) for row in fleet.rows)
    if doubtful:
        lines.append(f"Not judged: {count_words(doubtful, 'figure')}, not to be relied on.")
    faulty = [
        f"{node}: {reason.removeprefix(f'{node}: ')}"
        for node, reason in fleet.failing.items()
        if not reason.startswith("slow in") or "; " in reason
    ]
    lines += _shorten(faulty[:NODES_SHOWN], len(faulty))
    verb = "pass" if fleet.judged else "are measured"
    lines.append(f"{len(fleet.passing)} of {nodes} {verb}, {len(fleet.failing)} fail.")
    return "\n".join(lines)


def _shorten(lines: list[str], count: int) -> list[str]:
    """Return the first lines of `count`, and a line that tells how many more there are."""
    return [*lines, f"and {count - len(lines)} more: fleet.json"] if count > len(lines) else lines


def describe_slow_cards(fleet: Fleet, slow: Sequence[str]) -> list[str]:
    """Return a line for each of these cards, with its worst figure."""
    names, lines = {figure.key: figure.name for figure in fleet.figures}, []
    for card in slow:
        worst, *more = [outlier for outlier in fleet.outliers if outlier.card == card]
        words = f"{names[worst.figure]} {percent(worst.below)} below the median (limit {percent(worst.limit)})"
        lines.append(f"  {', '.join(worst.rows)}: {words}" + (f", and {len(more)} more" if more else ""))
    return lines


if __name__ == "__main__":
    exit_with(main, NOTHING)
