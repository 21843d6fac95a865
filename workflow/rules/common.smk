# What the rules need before anything is planned: the settings and the cells of this machine, and what rules ask of them.

import json
import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path

# Relative: Snakemake remembers paths as they are written, and results that were unpacked elsewhere must not seem stale.
HERE = Path(os.path.relpath(str(workflow.current_basedir))).parents[1]
SCRIPTS = HERE / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS.resolve()))

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look for some at the start of every job
os.environ.setdefault("USER", str(os.getuid()))  # Snakemake asks for a name, which a container's user may lack

from snakemake.logging import logger

from roofline.run.packages import describe_missing_packages, find_nccl_version

if MISSING := describe_missing_packages(HERE / "envs"):
    sys.exit(MISSING)

from roofline.core import levels
from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.core.terms import UserError, describe_error
from roofline.devices import datasheets, discovery
from roofline.devices.gpu.gpu_identity import list_lost_gpus, no_gpu_reason
from roofline.measure import hardware_counters, lock, ncu
from roofline.operators.drawing import DRAWN
from roofline.records.files import RESULTS
from roofline.plan import settings
from roofline.plan import machine_checks
from roofline.run import previous_results, run_lock, sources
from roofline.run.console import Console
from roofline.run.jobs import print_what_can_be_printed
from roofline.plan.targets import build_request, files, timing

DATASHEETS = HERE / "config" / "datasheets.yaml"
ENVIRONMENT = "../../envs/environment.yaml"  # of every rule

print_what_can_be_printed()


def faults_end_the_run(check, *arguments):
    """Return what a check returns; its faults, a line each, end Snakemake before anything runs."""
    try:
        return check(*arguments)
    except (UserError, OSError) as error:
        sys.exit(describe_error(error))


# A module's config is handed over by the workflow that uses it. Otherwise it is read: from the working directory,
# else from next to the Snakefile. Snakemake's own reader overlooks keys that stand twice.
if workflow.modifier.is_main_snakefile():
    CONFIG_FILE, CONFIG_FILES = "config/config.yaml", [*workflow.overwrite_configfiles]
    if not CONFIG_FILES and not Path(CONFIG_FILE).exists():
        CONFIG_FILE = str(HERE / CONFIG_FILE)
    if not CONFIG_FILES or Path(CONFIG_FILE).exists():
        CONFIG_FILES.insert(0, CONFIG_FILE)
    for PATH in CONFIG_FILES:
        faults_end_the_run(settings.read_file, PATH)

    configfile: CONFIG_FILE

elif workflow.modifier.path_modifier.replace_prefix("results/manifest.json") != "results/manifest.json":
    sys.exit("module: prefix and replace_prefix are not supported; results/ is in the working directory")


CHECKED = faults_end_the_run(settings.complete, config)  # imports the user's files
CONFIG, OPERATORS = CHECKED.config, CHECKED.operators
if os.path.exists(sys.executable):  # not yet quoted; Snakemake's jobs take it for a word of the shell, spaces and all
    sys.executable = shlex.quote(sys.executable)
PRESENT = discovery.discover()
if workflow.is_main_process and CONFIG.devices != ["cpu"]:
    if [*PRESENT] == ["cpu"] and (WHY := no_gpu_reason()):
        print(f"no GPU is measured: {WHY}", file=sys.stderr)
    for LOST in list_lost_gpus():
        print(LOST, file=sys.stderr)
PLAN = faults_end_the_run(machine_checks.plan_run, CHECKED, PRESENT)
# A measurement takes 1 of `measuring`. What must not run next to one takes all: device queries, seals, prerequisites.
ALONE = 1000
workflow.register_resource("measuring", ALONE)
# A resource for each lock. Of a GPU there are 2: one job measures, the next imports and waits for the lock itself.
SLOTS = {re.sub(r"\W", "_", name): name for name in [*PLAN.gpu_locks.values(), lock.HOST_PATH_LOCK]}
for SLOT, LOCK in SLOTS.items():
    workflow.register_resource(SLOT, 1 if LOCK == lock.HOST_PATH_LOCK else 2)
# One of each rule, with an operator: an operator that derives from another shares its prerequisite.
PREREQUISITES = {
    operator.prerequisite.rule: (operator.prerequisite, rule)
    for rule, operator in PLAN.timed.items()
    if operator.prerequisite
}.values()


# ---------------------------------------------------------------- what a job takes


def cores_of(wildcards):
    """Return all of Snakemake's cores for a measurement of the CPU, next to which nothing runs, else 1."""
    return workflow.cores if wildcards.device == "cpu" else 1


def level_for(level, wildcards):
    """Return a level, which may be a function of the device."""
    return level(wildcards.device) if callable(level) else level


def takes(name, level, wildcards):
    """Return 1 if a measurement needs this lock, else 0."""
    return int(name in PLAN.locks(wildcards.device, level_for(level, wildcards)))


def slots(level=""):
    """Return the resources of a job that uses a GPU, or the path from the host to one at a level of memory."""
    return {slot: partial(takes, name, level) for slot, name in SLOTS.items()}


def locks_of(level, wildcards):
    """Return the locks that a job's script takes, by which this run's next job, and other runs, wait for it."""
    return " ".join(PLAN.locks(wildcards.device, level_for(level, wildcards)))


def exclusive(level=""):
    """Return the resources of a measurement, by which no other one disturbs it."""
    return {"measuring": 1, "locks": partial(locks_of, level), **slots(level)}


# ---------------------------------------------------------------- what makes a job's results stale


def library(script, *rules):
    """Return a function of wildcards: a rule's script and the files that it and these operators follow from."""

    def list_files(wildcards):
        kind = discovery.kind_from_name(wildcards.device) if wildcards.get("device") else None
        followed = rules or filter(None, [wildcards.get("operator")])
        return sources.list_measuring_files(SCRIPTS / script, kind, tuple(OPERATORS[rule] for rule in followed))

    return list_files


def load_program(level, wildcards):
    """Return the program that puts all GPUs under load, with what it follows from, if a job of a level runs it."""
    loads = PLAN.loads_all(wildcards.device, level)
    return sources.list_measuring_files(SCRIPTS / "load_server.py", "gpu") if loads else []


def identity(level, wildcards):
    """Return the devices that a job measures, at a level of memory if any, with their drivers and libraries."""
    return PLAN.identity(PLAN.measured_together(wildcards.device, level_for(level, wildcards)))


def peak_settings(wildcards):
    """Return the settings of a compute ceiling; of all that stay in registers for the job that measures them all."""
    return PLAN.peak_settings(wildcards.device, wildcards.get("dtype", next(iter(REGISTER_ONLY_DTYPES))))


OUTPUTS = [*PLAN.deliverables(), "results/manifest.json"]
faults_end_the_run(previous_results.require_writable, [*OUTPUTS, "results/previous/of-another-card"])
faults_end_the_run(previous_results.require_this_version, OUTPUTS, RESULTS)
DRY = workflow.output_settings.dryrun
CORRUPT = previous_results.set_aside_corrupt(OUTPUTS, RESULTS, DRY, counters=CONFIG.counters == "required")
if not DRY:
    previous_results.set_aside_other_cards({name: PLAN.present[name] for name in PLAN.devices}, RESULTS)
CONSOLE = Console(workflow, CHECKED, CORRUPT if DRY else [])
CONSOLE.install(logger)
