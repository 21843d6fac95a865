"""make fleet-report: how the cards of a fleet stand among one another, from the archives of its nodes.

    python workflow/commands/fleet_report.py ARCHIVE ... [--into FOLDER]
    python workflow/commands/fleet_report.py --nodes FOLDER/nodes.json [--into FOLDER]

Archives or results folders of runs of one model of card and one effort; it measures nothing. A node has the name of its
archive without the ending, or that of nodes.json. Writes fleet.html, FLEET.md, fleet.json, passing_nodes.txt and
failing_nodes.txt into fleet/, or the folder of nodes.json, or FOLDER. Ends with status 1 where a node fails, and with 2
where nothing can be reported.
"""

import argparse
import sys
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.records.base import CorruptRecord, read
from roofline.records.fleet import FleetNodes
from roofline.report import fleet_page
from roofline.run.archive import Refused
from roofline.run.fleet_report import FILES, report, report_archives
from roofline.run.jobs import exit_with, print_what_can_be_printed

FLEET, PLAN = Path("fleet"), "plan.json"  # a plan is what make fleet leaves there
FAILING, REFUSED = 1, 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", metavar="ARCHIVE")
    parser.add_argument("--nodes", type=Path)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args(arguments)
    folder = asked.into or (asked.nodes.parent if asked.nodes else FLEET)
    try:
        if bool(asked.nodes) is bool(asked.archives):
            raise Refused('ARCHIVES: name archives or results folders, as in ARCHIVES="n1.tar.gz n2.tar.gz"')
        if folder.exists() and not folder.is_dir():
            raise Refused(f"FLEET: {folder} is no folder")
        if not asked.nodes and not asked.into and (folder / PLAN).exists():
            raise Refused(f"FLEET: {folder}/ holds a Slurm fleet; name another folder, such as FLEET=october")
        if asked.nodes:
            found = report(read(FleetNodes, asked.nodes), asked.nodes.parent, into=folder)
        else:
            paths = [Path(match) for one in asked.archives for match in sorted(glob(one)) or [one]]
            found = report_archives(paths, folder)
    except FileNotFoundError as error:
        print(f"{error.filename}: there is no such file", file=sys.stderr)
        return REFUSED
    except (Refused, CorruptRecord, OSError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    print(fleet_page.screen(found))
    print(f"{folder}/: {', '.join(FILES)}")
    return FAILING if found.failing else 0


if __name__ == "__main__":
    print_what_can_be_printed()
    exit_with(main, REFUSED)
