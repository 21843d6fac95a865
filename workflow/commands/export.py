"""make export: the measured ceilings in the format of another tool, on standard output; nothing is measured for it.

    python workflow/commands/export.py tracelens [--card CARD]

CARD is a run (a results folder, or a folder or an archive with one); without it, this folder's results. Of several GPUs
the first is written.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.device_kinds import in_order
from roofline.report import tracelens
from roofline.run.archive import Refused
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run

FORMATS = {"tracelens": tracelens.architecture}


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    try:
        if given.format not in FORMATS:
            raise Refused(f"FORMAT: {given.format!r} is unknown; allowed: {', '.join(FORMATS)}")
        if given.card == str(RESULTS) and not RESULTS.exists():
            raise Refused("no results here yet: run make first, or name a card, such as CARD=reference/nvidia-h200")
        run = read_run(given.card)
        devices = in_order(run.devices.values(), lambda one: one.device_kind)
        found = (FORMATS[given.format](one, run.roofline.ceilings) for one in devices)
        text = next((one for one in found if one), None)
        if text is None:
            raise Refused(f"{given.card}: it has no device whose memory's reads were measured")
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(text, indent=2))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make export", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("format", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--card", default=str(RESULTS), metavar="CARD", help="a run; without it, this folder's results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print_what_can_be_printed()
    sys.exit(main(sys.argv[1:]))
