"""What cannot be done is reported before anything is measured: one line per error, with the key and the value."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml
from workflow_run import CHECKOUT, TINY, Run, changed

from roofline.core.terms import UserError
from roofline.core.units import GIB
from roofline.devices.base import Identity
from roofline.plan import machine_checks, settings
from roofline.run import previous_results


def assert_lines(found: list[str], *expected: tuple[str, ...]) -> None:
    """One line for each of these, in any order: what it begins with, and what else it names."""
    assert len(found) == len(expected), found
    for key, *named in expected:
        assert any(line.startswith(key) and all(part in line for part in named) for line in found), (key, named, found)


@pytest.mark.slow
def test_bad_values_end_snakemake_before_anything_is_planned(tmp_path):
    """In another working directory, whose own config is read."""
    wrong = {
        "devices": ["gpu7", "cpu"],
        "bandwidth": {"levels": ["d2d"]},
        "model": {"checkpoint": "none.safetensors"},
        "decode_attn": {"presets": ["minigpt", "llama"]},
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(changed(TINY, wrong)))
    run, snakefile = Run(tmp_path), ("--snakefile", CHECKOUT / "Snakefile")
    done = run.snakemake(*snakefile)
    assert done.returncode != 0 and "Traceback" not in done.stdout + done.stderr and not run.results.exists()
    snakemakes_own = re.compile(r"Using workflow specific profile .*|Config file .* is extended by .*|")
    assert_lines(
        [line for line in (done.stdout + done.stderr).splitlines() if not snakemakes_own.fullmatch(line)],
        ("devices: gpu7 ", "cpu"),
        ("decode_attn.presets: 'llama'", "llama-3-8b"),
        ("model.checkpoint none.safetensors: ",),
        ("bandwidth.levels: cpu ", "d2d", "dram, sweep"),
    )
    done = run.python("-P", CHECKOUT / "workflow/commands/run.py", *snakefile, "--config", "devices=[h100]")
    assert_lines([line for line in done.stderr.splitlines() if re.match("devices|Trace", line)], ("devices: ", "h100"))


CARD = {"memory_total_bytes": 80 * GIB, "memory_free_bytes": 80 * GIB, "last_level_cache_bytes": 50 << 20}
CARD |= {"multiprocessors": 132, "compute_capability": "9.0"}
HOST = {"memory_total_bytes": 8 * GIB, "memory_free_bytes": 8 * GIB, "last_level_cache_bytes": 16 << 20}
CASE, SMALL = "decode_attn: minigpt fp32 batch", "bandwidth.size_mib: 16 is too small for "
LARGE = {"seq_lens": [1024, 10**8], "batch_sizes": [1, 8, 2], "dtypes": ["fp32"]}
NO_SCOPE = {"decode_attn": {"scopes": ["block"], "implementations": ["fused", "numpy"]}}
NOT_ON_HOST = {"peak_flops": {"dtypes": ["fp16", "fp64"], "size": 30_000}, "bandwidth": {"levels": ["hbm"]}}
NOT_ON_HOST |= {"rmsnorm_matmul": {"hidden_sizes": [65536]}, "row_norm": {"implementations": ["welford"]}}
NOT_ON_HOST |= {"decode_attn": {"dtypes": ["fp16"], "seq_lens": [1 << 15], "implementations": ["fused"]}}
HUGE = "bandwidth.transfer_size_mib: 100000 needs 104,857,600,000 bytes on gpu0"
HELD = {
    "products that do not fit": ({"peak_flops": {"size": 80_000, "dtypes": ["fp64"]}}, ["peak_flops.size: 80000 "]),
    "arrays that both caches keep": ({"bandwidth": {"size_mib": 16}}, [SMALL + "gpu0", SMALL + "cpu"]),
    "a quick run without the CPU": ({"effort": "quick", "bandwidth": {"size_mib": 16}}, ["bandwidth.size_mib: 16 is"]),
    "transfers that do not fit": ({"bandwidth": {"transfer_size_mib": 100_000}}, [HUGE]),
    "scopes that no implementation has": (NO_SCOPE, ["decode_attn.scopes: fused on gpu0: only core"]),
    "what no CPU next to a GPU measures": (NOT_ON_HOST, []),
    "no level": ({"effort": "quick", "devices": ["cpu"], "bandwidth": {"levels": ["hbm"]}}, ["bandwidth.levels: cpu "]),
    "caches that neither memory holds": ({"decode_attn": LARGE}, [f"{CASE} 8, "] * 2),
}


def held(changes: dict) -> list[str]:
    """The errors of a configuration on a machine with a card."""
    card = Identity("gpu0", "gpu", "A card", "GPU-1", None, **CARD)
    present = {"gpu0": card, "cpu": Identity("cpu", "cpu", "A processor", "cpu-1", None, **HOST)}
    try:
        machine_checks.choose_devices(settings.complete({"decode_attn": {"batch_sizes": [1]}} | changes), present)
    except UserError as faults:
        return faults.lines
    return []


@pytest.mark.parametrize(("changes", "expected"), HELD.values(), ids=HELD.keys())
def test_settings_are_held_against_every_device(changes, expected):
    assert_lines(held(changes), *((line,) for line in expected))


def test_a_machine_needs_one_of_the_compute_ceilings():
    asked = {"peak_flops": {"dtypes": ["fp16", "int8"]}}
    assert_lines(held(asked | {"devices": ["cpu"]}), ("peak_flops.dtypes: cpu ", "fp16, int8", "fp64, fp32, fp64_fma"))
    assert held(asked) == [], "dtypes that the card has do not stop the measurement of a CPU that lacks them"


def test_an_error_is_a_few_lines_of_a_readable_length(tmp_path):
    lines = held({"decode_attn": {"seq_lens": [-1] * 1000}})
    assert len(lines) < 30 and lines[-1] == "and 975 more"
    assert all(len(line) < 700 for line in held({"x" * 9000: 1, "devices": ["y" * 9000]}))
    (tmp_path / "deep.yaml").write_text("devices: " + 20_000 * "[")
    with pytest.raises(UserError, match=r"deep.yaml: "):
        settings.read_file(tmp_path / "deep.yaml")


# ---------------------------------------------------------------- results that were there before

PEAK, MEMORY = "results/cpu/peak_flops/fp32.json", "results/cpu/bandwidth/dram.json"


@pytest.fixture
def small(small_run, tmp_path, monkeypatch):
    """The working directory holds its results."""
    monkeypatch.chdir(tmp_path)
    return small_run.copied_to(tmp_path)


def files(run) -> dict[str, bytes]:
    paths = (path for path in (run.root / "results").rglob("*") if path.is_file())
    return {path.relative_to(run.root / "results").as_posix(): path.read_bytes() for path in paths}


def test_corrupt_records_are_named_and_set_aside_but_by_a_dry_run(small, capsys):
    (small.root / PEAK).write_bytes((small.root / PEAK).read_bytes()[:100])
    small.edit(MEMORY, lambda record: record.update(unheard_of=1))
    before = files(small)
    results = (small.root / "results").relative_to(small.root)
    previous_results.set_aside_corrupt(small.paths, results, dry=True)
    assert files(small) == before
    previous_results.set_aside_corrupt(small.paths, results)
    named = capsys.readouterr().err
    (aside,) = (small.root / "results/previous").iterdir()
    corrupt = {path.removeprefix("results/") for path in (PEAK, MEMORY)}
    assert all(f"{path} is corrupt" in named for path in (PEAK, MEMORY))
    assert files(small) == {
        f"previous/{aside.name}/{path}" if path in corrupt else path: content for path, content in before.items()
    }


def test_another_cards_results_are_set_aside_whole(small, capsys):
    was = small.read("results/cpu/device_query.json")
    same = Identity("cpu", "cpu", was["name"], was["uuid"], None, GIB, GIB)
    before, results = files(small), (small.root / "results").relative_to(small.root)
    previous_results.set_aside_other_cards({"cpu": same}, results)
    assert files(small) == before and capsys.readouterr().err == ""
    previous_results.set_aside_other_cards({"cpu": replace(same, uuid="another")}, results)
    (aside,) = (small.root / "results/previous").iterdir()
    data = {"data/weights.bin": before.pop("data/weights.bin")}
    assert files(small) == {f"previous/{aside.name}/{path}": content for path, content in before.items()} | data
    printed = capsys.readouterr().err
    assert all(part in printed for part in (was["uuid"], "another", str(aside.relative_to(small.root))))


def test_results_of_another_version_are_refused_in_one_line(tmp_path):
    path = tmp_path / "results/cpu/device_query.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"kind": "device_query", "schema_version": 8}')
    for aside in (r"results-version-8", r"results-version-8-\d{8}-\d{6}"):  # where the first is taken, another
        with pytest.raises(UserError) as refused:
            previous_results.require_this_version([str(path)], tmp_path / "results")
        (line,) = refused.value.lines
        assert re.search(rf"version 8\b.*version 9\b.*: mv .*results .*/{aside}$", line)
        (tmp_path / "results-version-8").mkdir(exist_ok=True)


def test_pictures_of_what_was_left_out_since_go_and_no_other_file(small):
    for name in ("roofline.png", "gelu.png"):
        small.write("", f"results/{name}")
    (small.root / "results/photo.png").touch()
    results = (small.root / "results").relative_to(small.root)
    small.write_manifest()
    before = files(small)
    previous_results.remove_old_pictures(results, ["roofline.png"])
    assert before.keys() - files(small).keys() == {"gelu.png"}
