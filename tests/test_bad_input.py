"""What cannot be done is told before anything is measured: a line a fault, that names it and what is allowed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from safetensors.numpy import save_file
from workflow_run import TINY, Run, changed, tensors

from roofline.devices import Identity
from roofline.devices.cpu import identity as cpu
from roofline.run import previous_results, settings

RECORD = "cpu/decode_attn/minigpt/S16_fp32.json"
WEIGHTS = "checkpoints/minigpt.safetensors"
NUMBER = "a number (write 1.0e+9, not 1e9)"
PRESETS = "minigpt, gpt2, llama-3-8b"
KEYS = "devices, cpu, effort, operators, counters, peak_flops, bandwidth, decode_attn, model, "
KEYS += "rmsnorm_matmul, row_norm, operations, plot, cost"
# What Snakemake itself says of where the configuration came from.
SNAKEMAKES_OWN = re.compile(r"Using workflow specific profile .*|Config file .* is extended by .*|")


def faults(run: Run, *arguments) -> list[str]:
    """What a run said that was refused, after checking that it was refused at once and touched nothing."""
    before, start = run.files(), time.monotonic()
    done = run.snakemake(*arguments)
    assert time.monotonic() - start < 15
    told = done.stdout + done.stderr
    assert done.returncode != 0, told
    assert "Traceback" not in told and "schema" not in told
    assert run.files() == before
    return [line for line in told.splitlines() if not SNAKEMAKES_OWN.fullmatch(line)]


def lines_of(folder: Path, text: str | bytes) -> list[str]:
    """What is wrong with a config, without Snakemake around the checks."""
    path = folder / "config/config.yaml"
    path.parent.mkdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with contextlib.chdir(folder):
        try:
            settings.require_readable(["config/config.yaml"])
            checked = settings.complete(settings.read_file("config/config.yaml"))
            settings.choose_devices(checked, {"cpu": cpu.discover()[0]})
        except settings.Faults as faults:
            return faults.lines
    return []


def assert_lines(found: list[str], expected: list[str]) -> None:
    """Compare lines in any order; an ellipsis stands for what differs from machine to machine."""
    patterns = [".*".join(map(re.escape, line.split("…"))) for line in expected]
    alike = len(found) == len(expected) and all(any(re.fullmatch(p, line) for line in found) for p in patterns)
    assert alike, "\n".join(["said:", *found, "expected:", *expected])


def attention(**fields) -> dict:
    return {"decode_attn": fields}


def preset(**fields) -> dict:
    """The one preset that is measured."""
    return {"model": {"presets": {"minigpt": {"layers": 6, "heads": 8, "head_size": 64, **fields}}}}


# ---------------------------------------------------------------- values

WHOLE = "a whole number from 1"
BUDGET = f"{NUMBER} from 1e-09 to 100000, or null"
RULES = ("bandwidth", "decode_attn", "peak_flops", "rmsnorm_matmul", "row_norm")
TEXT_HINT = "(without quotes; within the braces or brackets of --config all is text: use --configfile)"
VALUES = {
    "weights that do not fit": (
        preset(head_size=10**6) | attention(seq_lens=[16]),
        [
            "model.presets.minigpt: weights of a layer need 1,024,000,000,000,000 bytes of memory and disk, "
            "and … are free",
        ],
    ),
    "no time at all": (
        {rule: {"time_budget_s": 0} for rule in RULES},
        [f"{rule}.time_budget_s: 0; allowed: {BUDGET}" for rule in RULES],
    ),
    "a section of no operator, and text for a truth": (
        {"gelu": {"sizes": [1024]}, "row_norm": {"enabled": "perhaps"}},
        [
            "gelu: unknown key; no operator of the library; a file of your own is listed in "
            f"operators: [examples/gelu.py]; allowed: {KEYS}",
            "row_norm.enabled: 'perhaps'; allowed: true or false",
        ],
    ),
    "presets of one's own, and one unknown": (
        preset() | attention(presets=["minigpt", "gpt2"]),
        ["decode_attn.presets: 'gpt2' is unknown; allowed: minigpt (model.presets)"],
    ),
    "heads that cannot share the K/V heads": (
        preset(kv_heads=3),
        [
            "model.presets.minigpt: 8 heads cannot share 3 K/V heads evenly; allowed: kv_heads that divide heads",
        ],
    ),
    "K/V heads that are no number of heads": (
        preset(kv_heads=0),
        [f"model.presets.minigpt.kv_heads: 0; allowed: {WHOLE}, or null"],
    ),
    "a preset without its keys": (
        {"model": {"presets": {"minigpt": {"heads": 8}}}},
        ["model.presets.minigpt: layers is missing", "model.presets.minigpt: head_size is missing"],
    ),
    "several things that this machine cannot do": (
        {
            "devices": ["gpu7", "cpu"],
            "bandwidth": {"levels": ["d2d"]},
            "model": {"checkpoint": "none.safetensors"},
            **attention(presets=["minigpt", "llama"]),
        },
        [
            "devices: gpu7 is not on this machine; here: cpu",
            f"decode_attn.presets: 'llama' is unknown; allowed: {PRESETS} (model.presets)",
            "model.checkpoint none.safetensors: no such file",
            "bandwidth.levels: cpu has none of d2d; it has dram, sweep",
        ],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), VALUES.values(), ids=VALUES.keys())
def test_a_bad_value_is_told_in_a_line(tmp_path, changes, expected):
    assert_lines(lines_of(tmp_path, yaml.safe_dump(changed(TINY, changes))), expected)


def test_bad_values_end_snakemake_before_anything_is_planned(run):
    changes, expected = VALUES["several things that this machine cannot do"]
    run.edit_config(changes)
    assert_lines(faults(run), expected)


# ---------------------------------------------------------------- sizes, held against devices that are not here

GIB = 1 << 30
CARD = {"memory_total_bytes": 80 * GIB, "memory_free_bytes": 80 * GIB, "last_level_cache_bytes": 50 << 20}
HOST = {"memory_total_bytes": 8 * GIB, "memory_free_bytes": 8 * GIB, "last_level_cache_bytes": 16 << 20}
CACHE = "its last-level cache keeps"
SIZES = {
    "products that leave multiprocessors idle": (
        {"peak_flops": {"size": 256}},
        ["peak_flops.size: 256 is too small to fill gpu0: 132 multiprocessors want 1536 or more"],
    ),
    "products whose call takes longer": (
        {"devices": ["cpu"], "peak_flops": {"size": 255}},
        [
            "peak_flops.size: 255 is too small for cpu: so small a product stays under the peak; allowed: 256 or more",
        ],
    ),
    "products that do not fit": (
        {"peak_flops": {"size": 40_000, "dtypes": ["fp64", "int8"]}},
        ["peak_flops.size: 40000 needs … bytes on cpu, and 8,589,934,592 are free there"],
    ),
    "arrays that both caches keep": (
        {"bandwidth": {"size_mib": 16}},
        [
            f"bandwidth.size_mib: 16 is too small for gpu0: {CACHE} 50 MiB, "
            "and an array of twice that is needed; allowed: 100 or more, or null",
            f"bandwidth.size_mib: 16 is too small for cpu: {CACHE} 16 MiB, "
            "and an array of twice that is needed; allowed: 32 or more, or null",
        ],
    ),
    "the smallest arrays": ({"bandwidth": {"size_mib": 100}}, []),
    "small arrays that no level uses": (
        {"bandwidth": {"size_mib": 1, "levels": ["l2", "l1", "shared", "h2d", "d2h", "sweep"]}},
        [],
    ),
    "transfers that do not fit": (
        {"devices": ["gpu0"], "bandwidth": {"transfer_size_mib": 100_000}},
        ["bandwidth.transfer_size_mib: 100000 needs 104,857,600,000 bytes on gpu0, and … are free there"],
    ),
}


def attending(seq_len: int, batch: int, device: str, free: int) -> str:
    what = f"decode_attn: minigpt fp… batch {batch}, …seq_len {seq_len}"
    return f"{what} needs … bytes on {device}, and {free:,} are free there"


ATTENDING = {
    "all that each device has": (attention(implementations=None), []),
    "a GPU without an implementation": (
        attention(implementations=["numpy"]),
        ["decode_attn.implementations: gpu0 has none of numpy; it has eager, fused, fused_graph"],
    ),
    "an implementation of the CPU's where a GPU alone is chosen": (
        {"devices": ["gpu0"], **attention(implementations=["numpy", "eager"])},
        ["decode_attn.implementations: no numpy on gpu0; allowed: eager, fused, fused_graph, or null for all of them"],
    ),
    "a head size that no kernel is made for": (
        preset(head_size=96),
        [
            "model.presets.minigpt.head_size: 96 is not supported by fused, fused_graph; allowed: 64, 128, "
            "or decode_attn.implementations without them"
        ],
    ),
    "any head size without the kernel": ({**preset(head_size=96), **attention(implementations=["eager", "numpy"])}, []),
    "any head size on the CPU alone": ({**preset(head_size=96), "devices": ["cpu"]}, []),
    "caches that neither memory holds": (
        attention(seq_lens=[1024, 10**8], batch_sizes=[1, 8, 2]),
        [attending(10**8, 8, "gpu0", 80 * GIB), attending(10**8, 8, "cpu", 8 * GIB)],
    ),
    "caches that the card holds and the computer does not": (
        attention(seq_lens=[16_384], dtypes=["fp32"], batch_sizes=[1, 256]),
        [attending(16_384, 256, "cpu", 8 * GIB)],
    ),
    "the same of fewer K/V heads, which both hold": (
        {**preset(kv_heads=1), **attention(seq_lens=[16_384], dtypes=["fp32"], batch_sizes=[1, 256])},
        [],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), ATTENDING.values(), ids=ATTENDING.keys())
def test_attention_is_held_against_every_device(changes, expected):
    assert_lines(held(changes), expected)


@pytest.mark.parametrize(("kv_heads", "heads"), [(8, 8), (2, 8), (8, 32)])
@pytest.mark.parametrize(("dtype", "item_bytes"), [("fp32", 4), ("bf16", 2)])
def test_a_cache_needs_its_keys_and_values_at_least_and_not_much_more(dtype, item_bytes, kv_heads, heads):
    """Scores are as many as query heads, and numbers of two bytes may be widened."""
    changes = {
        "devices": ["gpu0"],
        **preset(heads=heads, kv_heads=kv_heads, head_size=128),
        **attention(seq_lens=[10**7], batch_sizes=[1, 64], dtypes=[dtype]),
    }
    (line,) = held(changes)
    needed = int(re.search(r"needs ([\d,]+) bytes", line)[1].replace(",", ""))
    moved = 2 * 64 * kv_heads * 10**7 * 128 * item_bytes  # K and V of a step
    assert moved < needed < 3.1 * moved + 12 * 64 * heads * 10**7 + GIB


def held(changes: dict, card: dict = CARD, computer: dict = HOST, multiprocessors: int | None = 132) -> list[str]:
    """The faults of a configuration on a machine with a card."""
    card = Identity("gpu0", "gpu", "A card", "GPU-1", None, **card, multiprocessors=multiprocessors)
    present = {"gpu0": card, "cpu": Identity("cpu", "cpu", "A processor", "cpu-1", None, **computer)}
    try:
        settings.choose_devices(settings.complete(attention(batch_sizes=[1]) | changes), present)
    except settings.Faults as faults:
        return faults.lines
    return []


@pytest.mark.parametrize(("changes", "expected"), SIZES.values(), ids=SIZES.keys())
def test_a_size_is_held_against_every_device(changes, expected):
    assert_lines(held(changes), expected)


def test_what_a_device_does_not_tell_is_not_checked():
    changes = {"peak_flops": {"size": 256}, "bandwidth": {"size_mib": 1}}
    silent = {"last_level_cache_bytes": 0}
    assert held(changes, CARD | silent, HOST | silent, multiprocessors=None) == []


def test_without_a_size_the_least_arrays_must_fit():
    assert held({}) == []
    least = "bandwidth.size_mib: null (3 arrays of 2 last-level caches each) needs 12,884,901,888 bytes on cpu, and"
    assert_lines(
        [line for line in held({}, computer=HOST | {"last_level_cache_bytes": 2 * GIB}) if "bandwidth" in line],
        [f"{least} 8,589,934,592 are free there"],
    )


# ---------------------------------------------------------------- files

TEXTS = {
    "two documents": ("devices: [cpu]\n---\ndevices: [cpu]\n", ["config/config.yaml, line 2: …"]),
    "a control character": ("a: \x01\n", ["config/config.yaml: …"]),
    "a key twice in a list": (
        "operations:\n  - {name: a, flops: 1, flops: 2}\n",
        ["config/config.yaml, line 2: the key 'flops' stands twice"],
    ),
    "code": (
        "plot: !!python/object/apply:os.system [exit]\n",
        ["config/config.yaml, line 1: could not determine a constructor for the tag '…os.system'"],
    ),
    "keys of Snakemake's own": (
        "pathvars: 3\n__use_yte__: true\n",
        ["config/config.yaml: __use_yte__: unknown key", "config/config.yaml: pathvars: unknown key"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_a_bad_file_is_told_in_a_line(tmp_path, text, expected):
    assert_lines(lines_of(tmp_path, text), expected)


def test_a_bad_file_ends_snakemake_before_it_reads_it_itself(run):
    text, expected = TEXTS["code"]
    run.write_config(text)
    assert_lines(faults(run), expected)


def test_a_missing_file_names_what_restores_it(run):
    (run.root / "config/config.yaml").unlink()
    remedy = "restore it with: git checkout -- config/config.yaml"
    assert_lines(faults(run), [f"config/config.yaml: no such file; {remedy}"])


def faults_of_command(run: Run, *arguments) -> list[str]:
    """What `make` says that refuses at once."""
    done = run.command("run", *arguments)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    return (done.stdout + done.stderr).splitlines()


def test_a_bad_file_of_ones_own_is_one_line_before_snakemake_reads_it(run):
    (run.root / "over.yaml").write_text("plot: [1\n")
    expected = "over.yaml, line 2: expected ',' or ']', but got '<stream end>'"
    assert faults_of_command(run, "--configfile", "over.yaml") == [expected]
    assert faults_of_command(run, "--dry-run", "--configfile", "none.yaml") == ["none.yaml: no such file"]


def test_a_key_within_a_section_is_told_how_it_is_given(run):
    (line,) = faults_of_command(run, "--config", "peak_flops.size=100")
    assert line.startswith("--config: ") and line.endswith("--config 'peak_flops={size: 1024}'")


def test_what_the_system_refuses_is_one_line(run):
    lock = run.root / ".snakemake/roofline-run.lock"
    lock.unlink()
    lock.mkdir()
    (line,) = faults_of_command(run)
    assert "roofline-run.lock" in line


# ---------------------------------------------------------------- surroundings


def test_a_terminal_without_the_characters_gets_question_marks(run):
    for command in (("workflow/commands/run.py",), ("-m", "snakemake", "--cores", "1", "--forcerun", "derive")):
        done = run.python(*command, env={"PYTHONIOENCODING": "ascii"})
        assert "Report results/report.html" in done.stdout
        assert done.returncode == 0 and "Picture results/roofline.png ? in words" in done.stdout, done.stderr


def test_a_file_of_the_checkout_shadows_no_package(run):
    (run.root / "numpy.py").write_text("raise SystemExit('shadowed')\n")
    (run.results / "roofline.png").unlink()
    done = run.make()
    assert done.returncode == 0 and "shadowed" not in done.stdout + done.stderr


# ---------------------------------------------------------------- the command line


def test_nonsense_on_the_command_line_is_told_in_a_line(run):
    given = ["foo=3", "cost={usd_per_hour: nan}", "devices=tpu", "peak_flops=[1", "decode_attn={seq_lens: [64]}"]
    assert_lines(
        faults(run, "--config", *given),
        [
            f"foo: unknown key; allowed: {KEYS}",
            f"cost.usd_per_hour: 'nan'; allowed: {NUMBER} from 0, or null",
            "devices: 'tpu' is unknown; allowed: auto, all, or a list such as [gpu0, cpu]",
            "peak_flops: '[1'; allowed: a mapping of keys to values",
            f"decode_attn.seq_lens[0]: '64'; allowed: {WHOLE} {TEXT_HINT}",
        ],
    )


def test_every_file_of_the_configuration_is_read_strictly(run):
    (run.root / "over.yaml").write_text("plot: {dpi: 80, dpi: 90}\n")
    run.write_config("devices: [cpu]\ndevices: [cpu]\n")
    assert_lines(
        faults(run, "--configfile", "over.yaml"),
        [
            "config/config.yaml, line 2: the key 'devices' stands twice",
            "…over.yaml, line 1: the key 'dpi' stands twice",
        ],
    )


# ---------------------------------------------------------------- checkpoints


def refused(run: Run, name: str) -> list[str]:
    run.edit_config(model={"checkpoint": name})
    return faults(run)


def test_a_pickle_is_never_loaded(run):
    (run.root / "model.pt").write_bytes(pickle.dumps(Bomb()))
    assert_lines(refused(run, "model.pt"), ["model.checkpoint model.pt: …pickle…"])


class Bomb:
    def __reduce__(self):
        return open, ("results/exploded", "w")


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


def test_a_folder_that_may_not_be_entered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("results/cpu").mkdir(parents=True)

    def locked(real):
        def ask(path, *arguments, **options):
            if "results/cpu/" in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *arguments, **options)

        return ask

    monkeypatch.setattr(os, "stat", locked(os.stat))
    monkeypatch.setattr(os, "lstat", locked(os.lstat))
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "results/cpu")
    with pytest.raises(settings.Faults) as told:
        previous_results.require_writable(["results/cpu/device_query.json"])
    assert_lines(told.value.lines, ["…/results/cpu/ cannot be written: make it a folder of yours (chown, chmod u+w)"])


def test_a_dry_run_is_a_line_for_each_job_and_changes_nothing(run):
    assert run.command("run", "--dry-run").stdout == "nothing to be done: every result is up to date\n"
    (run.results / "cpu/bandwidth/dram.json").write_text("{")
    before = run.files()
    done = run.command("run", "--dry-run")
    assert (done.returncode, run.files()) == (0, before) and not (run.results / "previous").exists()
    _, corrupt, *jobs, total = done.stdout.splitlines()
    assert corrupt.startswith("results/cpu/bandwidth/dram.json is corrupt")
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
        assert f"results/{path} was corrupt and is set aside as {aside.relative_to(run.root)}/{path}" in told
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
    with pytest.raises(settings.Faults) as refused:
        previous_results.require_this_version([str(path)], tmp_path / "results")
    (line,) = refused.value.lines
    assert re.search(r"version 6\b.*version 7\b.*: mv .*results .*results-version-6$", line)


@pytest.mark.parametrize("text", ["", "{}", "\udcff"])
def test_whatever_stands_in_a_corrupt_record_it_is_set_aside(tmp_path, monkeypatch, capsys, text):
    monkeypatch.chdir(tmp_path)
    path = Path("results/cpu/bandwidth/dram.json")
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    previous_results.set_aside_corrupt([str(path)], Path("results"))
    (aside,) = Path("results/previous").rglob("dram.json")
    assert f"{path} was corrupt and is set aside as {aside}" in capsys.readouterr().err
    assert aside.read_bytes() == text.encode("utf-8", "surrogateescape") and not path.exists()


def test_corrupt_results_of_other_kinds_are_found_too(run):
    corrupt = ("cpu/prediction.json", "roofline.json", "acceptance.json", "manifest.json")
    for path in corrupt:
        (run.results / path).write_text("{")
    told = run.finish("--dry-run")
    assert all(f"results/{path} is corrupt" in told for path in corrupt)
    assert {*corrupt} - {"acceptance.json"} <= set(run.planned())  # which is made with roofline.json
    (run.results / "cpu/device_query.json").write_text("{")
    assert run.planned() == run.planned("--forceall") - Counter([WEIGHTS])
