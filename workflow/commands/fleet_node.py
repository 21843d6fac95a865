"""What a job of a fleet does on its node: run the workflow in the node's folder, and archive the run.

    python workflow/commands/fleet_node.py NODE NUMBER

In the fleet's folder. What a run measured before it was cut off is kept, and the next one goes on from there. The log
is nodes/{node}/run{number}.log.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.run import fleet, folder
from roofline.run.archive import ARCHIVES
from roofline.run.settings import CHECKOUT

COMMANDS = CHECKOUT / "workflow" / "commands"


def main(node: str, number: int) -> int:
    here, target = Path(), fleet.archive(node, number)
    where, log = fleet.run_folder(node, number), fleet.log_of(node, number)
    where.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as output:
        own = os.environ.get("SLURMD_NODENAME", node)
        if own != node:
            output.write(f"this job was for {node}, and Slurm started it on {own}\n")
            return 1
        os.environ.pop("PYTHONPATH", None)  # it leads to the executor, which would slow the start of every job
        folder.prepare(where, fleet.plan_of(here).settings, CHECKOUT)
        for command in ("run.py", "archive.py"):
            call = [sys.executable, "-P", str(COMMANDS / command), "--snakefile", str(CHECKOUT / "Snakefile")]
            status = subprocess.run(call, cwd=where, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
            if status:
                return status
    newest = max((where / ARCHIVES).glob("[!.]*.tar.gz"), key=lambda path: path.stat().st_mtime)
    os.replace(newest, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
