"""The workflow in its own folder, with the settings that a run here would have."""

import argparse
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from roofline.core.terms import UserError
from roofline.plan import settings
from roofline.records.files import write_text
from roofline.run import run_lock
from roofline.run.jobs import JOBS, Failure, failures

CONFIG_FILE, LOG = Path("config/config.yaml"), "run.log"
LAST_LINES = 20


def read_run_config(arguments: Sequence[str]) -> tuple[dict, list[str]]:
    """Return the configuration of a run with these options of Snakemake, and those that choose it. Raises UserError.

    The file of this folder comes first, if it exists or if the options name none.
    """
    from snakemake.cli import parse_config  # here, because measuring jobs import the API
    from snakemake.utils import update_config

    options = _parse_options(arguments)
    if options.directory is not None:
        raise UserError(f"--directory: make measures in this folder; cd {options.directory} first")
    files = [*([CONFIG_FILE] if CONFIG_FILE.exists() or not options.configfile else []), *options.configfile]
    config: dict = {}
    for path in files:
        update_config(config, settings.read_file(path))
    for entry in options.config:
        try:
            update_config(config, parse_config([entry]))
        except ValueError:
            line = re.sub(r"^(\w+)[:.](\w+)=(.+)", r"\1: {\2: \3}", entry)
            hint = f"; put a line into a file, such as mine.yaml, and give --configfile mine.yaml: {line}"
            raise UserError(f"--config {entry}: should be KEY=VALUE{hint if line != entry else ''}") from None
    return config, choosing(arguments)


def choosing(arguments: Sequence[str]) -> list[str]:
    """Return those of Snakemake's options that choose the configuration."""
    options = vars(_parse_options(arguments))
    return [word for name in ("configfile", "config") if options[name] for word in (f"--{name}", *options[name])]


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    parser.add_argument("--config", "-C", nargs="*", default=[])
    parser.add_argument("--directory", "-d")
    return parser.parse_known_args(arguments)[0]


def insert_options(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return Snakemake's arguments with more options, inserted before `--`, because only targets may follow it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], *options, *arguments[end:]]


def with_targets(arguments: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return Snakemake's arguments with more targets, after a `--`."""
    return [*arguments, *([] if "--" in arguments or not targets else ["--"]), *targets]


def write_config(folder: Path, config: dict, checkout: Path = Path()) -> None:
    """Write the configuration of a folder. Relative paths in it become absolute: they are paths of the checkout."""
    local_config = dict(config)
    if paths := local_config.get("operators"):
        local_config["operators"] = [str((checkout / path).absolute()) for path in paths]
    if checkpoint := (local_config.get("model") or {}).get("checkpoint"):
        local_config["model"] = {**local_config["model"], "checkpoint": str((checkout / checkpoint).absolute())}
    path = folder / CONFIG_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(yaml.safe_dump(local_config, sort_keys=False), path)


def require_no_living_run(folder: Path) -> None:
    """Raise OSError while another run is going on in the folder, which must not be changed under it."""
    with contextlib.suppress(FileNotFoundError), contextlib.chdir(folder):
        if run_lock.is_held():
            raise OSError(run_lock.refusal())


def measure(
    targets: Sequence[str], config: dict, folder: Path, limit_s: float | None = None, options: Sequence[str] = ()
) -> dict[str, Failure]:
    """Make files of a run, such as results/gpu0/bandwidth/hbm.json, in a folder, and return why each missing one is
    missing, by its path. `config` are settings, with defaults for the others, and `options` are Snakemake's, which is
    ended after `limit_s` seconds. The output of Snakemake goes to run.log in the folder.

    Raises UserError if nothing was begun, and OSError while another run is going on in the folder.
    """
    settings.complete(config)
    require_no_living_run(folder)
    write_config(folder, config)
    log, reason, failed, started = folder / LOG, "its process died", True, time.time()
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", "2", "--snakefile", f"{settings.CHECKOUT}/Snakefile"]
    command += ["--directory", str(folder), *options, "--keep-going", "--", *targets]
    with open(log, "wb") as output:
        try:
            failed = subprocess.run(command, stdout=output, stderr=output, timeout=limit_s, check=False).returncode != 0
        except subprocess.TimeoutExpired:
            reason = "there was no time for it"
    missing = [target for target in targets if failed and _written_at(folder / target) < started]
    if missing and not any(_written_at(path) >= started for path in (folder / "logs").rglob("*.log")):
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise UserError("\n".join([*last, f"nothing was measured (log: {log})"]))
    failed_jobs = failures(folder / JOBS)
    return {target: failed_jobs.get(target, Failure(f"{reason} (log: {log})", "")) for target in missing}


def _written_at(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0
