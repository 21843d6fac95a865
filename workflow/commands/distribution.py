"""make distribution: what cards of one model reach, from archives or results folders of runs on several.

    python workflow/commands/distribution.py ARCHIVE ...

Adds the runs to reference/{card}/distribution.json, each once. Remove that file to begin anew.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis.distribution import distribution, known, measured_runs, path_of
from roofline.core.formatting import counted
from roofline.records.base import CorruptRecord, write
from roofline.run.archive import Refused
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.runs import read_runs


def main(paths: list[str]) -> int:
    try:
        measured = [one for run in read_runs(paths) for one in measured_runs(run)]
        if not measured:
            raise Refused("ARCHIVES: no run of a whole GPU is among them")
        for card in dict.fromkeys(card for card, _, _ in measured):
            add(card, [(run, told) for of, run, told in measured if of == card])
    except (Refused, CorruptRecord, OSError) as error:
        print(error)
        return 1
    return 0


def add(card: str, measured: list) -> None:
    """Raises CorruptRecord and OSError."""
    before = known(card)
    runs = {
        (run.fingerprint, run.card_id): run for run in [*(before.runs if before else []), *(run for run, _ in measured)]
    }
    told = {one.key: one for one in before.quantities} if before else {}
    told |= {one.key: one for _, quantities in measured for one in quantities}
    made = distribution(card, sorted(runs.values(), key=lambda run: run.queried_at), told)
    write(made, path_of(card))
    cards = len({run.card_id for run in made.runs})
    print(f"{card}: {counted(len(made.runs), 'run')} of {counted(cards, 'card')}, {os.path.relpath(path_of(card))}")


if __name__ == "__main__":
    print_what_can_be_printed()
    if not sys.argv[1:]:
        sys.exit('ARCHIVES: name archives or results folders, as in ARCHIVES="one.tar.gz other.tar.gz"')
    sys.exit(main(sys.argv[1:]))
