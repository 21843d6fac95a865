# What the rules ask before anything runs: the settings, the devices, and which files a job depends on.

import json
import os
import shlex
import sys
from pathlib import Path

# Relative to the working directory: Snakemake remembers inputs and params as they are written, and results that
# were unpacked elsewhere must not seem stale.
HERE = Path(os.path.relpath(workflow.basedir))
SCRIPTS = HERE / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS.absolute()))
sys.executable = shlex.quote(sys.executable)  # Snakemake's jobs take it for a word of the shell, spaces and all

from snakemake.logging import logger

from roofline import datasheets, devices, keeping, screen, settings, sources
from roofline.operators.decode_attention import implementations_of

CONFIG_FILE = "config/config.yaml"
DATASHEETS = HERE / "config" / "datasheets.yaml"
# Not for acceptance to look at: made from it, or, as the picture's pixels, no matter of content.
MADE_LATER = (
    "results/acceptance.json",
    "results/summary.html",
    "results/roofline.png",
    "results/attention.png",
    "results/sweep.png",
    "results/load.png",
)
SCHEMA = HERE / "workflow" / "schemas" / "config.schema.yaml"
RESULTS = Path("results")

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
logger.addFilter(lambda said: not str(said.msg).startswith(CHATTER))


def faults_end_the_run(check, *arguments):
    """What a check returns; its faults, a line each, end Snakemake before anything is planned."""
    try:
        return check(*arguments)
    except settings.Faults as faults:
        sys.exit("\n".join(faults.lines))


# Snakemake's own reader overlooks keys that stand twice; ours names every fault and its line.
CONFIG_FILES = [*workflow.overwrite_configfiles]
if not CONFIG_FILES or Path(CONFIG_FILE).exists():
    CONFIG_FILES.insert(0, CONFIG_FILE)
faults_end_the_run(settings.require_readable, CONFIG_FILES)


configfile: CONFIG_FILE


SETTINGS = faults_end_the_run(settings.complete, config, SCHEMA)
PRESENT = devices.discover()
DEVICES = faults_end_the_run(settings.choose_devices, SETTINGS, PRESENT)


def library(script, measures=False):
    """The library modules that a script uses, as an input: an edited one makes its results stale."""

    def files(wildcards):
        kind = devices.kind_of(wildcards.device) if measures else None
        return sources.library_files(SCRIPTS / f"{script}.py", kind)

    return files


def identity(wildcards):
    return PRESENT[wildcards.device].fingerprint()


def software(wildcards):
    return PRESENT[wildcards.device].software_versions()


def datasheet(wildcards):
    """The matched entry alone, so that a card added to the file makes no other card's results stale."""
    present = PRESENT[wildcards.device]
    if present.kind == "cpu":
        return "formula"
    return datasheets.entry_fingerprint(datasheets.load(DATASHEETS), present.name, present.compute_capability)


def setting(*keys):
    """One value of the settings, as `params:` wants it: a scalar or a list."""
    value = SETTINGS
    for key in keys:
        value = value[key]
    return value


def of_levels(key, levels):
    """A setting is a param of the levels that use it: no other level's record goes stale with it."""

    def value(wildcards):
        return setting("bandwidth", key) if wildcards.level in levels else None

    return value


def sustained_s(wildcards):
    """A param of the peaks that are put under sustained load: products on a GPU."""
    loaded = devices.kind_of(wildcards.device) == "gpu" and not wildcards.dtype.endswith("_fma")
    return setting("peak_flops", "sustained_s") if loaded else None


def preset(key):
    return lambda wildcards: SETTINGS["model"]["presets"][wildcards.preset].get(key)


def implementations(wildcards):
    """Those of the settings that a device has: another device's implementation makes nothing of this one stale."""
    return implementations_of(devices.kind_of(wildcards.device), setting("decode_attn", "implementations"))


def weights(wildcards):
    return SETTINGS["model"]["checkpoint"] or f"results/checkpoints/{wildcards.preset}.safetensors"


def device_records():
    return expand("results/{device}/device_query.json", device=DEVICES)


def seals():
    return expand("results/{device}/prediction.json", device=DEVICES)


def peak_records(of=DEVICES):
    return expand("results/{device}/peak_flops/{dtype}.json", device=of, dtype=setting("peak_flops", "dtypes"))


def lacking():
    """(device, ceiling, why) of the compute ceilings that a device is known to lack: one job says so of all."""
    return [
        (device, dtype, reason)
        for device in DEVICES
        for dtype in setting("peak_flops", "dtypes")
        if (reason := devices.module_of(PRESENT[device].kind).unsupported(PRESENT[device], dtype))
    ]


def lacking_records():
    return [f"results/{device}/peak_flops/{dtype}.json" for device, dtype, _ in lacking()]


def bandwidth_records(of=DEVICES):
    wanted = setting("bandwidth", "levels")
    return [
        f"results/{device}/bandwidth/{level}.json"
        for device in of
        for level in devices.memory_levels(device)
        if level in wanted
    ]


def attention_records():
    return expand(
        "results/{device}/decode_attn/{preset}/S{seq_len}_{dtype}.json",
        device=DEVICES,
        preset=setting("decode_attn", "presets"),
        seq_len=setting("decode_attn", "seq_lens"),
        dtype=setting("decode_attn", "dtypes"),
    )


def records():
    """Every record that a measuring job writes."""
    return device_records() + peak_records() + bandwidth_records() + attention_records()


def deliverables():
    """Everything but the manifest, which holds a checksum of each. A deleted one is made again."""
    return (
        records()
        + seals()
        + expand("results/{device}/{what}.json", device=DEVICES, what=["peak_flops", "bandwidth"])
        + ["results/roofline.json", "results/roofline.png", "results/roofline.svg", "results/interpretation.md"]
        + ["results/verification.json", "results/verification.md"]
        + ["results/attention.png", "results/sweep.png", "results/load.png"]
        + ["results/acceptance.json", "results/summary.html"]
    )


OUTPUTS = [*deliverables(), "results/manifest.json"]
faults_end_the_run(keeping.require_writable, [*OUTPUTS, "results/previous/of-another-card"])
keeping.set_aside_corrupt(OUTPUTS, RESULTS)
keeping.set_aside_cards_that_seem_todays({name: PRESENT[name] for name in DEVICES}, RESULTS)
screen.remember_start()
