# What the rules need before anything is planned: the settings, the cells of this machine, and the params of jobs.

import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path

# Relative: Snakemake remembers paths as they are written, and results that were unpacked elsewhere must not seem stale.
HERE = Path(os.path.relpath(str(workflow.current_basedir))).parents[1]
SCRIPTS = HERE / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS.resolve()))

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look for some at the start of every job
os.environ.setdefault("USER", str(os.getuid()))  # Snakemake asks for a name, which a container's user may lack

from snakemake.logging import logger

from roofline.core import levels
from roofline.core.terms import UserError
from roofline.devices import datasheets, discovery
from roofline.devices.gpu.gpu_identity import no_gpu_reason
from roofline.measure import lock, ncu
from roofline.records.files import RESULTS
from roofline.run import console, machine_checks, previous_results, run_lock, settings, sources
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.rule_params import MEASURING_SLOTS, RuleParams, timing
from roofline.run.targets import Cells, build_request, files

DATASHEETS = HERE / "config" / "datasheets.yaml"
ENVIRONMENT = "../../envs/environment.yaml"  # of every rule

print_what_can_be_printed()
logger.addFilter(console.should_show)


def faults_end_the_run(check, *arguments):
    """Return what a check returns; its faults, a line each, end Snakemake before anything is planned."""
    try:
        return check(*arguments)
    except (UserError, OSError) as error:
        sys.exit(str(error))


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
sys.executable = shlex.quote(sys.executable)  # Snakemake's jobs take it for a word of the shell, spaces and all
PRESENT = discovery.discover()
if workflow.is_main_process and [*PRESENT] == ["cpu"] != CONFIG.devices and (WHY := no_gpu_reason()):
    print(f"no GPU is measured: {WHY}", file=sys.stderr)
CELLS = faults_end_the_run(Cells, CHECKED, PRESENT)
PARAMS = RuleParams(CELLS, SCRIPTS, DATASHEETS)
for RESOURCE in PARAMS.limited:  # 2: a GPU's next job starts meanwhile
    workflow.register_resource(RESOURCE, 1 if RESOURCE == lock.HOST_PATH_LOCK else 2)
workflow.register_resource("measuring", MEASURING_SLOTS)
# One of each rule, with an operator: an operator that derives from another shares its prerequisite.
PREREQUISITES = {
    operator.prerequisite.rule: (operator.prerequisite, rule)
    for rule, operator in CELLS.timed.items()
    if operator.prerequisite
}.values()


def cores_of(wildcards):
    """Return all of Snakemake's cores for a measurement of the CPU, next to which nothing runs, else 1."""
    return workflow.cores if PARAMS.used(wildcards) == [lock.HOST_LOCK] else 1


# A function, since Snakemake would take braces in the user's own names for wildcards.
def asked_as_text(wildcards):
    return json.dumps(build_request(CHECKED, CELLS.devices), sort_keys=True)


OUTPUTS = [*CELLS.deliverables(), "results/manifest.json"]
faults_end_the_run(previous_results.require_writable, [*OUTPUTS, "results/previous/of-another-card"])
faults_end_the_run(previous_results.require_this_version, OUTPUTS, RESULTS)
DRY = workflow.output_settings.dryrun
previous_results.set_aside_corrupt(OUTPUTS, RESULTS, DRY, counters=CONFIG.counters == "required")
if not DRY:
    previous_results.set_aside_other_cards({name: CELLS.present[name] for name in CELLS.devices}, RESULTS)
console.remember_start()
