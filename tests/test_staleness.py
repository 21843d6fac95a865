"""What makes each record stale, rule by rule: its params and the files of the library that it follows.

The rules are read as Snakemake reads them, with a card that is made up; test_reruns.py has plans of real runs.
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from snakemake.api import SnakemakeApi
from snakemake.iocontainers import Wildcards
from snakemake.settings.types import OutputSettings, ResourceSettings
from workflow_run import CHECKOUT, TINY, changed

from roofline.devices import datasheets, discovery
from roofline.devices.base import Identity
from roofline.run.sources import MEASURING

LIBRARY = CHECKOUT / "workflow/scripts/roofline"
GIB = 1 << 30
CPU = Identity("cpu", "cpu", "A CPU", "cpu-1", None, 64 * GIB, 48 * GIB, last_level_cache_bytes=8 << 20)
GPU = Identity("gpu0", "gpu", "NVIDIA H200", "GPU-1", "580", 141 * GIB, 140 * GIB, 8 << 20, "9.0", multiprocessors=132)
BASE = changed(
    TINY,
    {
        "devices": ["gpu0", "cpu"],
        "cpu": "all",
        "counters": "off",
        "peak_flops": {"dtypes": ["fp32", "fp16"], "size": 4096},
        "bandwidth": {"levels": ["hbm", "dram", "sweep", "h2d"]},
        "decode_attn": {"dtypes": ["fp32"]},
    },
)
REPORTING = {"roofline", "plot", "manifest"}  # jobs that measure nothing, by a name of ours
FIRST = {"roofline.png": "plot", "manifest.json": "manifest"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="module", autouse=True)
def machine(folder):
    """A folder without results, on a computer with a card."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("roofline.devices.host.memory_available_bytes", lambda: 48 * GIB)
        patch.setattr(datasheets, "load", cache(datasheets.load))
        patch.setattr(discovery, "discover", lambda: {"gpu0": GPU, "cpu": CPU})
        yield


def jobs(**changes) -> dict[str, tuple[set[str], dict]]:
    """The library's files and the params of each job, by its record or its first output."""
    Path("config").mkdir(exist_ok=True)
    Path("config/config.yaml").write_text(yaml.safe_dump(changed(BASE, changes)))
    with SnakemakeApi(OutputSettings(dryrun=True)) as api:
        workflow = api.workflow(ResourceSettings(cores=1), snakefile=CHECKOUT / "Snakefile")._workflow
        found = {}
        for path in workflow.globals["OUTPUTS"]:
            (rule,) = (rule for rule in workflow.rules if rule.is_producer(path))
            wildcards = Wildcards(fromdict=rule.get_wildcards(path))
            output, _ = rule.expand_output(wildcards)
            files = rule.expand_input(wildcards)[0]
            params, _ = rule.expand_params(wildcards, files, output, None)
            name = str(output[0]).removeprefix("results/")
            known = {key: value for key, value in params.items() if not isinstance(value, Path)}
            found[FIRST.get(name, name.removesuffix(".json"))] = ({*map(str, files.get("library", ()))}, known)
        return found


def stale(before: dict, after: dict) -> set[str]:
    """Jobs of their own accord: what follows from their records follows, and predictions list all planned cells."""
    return {name for name, job in after.items() if before.get(name) != job and not name.endswith("/predictions")}


@pytest.fixture(scope="module")
def base(machine):
    return jobs()


def on_both(*cells: str) -> set[str]:
    return {f"{device}/{cell}" for device in ("gpu0", "cpu") for cell in cells}


ATTENTION = ("decode_attn/minigpt/S16_fp32", "decode_attn/minigpt/S32_fp32")
MINE = {"name": "mine", "flops": 1, "memory_bytes": 1, "dtype": "fp32"}
MINIGPT = {"layers": 6, "heads": 8, "head_size": 64}
SETTINGS = {
    "an S": ({"decode_attn": {"seq_lens": [16, 32, 48]}}, on_both("decode_attn/minigpt/S48_fp32")),
    "an S less": ({"decode_attn": {"seq_lens": [16]}}, set()),
    "an S and the iterations of another operator": (
        {"decode_attn": {"seq_lens": [16, 32, 48]}, "row_norm": {"iterations": 11}},
        on_both("decode_attn/minigpt/S48_fp32", "row_norm/fp32"),
    ),
    "iterations": ({"decode_attn": {"iterations": 11}}, on_both(*ATTENTION)),
    "one implementation": ({"decode_attn": {"implementations": ["fused", "numpy"]}}, {f"gpu0/{c}" for c in ATTENTION}),
    "a preset that is not measured": ({"model": {"presets": {"minigpt": MINIGPT, "a": MINIGPT}}}, set()),
    "an operator left out": ({"row_norm": {"enabled": False}}, set()),
    "sustained load": ({"peak_flops": {"sustained_s": 2}}, {"gpu0/peak_flops/fp32", "gpu0/peak_flops/fp16"}),
    "a level": ({"bandwidth": {"levels": ["hbm", "dram", "sweep", "h2d", "d2h"]}}, {"gpu0/bandwidth/d2h"}),
    "an operation of the user's": ({"operations": [MINE]}, {"roofline"}),
    "dots per inch": ({"plot": {"dpi": 80}}, {"plot"}),
    "the price": ({"cost": {"usd_per_hour": 2.5}}, set()),
}


@pytest.mark.parametrize(("changes", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_makes_its_own_jobs_stale(base, changes, expected):
    """Next to the manifest, which holds the settings, and to the table, where dtypes are what was asked for."""
    found = stale(base, jobs(**changes)) - {"manifest"}
    assert found - {"roofline"} == expected - {"roofline"}
    assert "roofline" not in expected or "roofline" in found


@pytest.mark.parametrize(
    "setting, again", [("an S", True), ("an S less", True), ("iterations", False), ("the price", False)]
)
def test_predictions_follow_the_cells_that_are_planned(base, setting, again):
    after = jobs(**SETTINGS[setting][0])
    assert {after[name] != base[name] for name in ("gpu0/predictions", "cpu/predictions")} == {again}


def test_another_driver_makes_stale_what_is_measured_on_the_card(base, monkeypatch):
    monkeypatch.setattr(discovery, "discover", lambda: {"gpu0": replace(GPU, driver="581"), "cpu": CPU})
    assert stale(base, jobs()) == {name for name in base if name.startswith("gpu0/") and not seal(name)}


def seal(name: str) -> bool:
    """Follows from records alone."""
    return name.endswith(("prediction", "predictions"))


# ---------------------------------------------------------------- files


def followers(base: dict, *paths: str) -> set[str]:
    """Jobs with one of these files of the library among their inputs; devices and cells are left out."""
    ends = tuple(f"roofline/{path}" for path in paths)
    names = {name for name, (files, _) in base.items() if any(file.endswith(ends) for file in files)}
    names = {name for name in names if not name.endswith("/predictions")}
    return {name if name in REPORTING else "/".join(part_of_rule(name)) for name in names}


def part_of_rule(name: str) -> Iterable[str]:
    """gpu0/decode_attn/minigpt/S16_fp32: gpu0, decode_attn; a seal of an operator is its own rule."""
    device, rule, *rest = name.split("/")
    return (device, rule, *(["prediction"] if rest == ["prediction"] else []))


OPERATORS = ("peak_flops", "decode_attn", "row_norm", "rmsnorm_matmul")
SEALS = {f"{device}/{rule}/prediction" for device in ("gpu0", "cpu") for rule in OPERATORS}
TIMED = on_both("bandwidth", *OPERATORS) | {"gpu0/instructions"}
FILES = {
    "core/model.py": TIMED | SEALS | on_both("calibration", "device_query", "prediction") | REPORTING,
    "core/formatting.py": REPORTING,
    "devices/cpu/device.py": {name for name in TIMED | SEALS if name[:3] == "cpu"}
    | {"cpu/device_query", "cpu/calibration"},
    "devices/gpu/device.py": {name for name in TIMED | SEALS if name[:3] == "gpu"}
    | {"gpu0/device_query", "gpu0/calibration"},
    "operators/row_norm/operator.py": on_both("row_norm", "row_norm/prediction"),
    "operators/row_norm/kernels/row_norm.cu": {"gpu0/row_norm", "gpu0/row_norm/prediction"},
    "operators/row_norm/about.py": {"roofline"},
    "measure/compute_ceiling.py": on_both("peak_flops"),
    "run/jobs.py": REPORTING,
    "run/manifest.py": {"manifest"},
    "run/settings.py": set(),
    "report/job_lines.py": REPORTING,
    "report/templates/report.css.j2": {"roofline"},
}


@pytest.mark.parametrize(("path", "expected"), FILES.items(), ids=FILES)
def test_an_edited_file_makes_stale_what_follows_it(base, path, expected):
    assert (LIBRARY / path).is_file()
    assert followers(base, path) == expected


def test_what_measures_follows_only_packages_that_measure_and_one_kind_of_device(base):
    for name, (files, _) in base.items():
        if name not in REPORTING:
            below = [Path(file).resolve().relative_to(LIBRARY).parts for file in files]
            assert below and {part[0] for part in below} <= {*MEASURING, "__init__.py"}, name
            if not name.endswith("/prediction") or name.count("/") > 1:
                other = {"gpu0": "cpu", "cpu": "gpu"}[name.split("/")[0]]
                assert ("devices", other) not in {part[:2] for part in below}, name
    assert {file for files, _ in base.values() for file in files if not os.path.isfile(file)} == set()


def test_a_cpu_next_to_a_gpu_measures_what_both_are_compared_by():
    found = jobs(cpu="auto")
    assert found["cpu/bandwidth/dram"][1]["mixes"] == ["read", "copy"]
    assert found["gpu0/bandwidth/hbm"][1]["mixes"] is None
    assert {name for name in found if name.startswith("cpu/") and "prediction" not in name} == {
        "cpu/device_query",
        "cpu/calibration",
        "cpu/peak_flops/fp32",
        "cpu/bandwidth/dram",
        "cpu/decode_attn/minigpt/S16_fp32",
        "cpu/decode_attn/minigpt/S32_fp32",
    }
