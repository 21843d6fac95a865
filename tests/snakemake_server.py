"""`python -m snakemake` many times at the cost of importing it once: each request is a fork of this process.

A request is a line of JSON on stdin: folder, arguments, environment, and the files that take stdout and stderr. The
answer is a line with the exit status. Imports of the checkout itself are the fork's own.
"""

import gc
import json
import os
import signal
import sys

# What every run imports in the end, none of it this project's.
import pydantic  # noqa: F401
import smart_open  # noqa: F401
import yte  # noqa: F401
from snakemake import cli


def become(folder: str, arguments: list[str], environment: dict[str, str], outputs: list[str], patience_s: int) -> None:
    """What a new process of the interpreter would be."""
    signal.alarm(patience_s)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in zip((0, 1, 2), (os.devnull, *outputs), strict=True):
        os.dup2(os.open(path, os.O_RDWR), descriptor)
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[1:] = arguments
    cli.main()


if __name__ == "__main__":
    cli.get_argument_parser()  # which looks for plugins
    gc.freeze()
    while line := sys.stdin.readline():
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        else:
            become(**json.loads(line))
            break
