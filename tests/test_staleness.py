"""What makes each record stale, rule by rule: its params and the files of the library that it follows.

The rules are read as Snakemake reads them, with a card that is made up; test_reruns.py has plans of real runs.
"""

import os
from dataclasses import replace
from functools import cache, cmp_to_key
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from snakemake.api import SnakemakeApi
from snakemake.iocontainers import Wildcards
from snakemake.settings.types import OutputSettings, ResourceSettings
from workflow_run import CHECKOUT, TINY, changed

from roofline.core.units import GIB
from roofline.devices import datasheets, discovery
from roofline.devices.base import Identity

LIBRARY = CHECKOUT / "workflow/scripts/roofline"
CPU = Identity("cpu", "cpu", "A CPU", "cpu-1", None, 64 * GIB, 48 * GIB, last_level_cache_bytes=8 << 20)
GPU = Identity("gpu0", "gpu", "NVIDIA H200", "GPU-1", "580", 141 * GIB, 140 * GIB, 8 << 20, "9.0", multiprocessors=132)
BASE = changed(
    TINY,
    {
        "devices": ["gpu0", "cpu"],
        "cpu": "all",
        "counters": "off",
        "drawn": 2,
        "peak_flops": {"dtypes": ["fp32", "fp16", "fp64_fma", "fp32_fma"], "size": 4096},
        "bandwidth": {"levels": ["hbm", "dram", "sweep", "h2d"]},
        "decode_attn": {"dtypes": ["fp32"]},
    },
)
REPORTING = {"roofline", "manifest"}  # jobs that measure nothing, by a name of ours


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory):
    """A folder without results, on a computer with a card."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("folder"))
        patch.setattr("roofline.devices.host.memory_available_bytes", lambda: 48 * GIB)
        patch.setattr(datasheets, "read_datasheets", cache(datasheets.read_datasheets))
        patch.setattr(discovery, "discover", lambda: {"gpu0": GPU, "cpu": CPU})
        yield


class Job(NamedTuple):
    files: set[str]  # of the library
    params: dict
    outputs: set[str]


def jobs(config: dict = BASE, **changes) -> dict[str, Job]:
    """By the first output of each."""
    Path("config").mkdir(exist_ok=True)
    Path("config/config.yaml").write_text(yaml.safe_dump(changed(config, changes)))
    with SnakemakeApi(OutputSettings(dryrun=True)) as api:
        workflow = api.workflow(ResourceSettings(cores=1), snakefile=CHECKOUT / "Snakefile")._workflow
        found = {}
        for path in workflow.globals["OUTPUTS"]:
            producers = [rule for rule in workflow.rules if rule.is_producer(path)]
            rule = max(producers, key=cmp_to_key(workflow._ruleorder.compare))
            wildcards = Wildcards(fromdict=rule.get_wildcards(path))
            output, _ = rule.expand_output(wildcards)
            files = rule.expand_input(wildcards)[0]
            params, _ = rule.expand_params(wildcards, files, output, None)
            name = str(output[0]).removeprefix("results/")
            library = {*map(str, files.get("library", ()))}
            found[name.removesuffix(".json")] = Job(library, dict(params.items()), {*map(str, output)})
        return found


def stale(before: dict, after: dict) -> set[str]:
    """Jobs of their own accord: what follows from their records follows, and predictions list all planned cells."""
    both = {*before} & {*after}
    same = {
        name for name in both if before[name][:2] == after[name][:2] and before[name].outputs >= after[name].outputs
    }
    return {name for name in {*after} - same if not name.endswith("/predictions")}


@pytest.fixture(scope="module")
def base(machine):
    return jobs()


def on_both(*cells: str) -> set[str]:
    return {f"{device}/{cell}" for device in ("gpu0", "cpu") for cell in cells}


ATTENTION = ("decode_attn/minigpt/S16_fp32", "decode_attn/minigpt/S32_fp32")
MINE = {"name": "mine", "flops": 1, "memory_bytes": 1, "dtype": "fp32"}
DRAWN_RULES = ("decode_attn", "row_norm", "rmsnorm_matmul")
DRAWN = {f"gpu0/{rule}/drawn" for rule in DRAWN_RULES}
LOADED = {"gpu0/peak_flops/fp32", "gpu0/peak_flops/fp16", "gpu0/bandwidth/hbm"}
MINIGPT = {"layers": 6, "heads": 8, "head_size": 64}
SETTINGS = {
    "an S": ({"decode_attn": {"seq_lens": [16, 32, 48]}}, on_both("decode_attn/minigpt/S48_fp32")),
    "an S less": ({"decode_attn": {"seq_lens": [16]}}, set()),
    "an S and the iterations of another operator": (
        {"decode_attn": {"seq_lens": [16, 32, 48]}, "row_norm": {"iterations": 11}},
        on_both("decode_attn/minigpt/S48_fp32", "row_norm/fp32"),
    ),
    "iterations": ({"decode_attn": {"iterations": 11}}, on_both(*ATTENTION)),
    "one implementation": (
        {"decode_attn": {"implementations": ["fused", "numpy"]}},
        {"gpu0/decode_attn/drawn", *(f"gpu0/{case}" for case in ATTENTION)},
    ),
    "a preset that is not measured": ({"model": {"presets": {"minigpt": MINIGPT, "a": MINIGPT}}}, set()),
    "an operator left out": ({"row_norm": {"enabled": False}}, set()),
    "sustained load": ({"peak_flops": {"sustained_s": 2}}, {*LOADED, "roofline"}),
    "a ceiling": ({"peak_flops": {"dtypes": ["fp64_fma", "fp32_fma", "fp16_fma"]}}, {"gpu0/peak_flops/fp64_fma"}),
    "a level": ({"bandwidth": {"levels": ["hbm", "dram", "sweep", "h2d", "d2h"]}}, {"gpu0/bandwidth/h2d"}),
    "a level alone": ({"bandwidth": {"levels": ["hbm", "dram", "sweep", "h2d", "l1"]}}, {"gpu0/bandwidth/l1"}),
    "the size of transfers": ({"bandwidth": {"transfer_size_mib": 2}}, {"gpu0/bandwidth/h2d"}),
    "the size of arrays": ({"bandwidth": {"size_mib": 99}}, {"gpu0/bandwidth/hbm", "cpu/bandwidth/dram"}),
    "an operation of the user's": ({"operations": [MINE]}, {"roofline"}),
    "dots per inch": ({"plot": {"dpi": 80}}, {"roofline"}),
    "drawn shapes": ({"drawn": 3}, DRAWN),
    "the price": ({"cost": {"usd_per_hour": 2.5}}, set()),
}


@pytest.mark.parametrize(("changes", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_makes_its_own_jobs_stale(base, changes, expected):
    """Next to the manifest, which holds the settings, and to the table, where dtypes are what was asked for."""
    found = stale(base, jobs(**changes)) - {"manifest"}
    assert found - {"roofline"} == expected - {"roofline"}
    assert "roofline" not in expected or "roofline" in found


def test_shapes_are_drawn_on_a_gpu_alone(base):
    assert {name for name in base if "/drawn" in name} == DRAWN
    assert not [name for name in jobs(drawn=0) if "/drawn" in name]


@pytest.mark.parametrize(
    "setting, again", [("an S", True), ("an S less", True), ("iterations", False), ("the price", False)]
)
def test_predictions_follow_the_cells_that_are_planned(base, setting, again):
    after = jobs(**SETTINGS[setting][0])
    assert {after[name] != base[name] for name in ("gpu0/predictions", "cpu/predictions")} == {again}


def test_another_driver_makes_stale_what_is_measured_on_the_card(base, monkeypatch):
    monkeypatch.setattr(discovery, "discover", lambda: {"gpu0": replace(GPU, driver="581"), "cpu": CPU})
    assert stale(base, jobs()) == {name for name in base if name.startswith("gpu0/") and not seal(name)}


def test_another_gpu_next_to_it_makes_a_calibration_stale(base, monkeypatch):
    both = {"gpu0": GPU, "gpu1": replace(GPU, device="gpu1", uuid="GPU-2"), "cpu": CPU}
    monkeypatch.setattr(discovery, "discover", lambda: both)
    found = stale(base, jobs(devices=["gpu0", "gpu1", "cpu"]))
    assert "gpu0/calibration" in found and "cpu/calibration" not in found
    assert "gpu0/calibration" not in stale(base, jobs(devices=["gpu0", "cpu"]))


def test_an_edited_entry_of_the_datasheets_makes_stale_what_follows_the_device_record(base, monkeypatch):
    monkeypatch.setattr(datasheets, "entry_sha256", lambda *_: "edited")
    found = stale(base, jobs())
    assert "gpu0/device_query" in found and not [name for name in found if name.startswith("cpu") or "profiler" in name]


def seal(name: str) -> bool:
    """Follows from records alone."""
    return name.endswith(("prediction", "predictions"))


# ---------------------------------------------------------------- files


def followers(base: dict, *paths: str) -> set[str]:
    """Jobs with one of these files of the library among their inputs; devices and cells are left out."""
    ends = tuple(f"roofline/{path}" for path in paths)
    names = {name for name, job in base.items() if any(file.endswith(ends) for file in job.files)}
    names = {name for name in names if not name.endswith("/predictions")}
    return {name if name in REPORTING or seal(name) else "/".join(name.split("/")[:2]) for name in names}


@pytest.mark.parametrize(("effort", "side"), [("default", 2048), ("thorough", 4096)])
def test_numpy_multiplies_fp64_of_2048_but_for_thorough(effort, side):
    found = jobs(effort=effort, devices=["cpu"], peak_flops={"dtypes": ["fp64"]})
    assert found["cpu/peak_flops/fp64"].params["settings"]["reference_size"] == side


OPERATORS = ("peak_flops", "decode_attn", "row_norm")
SEALS = {f"{device}/{rule}/prediction" for device in ("gpu0", "cpu") for rule in OPERATORS}
SEALS |= {"gpu0/rmsnorm_matmul/prediction"}
TIMED = on_both("bandwidth", *OPERATORS) | {"gpu0/instructions", "gpu0/rmsnorm_matmul"}
QUERIES = on_both("device_query", "calibration")
MEASURING = TIMED | SEALS | QUERIES
ROW_NORM = on_both("row_norm", "row_norm/prediction")
FILES = {
    "core/roofline_model.py": MEASURING | REPORTING,
    "records/base.py": MEASURING | REPORTING,
    "measure/sealing.py": MEASURING | REPORTING,
    "devices/discovery.py": MEASURING | REPORTING,
    "devices/cpu/timed_frame.ll": {name for name in MEASURING if name[:3] == "cpu"} | REPORTING,
    "devices/gpu/kernels/caches.cu": {name for name in MEASURING if name[:3] == "gpu"} | REPORTING,
    "operators/base.py": MEASURING | REPORTING,
    "operators/gemm/cublaslt.py": MEASURING | REPORTING,
    "operators/row_norm/operator.py": ROW_NORM | REPORTING,
    "operators/row_norm/kernels/row_norm.cu": ROW_NORM | REPORTING,
    "operators/row_norm/about.py": REPORTING,
    "run/jobs.py": REPORTING,
    "plan/settings.py": REPORTING,
    "table/rows.py": REPORTING,
    "report/job_lines.py": REPORTING,
    "report/templates/report.css.j2": REPORTING,
}


@pytest.mark.parametrize(("path", "expected"), FILES.items(), ids=FILES)
def test_an_edited_file_makes_stale_what_follows_it(base, path, expected):
    assert (LIBRARY / path).is_file()
    assert followers(base, path) == expected


def test_what_measures_follows_its_script_the_packages_that_measure_and_one_kind_of_device(base):
    for name in base.keys() - REPORTING:
        paths = [Path(file).resolve() for file in base[name].files]
        assert [path.parent.name for path in paths if not path.is_relative_to(LIBRARY)] == ["scripts"], name
        below = [path.relative_to(LIBRARY).parts for path in paths if path.is_relative_to(LIBRARY)]
        assert below and {part[0] for part in below} <= {"core", "records", "devices", "operators", "measure"}, name
        other = {"gpu0": "cpu", "cpu": "gpu"}[name.split("/")[0]]
        assert ("devices", other) not in {part[:2] for part in below}, name
    assert {file for job in base.values() for file in job.files if not os.path.isfile(file)} == set()


def test_a_cpu_next_to_a_gpu_measures_what_both_are_compared_by():
    found = jobs(cpu="auto")
    assert found["cpu/bandwidth/dram"].params["settings"]["mixes"] == ["read", "copy"]
    assert found["gpu0/bandwidth/hbm"].params["settings"]["mixes"] is None
    assert {name for name in found if name.startswith("cpu/") and "prediction" not in name} == {
        "cpu/device_query",
        "cpu/calibration",
        "cpu/peak_flops/fp32",
        "cpu/peak_flops/fp32_fma",
        "cpu/bandwidth/dram",
        "cpu/decode_attn/minigpt/S16_fp32",
        "cpu/decode_attn/minigpt/S32_fp32",
    }
