# What the rules ask before anything runs: the settings, the devices, and which files a job depends on.

import inspect
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

# Relative to the working directory: Snakemake remembers inputs and params as they are written, and results that
# were unpacked elsewhere must not seem stale.
HERE = Path(os.path.relpath(str(workflow.current_basedir))).parents[1]
SCRIPTS = HERE / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS.resolve()))

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look for some at the start of every job

from snakemake.logging import logger

from roofline import devices
from roofline.devices import datasheets
from roofline.measure import lock, nsight_compute
from roofline.records import cards
from roofline.run import cells, console, previous_results, run_lock, settings, sources
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS

DATASHEETS = HERE / "config" / "datasheets.yaml"
CEILINGS = "|".join(datasheets.CEILINGS)
ENVIRONMENT = "../../envs/environment.yaml"  # of every rule

# What `quiet` leaves of Snakemake's talk between the jobs' own lines; warnings and errors are never among it.
CHATTER = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Using shell",
    "Conda environments: ignored",
    "Select jobs to execute",
    "Execute ",
    "Complete log",
    "Elapsed time",
)
print_what_can_be_printed()
logger.addFilter(lambda said: not str(said.msg).startswith(CHATTER) and console.is_passed_on(str(said.msg)))


def faults_end_the_run(check, *arguments):
    """What a check returns; its faults, a line each, end Snakemake before anything is planned."""
    try:
        return check(*arguments)
    except settings.Faults as faults:
        sys.exit("\n".join(faults.lines))
    except OSError as error:
        sys.exit(str(error))


# A module's config is handed over by the workflow that uses it. Otherwise it is read: from the working directory,
# else from beside the Snakefile. Snakemake's own reader overlooks keys that stand twice; ours names every fault.
if workflow.modifier.is_main_snakefile():
    CONFIG_FILE, CONFIG_FILES = "config/config.yaml", [*workflow.overwrite_configfiles]
    if not CONFIG_FILES and not Path(CONFIG_FILE).exists():
        CONFIG_FILE = str(HERE / CONFIG_FILE)
    if not CONFIG_FILES or Path(CONFIG_FILE).exists():
        CONFIG_FILES.insert(0, CONFIG_FILE)
    faults_end_the_run(settings.require_readable, CONFIG_FILES)

    configfile: CONFIG_FILE


CHECKED = faults_end_the_run(settings.complete, config)  # imports the user's files
sys.executable = shlex.quote(sys.executable)  # Snakemake's jobs take it for a word of the shell, spaces and all
CONFIG, OPERATORS = CHECKED.config, CHECKED.operators
PRESENT = devices.discover()
DEVICES = faults_end_the_run(settings.choose_devices, CHECKED, PRESENT)
# Operators with rules of their own, and their jobs by case, on the devices that have an implementation.
TIMED = {rule: operator for rule, operator in OPERATORS.items() if not operator.measured_with_ceilings}
JOBS = {rule: {job.path: job for job in operator.jobs(CONFIG)} for rule, operator in TIMED.items()}
ON = {rule: cells.devices_of(CHECKED, operator, DEVICES) for rule, operator in TIMED.items()}
# One for each rule: an operator that derives from another shares its prerequisite.
WITH_PREREQUISITE = {one.prerequisite.rule: rule for rule, one in TIMED.items() if one.prerequisite}.values()
# Nsight Compute, where counters are wanted; the jobs whose counters are read, by operator and case.
NCU = faults_end_the_run(settings.profiler, CONFIG)
COUNTED_ON = [device for device in DEVICES if PRESENT[device].kind == "gpu" and CONFIG.counters != "off"]
COUNTED = [
    (rule, job)
    for rule, operator in OPERATORS.items()
    if NCU and (rule not in ON or not set(COUNTED_ON).isdisjoint(ON[rule]))
    for job in {job.path: job for job in operator.profiled(CONFIG)}.values()
]
PICTURES = {one.picture: one.name for rule, one in OPERATORS.items() if rule not in ON or ON[rule]}
CARD_OF = {name: lock.of_gpu(one.uuid) for name, one in PRESENT.items() if name != "cpu"}
KNOWN_CARDS = [
    os.path.relpath(path)
    for path in {cards.path_of(PRESENT[device].name) for device in DEVICES if PRESENT[device].kind == "gpu"}
    if path.exists()
]


def library(script, measures=False, operators=None, more=()):
    """The library's files that a script follows from, as an input: an edited one makes its results stale."""

    def files(wildcards):
        kind = devices.kind_of(wildcards.device) if measures else None
        own = getattr(wildcards, "operator", None)
        named = operators or ([own] if own else [])
        return sources.library_files(SCRIPTS / f"{script}.py", kind, [OPERATORS[name] for name in named], more)

    return files


def measured_on(wildcards):
    """The device of a job; of a level between two GPUs both."""
    peer = devices.peer_of(wildcards.get("level", ""))
    return [wildcards.device, peer] if peer else [wildcards.device]


def identity(wildcards):
    return " and ".join(PRESENT[device].fingerprint() for device in measured_on(wildcards))


def software(wildcards):
    return PRESENT[wildcards.device].software_versions()


def datasheet(wildcards):
    """The matched entry alone, so that a card added to the file makes no other card's results stale."""
    present = PRESENT[wildcards.device]
    if present.kind == "cpu":
        return "formula"
    return datasheets.entry_fingerprint(datasheets.load(DATASHEETS), present.name, present.compute_capability)


def used(wildcards):
    """What a measurement uses that others may not use meanwhile, by the names of roofline.measure.lock."""
    if devices.kind_of(wildcards.device) == "cpu":
        return [lock.HOST]
    cards = [CARD_OF[device] for device in measured_on(wildcards)]
    return cards + ([lock.HOST_PATH] if wildcards.get("level") in settings.TRANSFERS else [])


def uses(wildcards):
    return " ".join(used(wildcards))


def whether_used(name):
    return lambda wildcards: int(name in used(wildcards))


def cores_of(wildcards):
    """All of Snakemake's cores for a measurement of the CPU, beside which nothing runs."""
    return workflow.cores if used(wildcards) == [lock.HOST] else 1


# So that Snakemake starts no job that would only wait for a lock.
RESOURCES = {re.sub(r"\W", "_", name): whether_used(name) for name in {*CARD_OF.values(), lock.HOST_PATH}}
for RESOURCE in RESOURCES:
    workflow.register_resource(RESOURCE, 1)


def of_levels(key, levels):
    """A setting is a param of the levels that use it: no other level's record goes stale with it."""

    def value(wildcards):
        return getattr(CONFIG.bandwidth, key) if devices.level_of(wildcards.level) in levels else None

    return value


def sustained_s(wildcards):
    """A param of the peaks that are put under sustained load: products on a GPU."""
    loaded = devices.kind_of(wildcards.device) == "gpu" and not wildcards.dtype.endswith("_fma")
    return CONFIG.peak_flops.sustained_s if loaded else None


def own_file(rule):
    """The user's file that an operator is from, in a list; none for the library's."""
    return [OPERATORS[rule].path] if OPERATORS[rule].path else []


def job_of(rule):
    """A job's cases as text: a change to them is a change to its record alone."""
    return lambda wildcards: JOBS[rule][wildcards.case].to_json()


def jobs_of(wildcards):
    """All jobs of an operator as text."""
    return json.dumps([job.to_json() for job in JOBS[wildcards.operator].values()])


def files_of(rule):
    return lambda wildcards: list(JOBS[rule][wildcards.case].files)


def implementations_of(rule):
    """Those that the settings name and a device has: another device's makes nothing of this one stale."""

    def names(wildcards):
        wanted = getattr(CONFIG, rule).implementations
        return [one.name for one in OPERATORS[rule].implementations_on(devices.kind_of(wildcards.device), wanted)]

    return names


def counted_task(rule, job):
    """As text, what run/profiled.py takes."""
    cold = rule in TIMED and getattr(CONFIG, rule).cache == "cold"
    task = {"operator": rule, "operators": own_file(rule), "case": job.path, "job": job.to_json(), "cold": cold}
    return json.dumps(task)


def source_of(function):
    return Path(inspect.getfile(function))


def prerequisite_values(rule):
    """What a prerequisite is made from, as text."""

    def values(wildcards):
        return json.dumps(OPERATORS[rule].prerequisite.params(CONFIG, wildcards.name), sort_keys=True)

    return values


# Functions, since Snakemake would take braces in the user's own names for wildcards.
def asked(wildcards):
    return json.dumps(settings.asked(CHECKED, DEVICES), sort_keys=True)


def complete_settings(wildcards):
    """Everything that a result follows from."""
    return json.dumps(CHECKED.config.model_dump(), sort_keys=True)


def device_records():
    return expand("results/{device}/device_query.json", device=DEVICES)


def seals():
    found = expand("results/{device}/prediction.json", device=DEVICES)
    found += expand("results/{device}/calibration.json", device=DEVICES)
    found += expand("results/{device}/peak_flops/prediction.json", device=DEVICES)
    return found + [f"results/{device}/{rule}/prediction.json" for rule in TIMED for device in ON[rule]]


def files_of_cells(found):
    return [f"results/{cell}.json" for cell in found]


def peak_records():
    return files_of_cells(cells.peaks(CHECKED, PRESENT, DEVICES))


def bandwidth_records():
    return files_of_cells(cells.bandwidths(CHECKED, DEVICES))


def instruction_records():
    return files_of_cells(cells.instructions(CHECKED, DEVICES))


def instruction_pictures():
    return ["results/instruction_roofline.png"] if instruction_records() else []


def operator_records():
    return files_of_cells(cells.operators(CHECKED, DEVICES))


def require_counters():
    """Before anything is measured: where counters are required, one kernel is counted on every card. Raises Faults."""
    if CONFIG.counters == "required":
        settings.require_counters(NCU, COUNTED_ON)


def counter_records():
    """Whether counters may be read; and of which jobs they are, where there is a profiler."""
    found = expand("results/{device}/profiler.json", device=COUNTED_ON)
    return found + [
        f"results/{device}/counters/{rule}/{job.path}.json" for device in COUNTED_ON for rule, job in COUNTED
    ]


def own_operator_records():
    """What readers see of each operator of the user's own."""
    return [f"results/operators/{rule}.json" for rule in TIMED if OPERATORS[rule].path and ON[rule]]


def records():
    """Everything that what follows is made from."""
    measured = peak_records() + bandwidth_records() + instruction_records() + operator_records()
    return device_records() + seals() + measured + counter_records() + own_operator_records()


def deliverables():
    """Everything but the manifest, which holds a checksum of each. A deleted one is made again."""
    return (
        records()
        + ["results/roofline.json", "results/roofline.png", "results/roofline.svg", "results/interpretation.md"]
        + ["results/verification.md", "results/sweep.png", "results/load.png"]
        + instruction_pictures()
        + expand("results/{picture}.png", picture=PICTURES)
        + ["results/known_cards.json", "results/acceptance.json", "results/report.html", "results/ROOFLINE.md"]
    )


OUTPUTS = [*deliverables(), "results/manifest.json"]
faults_end_the_run(previous_results.require_writable, [*OUTPUTS, "results/previous/of-another-card"])
faults_end_the_run(previous_results.require_this_version, OUTPUTS, RESULTS)
previous_results.set_aside_corrupt(
    OUTPUTS, RESULTS, dry=workflow.output_settings.dryrun, counters=CONFIG.counters == "required"
)
if not workflow.output_settings.dryrun:
    previous_results.set_aside_other_cards({name: PRESENT[name] for name in DEVICES}, RESULTS)
console.remember_start()
