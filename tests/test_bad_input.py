"""What cannot be done is reported before anything is measured: one line per error, with the key and the value."""

from __future__ import annotations

import json
import re
import shutil
import time

import pytest
from safetensors.numpy import save_file
from workflow_run import Run, tensors

from roofline.core.terms import UserError
from roofline.devices.base import Identity
from roofline.run import machine_checks, previous_results, settings

RECORD = "cpu/decode_attn/minigpt/S16_fp32.json"
WEIGHTS = "checkpoints/minigpt.safetensors"
# What Snakemake itself says of where the configuration came from.
SNAKEMAKES_OWN = re.compile(r"Using workflow specific profile .*|Config file .* is extended by .*|")


def faults(run: Run, *arguments) -> list[str]:
    """What a run said that was refused, after checking that it was refused at once and touched nothing."""
    before, start = run.files(), time.monotonic()
    done = run.snakemake(*arguments)
    assert time.monotonic() - start < 15
    told = done.stdout + done.stderr
    assert done.returncode != 0, told
    assert "Traceback" not in told
    assert run.files() == before
    return [line for line in told.splitlines() if not SNAKEMAKES_OWN.fullmatch(line)]


def assert_lines(found: list[str], *expected: tuple[str, ...]) -> None:
    """One line for each of these, in any order: what it begins with, and what else it names."""
    assert len(found) == len(expected), found
    for key, *named in expected:
        assert any(line.startswith(key) and all(part in line for part in named) for line in found), (key, named, found)


def attention(**fields) -> dict:
    return {"decode_attn": fields}


def preset(**fields) -> dict:
    """The one preset that is measured."""
    return {"model": {"presets": {"minigpt": {"layers": 6, "heads": 8, "head_size": 64, **fields}}}}


# ---------------------------------------------------------------- the configuration


def test_bad_values_end_snakemake_before_anything_is_planned(run):
    run.edit_config(
        {
            "devices": ["gpu7", "cpu"],
            "bandwidth": {"levels": ["d2d"]},
            "model": {"checkpoint": "none.safetensors"},
            **attention(presets=["minigpt", "llama"]),
        }
    )
    assert_lines(
        faults(run),
        ("devices: gpu7 ", "cpu"),
        ("decode_attn.presets: 'llama'", "llama-3-8b"),
        ("model.checkpoint none.safetensors: ",),
        ("bandwidth.levels: cpu ", "d2d", "dram, sweep"),
    )


# ---------------------------------------------------------------- sizes, held against devices that are not here

GIB = 1 << 30
CARD = {"memory_total_bytes": 80 * GIB, "memory_free_bytes": 80 * GIB, "last_level_cache_bytes": 50 << 20}
HOST = {"memory_total_bytes": 8 * GIB, "memory_free_bytes": 8 * GIB, "last_level_cache_bytes": 16 << 20}
CASE = "decode_attn: minigpt fp32 batch"
HELD = {
    "weights that do not fit": (
        preset(head_size=10**6) | attention(implementations=["eager", "numpy"]),
        [f"{CASE} 256, "] * 2,
    ),
    "products that leave multiprocessors idle": ({"peak_flops": {"size": 256}}, ["peak_flops.size: 256 "]),
    "products that do not fit": (
        {"peak_flops": {"size": 40_000, "dtypes": ["fp64", "int8"]}},
        ["peak_flops.size: 40000 "],
    ),
    "arrays that both caches keep": (
        {"bandwidth": {"size_mib": 16}},
        ["bandwidth.size_mib: 16 is too small for gpu0", "bandwidth.size_mib: 16 is too small for cpu"],
    ),
    "small arrays that no level uses": (
        {"bandwidth": {"size_mib": 1, "levels": ["l2", "l1", "shared", "h2d", "d2h", "sweep"]}},
        [],
    ),
    "transfers that do not fit": (
        {"devices": ["gpu0"], "bandwidth": {"transfer_size_mib": 100_000}},
        ["bandwidth.transfer_size_mib: 100000 needs 104,857,600,000 bytes on gpu0"],
    ),
    "a GPU without an implementation": (
        attention(implementations=["numpy"]),
        ["decode_attn.implementations: gpu0 has none of numpy"],
    ),
    "caches that neither memory holds": (
        attention(seq_lens=[1024, 10**8], batch_sizes=[1, 8, 2], dtypes=["fp32"]),
        [f"{CASE} 8, "] * 2,
    ),
}


def held(changes: dict, card: dict = CARD, computer: dict = HOST, multiprocessors: int | None = 132) -> list[str]:
    """The errors of a configuration on a machine with a card."""
    card = Identity("gpu0", "gpu", "A card", "GPU-1", None, **card, multiprocessors=multiprocessors)
    present = {"gpu0": card, "cpu": Identity("cpu", "cpu", "A processor", "cpu-1", None, **computer)}
    try:
        machine_checks.choose_devices(settings.complete(attention(batch_sizes=[1]) | changes), present)
    except UserError as faults:
        return faults.lines
    return []


@pytest.mark.parametrize(("changes", "expected"), HELD.values(), ids=HELD.keys())
def test_sizes_are_held_against_every_device(changes, expected):
    assert_lines(held(changes), *((line,) for line in expected))


def test_without_a_size_the_least_arrays_must_fit():
    assert held({}) == []
    lines = held({}, computer=HOST | {"last_level_cache_bytes": 2 * GIB})
    (line,) = (line for line in lines if line.startswith("bandwidth.size_mib: null "))
    assert "12,884,901,888 bytes on cpu" in line and "8,589,934,592" in line


# ---------------------------------------------------------------- surroundings


def test_a_terminal_without_the_characters_gets_question_marks(run):
    done = run.python("workflow/commands/run.py", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "picture: results/roofline.png ? in words" in done.stdout, done.stderr


def test_a_file_of_the_checkout_shadows_no_package(run):
    (run.root / "numpy.py").write_text("raise SystemExit('shadowed')\n")
    (run.results / "roofline.png").unlink()
    done = run.make()
    assert done.returncode == 0 and "shadowed" not in done.stdout + done.stderr


# ---------------------------------------------------------------- checkpoints


def test_a_valid_checkpoint_is_taken_and_recorded_as_not_generated(run):
    save_file(tensors(run), run.root / "own.safetensors")
    run.edit_config(model={"checkpoint": "own.safetensors"})
    run.finish(f"results/{RECORD}")
    (weights,) = run.read(RECORD)["data"]
    assert (weights["path"], weights["generated"]) == ("own.safetensors", False)
    assert all(one["check"]["error"] <= one["check"]["tolerance"] for one in run.read(RECORD)["measurements"])


# ---------------------------------------------------------------- results that were there before


def test_results_that_cannot_be_written(run):
    shutil.rmtree(run.root / "logs")
    (run.root / "logs").symlink_to("nowhere/at/all")
    shutil.rmtree(run.results / "cpu/peak_flops")
    (run.results / "cpu/peak_flops").write_text("in the way")
    (run.results / "roofline.png").unlink()
    (run.results / "roofline.png").mkdir()
    found = {line.partition(" ")[0] for line in faults(run)}
    assert found == {"logs", "results/cpu/peak_flops", "results/roofline.png"}


def test_a_dry_run_is_a_line_for_each_job_and_changes_nothing(run):
    assert run.command("run", "--dry-run").stdout == "nothing to be done: every result is up to date\n"
    (run.results / "cpu/bandwidth/dram.json").write_text("{")
    before = run.files()
    done = run.command("run", "--dry-run")
    assert (done.returncode, run.files()) == (0, before) and not (run.results / "previous").exists()
    assert "results/cpu/bandwidth/dram.json is corrupt" in done.stdout
    (run.results / "cpu/bandwidth/dram.json").unlink()
    *jobs, total = run.command("run", "--dry-run").stdout.splitlines()
    assert jobs[0].startswith("cpu/bandwidth/dram.json: ") and total.startswith(f"{len(jobs)} jobs: 1 bandwidth, ")


def test_corrupt_records_are_named_set_aside_and_measured_again_and_the_rest_kept(run):
    truncated, foreign = "cpu/peak_flops/fp32.json", RECORD
    (run.results / truncated).write_bytes((run.results / truncated).read_bytes()[:100])
    (run.results / foreign).write_text(json.dumps(run.read(foreign) | {"unheard_of": 1}))
    before = run.files()
    told = run.finish()
    (aside,) = (run.results / "previous").iterdir()
    after = run.files()
    for path in (truncated, foreign):
        assert f"{aside.relative_to(run.root)}/{path}" in told
        assert after[f"previous/{aside.name}/{path}"] == before[path]
    measured = {
        path for path in before if path.count("/") > 1 or path.endswith(("device_query.json", "prediction.json"))
    }
    rest = measured - {truncated, foreign} | {WEIGHTS}
    assert {path: after[path] for path in rest} == {path: before[path] for path in rest}
    assert not run.planned()


def test_results_of_another_version_are_refused_in_one_line(tmp_path):
    path = tmp_path / "results/cpu/device_query.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"kind": "device_query", "schema_version": 6}')
    with pytest.raises(UserError) as refused:
        previous_results.require_this_version([str(path)], tmp_path / "results")
    (line,) = refused.value.lines
    assert re.search(r"version 6\b.*version 7\b.*: mv .*results .*results-version-6$", line)
