"""make fleet ARCHIVES="...": which cards of a fleet are slow, from archives of its nodes. It measures nothing.

    python tools/fleet/fleet.py ARCHIVE ... [--into FOLDER] [--wanted]

ARCHIVE is an archive or a results folder; its node has the name of the file without the ending. All must be runs of one
model of card and one effort. Writes fleet.png, fleet.json, passing_nodes.txt and failing_nodes.txt. With --wanted, a
node whose archive is missing or cannot be used fails, where it would be refused otherwise. Status: 0 all nodes pass,
1 some fail, 2 nothing to report.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))

import heat_map
from outliers import FEWEST_CARDS, Fleet, any_gpu, cards_of, fleet

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
CARDS_SHOWN, AGAIN_SHOWN, NODES_SHOWN, DPI = 8, 3, 5, 160


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="+", metavar="ARCHIVE")
    parser.add_argument("--into", type=Path, default=Path("fleet"))
    parser.add_argument("--wanted", action="store_true")
    given = parser.parse_args(arguments)
    paths = [Path(match) for one in given.archives for match in sorted(glob(one)) or [one]]
    try:
        runs, refused = read(paths)
        if refused and not (given.wanted and runs):
            raise UserError("\n".join(refused.values()))
        found = fleet(runs, refused)
        write(found, given.into)
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return NOTHING
    print(screen(found))
    print(f"{given.into}/: fleet.png, fleet.json, passing_nodes.txt, failing_nodes.txt")
    if found.failing:
        return FAILING
    return 0 if found.judged or given.wanted else NOTHING


def read(paths: Sequence[Path]) -> tuple[dict[str, Run], dict[str, str]]:
    """Runs by their nodes, and by node a line for each archive that cannot be used. Raises UserError for names."""
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
    refused |= unlike(runs)
    return {name: run for name, run in runs.items() if name not in refused}, refused


def node_of(path: Path) -> str:
    full = path.absolute()
    return (full.parent if full.name == RESULTS.name else full).name.removesuffix(".tar.gz")


def unlike(runs: Mapping[str, Run]) -> dict[str, str]:
    """By node, why its run cannot be compared with most."""
    gpus, found, seen = any_gpu(runs.values()), {}, {}
    models = {name: {run.devices[one].name for one in cards_of(run, gpus)} for name, run in runs.items()}
    usual = Counter(model for some in models.values() for model in some).most_common(1)
    effort = Counter(run.effort for run in runs.values()).most_common(1)
    for name, run in runs.items():
        if other := sorted(models[name] - {usual[0][0]}) if usual else []:
            found[name] = f"{name}: its card is {other[0]}, and most are {usual[0][0]}"
        elif run.effort != effort[0][0]:
            found[name] = f"{name}: its effort is {run.effort}, and that of most is {effort[0][0]}"
        elif run.fingerprint in seen:
            found[name] = f"{name}: it is the same run as {seen[run.fingerprint]}"
        seen.setdefault(run.fingerprint, name)
    return found


def write(found: Fleet, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(asdict(found), indent=1) + "\n", folder / "fleet.json")
    for name, nodes in (
        ("passing", found.passing),
        ("failing", found.failing),
    ):  # as --nodelist and --exclude take them
        write_text(",".join(nodes) + "\n" * bool(nodes), folder / f"{name}_nodes.txt")
    figure_style.save(heat_map.draw(found), [folder / "fleet.png"], DPI)


def screen(found: Fleet) -> str:
    """In 25 lines at most."""
    nodes = len(found.passing) + len(found.failing)
    lines = [
        f"{found.cards} × {found.model}, {count_words(nodes, 'node')}, {count_words(len(found.figures), 'figure')}"
    ]
    slow = list(dict.fromkeys(one.card for one in found.outliers))
    if slow:
        lines += [f"{count_words(len(slow), 'slow card')}:", *slow_cards(found, slow[:CARDS_SHOWN])]
        lines += [f"and {len(slow) - CARDS_SHOWN} more: fleet.json"] * (len(slow) > CARDS_SHOWN)
    elif found.judged:
        lines.append("No slow card.")
    else:
        lines.append(f"Not judged: {count_words(found.cards, 'card')}, and {FEWEST_CARDS} or more are needed.")
    again = list(dict.fromkeys(row.card for row in found.rows if row.run > 1))
    for card in again[:AGAIN_SHOWN]:
        lines.append(f"One card, which counts once: {join_words(row.name for row in found.rows if row.card == card)}")
    lines += [f"and {len(again) - AGAIN_SHOWN} more: fleet.json"] * (len(again) > AGAIN_SHOWN)
    doubtful = sum(len(row.not_judged) for row in found.rows)
    if doubtful:
        lines.append(f"Not judged: {count_words(doubtful, 'figure')}, not to be relied on.")
    other = [
        f"{node}: {why.removeprefix(f'{node}: ')}"
        for node, why in found.failing.items()
        if not why.startswith("slow in") or "; " in why
    ]
    lines += other[:NODES_SHOWN]
    lines += [f"and {len(other) - NODES_SHOWN} more: fleet.json"] * (len(other) > NODES_SHOWN)
    verb = "pass" if found.judged else "are measured"
    return "\n".join(
        [*lines, f"{len(found.passing)} of {count_words(nodes, 'node')} {verb}, {len(found.failing)} fail."]
    )


def slow_cards(found: Fleet, slow: Sequence[str]) -> list[str]:
    """A line each, with the worst figure."""
    names, lines = {one.key: one.name for one in found.figures}, []
    for card in slow:
        worst, *more = [one for one in found.outliers if one.card == card]
        words = f"{names[worst.figure]} {percent(worst.below)} below the median (limit {percent(worst.limit)})"
        lines.append(f"  {', '.join(worst.rows)}: {words}" + (f", and {len(more)} more" if more else ""))
    return lines


if __name__ == "__main__":
    exit_with(main, NOTHING)
