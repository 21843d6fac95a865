"""`make audit`: the figures of a run recomputed from its samples, by code that shares nothing with the library."""

import ast
import json
import shutil
import tarfile

import pytest
from commands import load
from workflow_run import CHECKOUT

REFERENCE = CHECKOUT / "reference" / "nvidia-h200"
RECORD = "gpu0/bandwidth/hbm.json"


def audit(*arguments, monkeypatch, folder, capsys):
    monkeypatch.chdir(folder)
    status = load("audit").main(list(map(str, arguments)))
    return status, capsys.readouterr().out


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    return lambda *arguments: audit(*arguments, monkeypatch=monkeypatch, folder=tmp_path, capsys=capsys)


@pytest.fixture
def copied(tmp_path):
    return shutil.copytree(REFERENCE, tmp_path / "results")


def edit(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_it_uses_numpy_alone():
    tree = ast.parse((CHECKOUT / "workflow/commands/audit.py").read_text(encoding="utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules - {"hashlib", "json", "math", "sys", "tarfile", "collections.abc", "pathlib"} == {"numpy"}


def test_every_figure_of_the_reference_holds(run, tmp_path):
    status, told = run(REFERENCE)
    assert status == 0 and "none differ" in told.splitlines()[-1]
    counts = [int(line.split("|")[2]) for line in told.splitlines()[2:10]]
    assert len(counts) == 8 and all(counts) and sum(counts) > 1000
    assert told.splitlines()[2] in (tmp_path / "results/audit/audit.md").read_text()


def test_an_archive_is_read_as_it_is(run, tmp_path):
    with tarfile.open(tmp_path / "run.tar.gz", "w:gz") as archive:
        archive.add(REFERENCE, "run/results")
    assert run(tmp_path / "run.tar.gz")[0] == 0


def test_records_alone_are_refused_in_a_line(run):
    records = CHECKOUT / "reference/runs/nvidia-h200-20261124T210857Z-records.tar.gz"
    assert run(records) == (2, f"{records}: it holds no samples; an audit needs the whole archive\n")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda record: record["bandwidths"][0]["latency"].update(median_s=1e-3), "medians of samples: gpu0/bandwidth"),
        (lambda record: record["bandwidths"][0].update(gb_per_s=5000), "ceilings: gpu0 hbm_read"),
        (lambda record: record["seals"].update({"gpu0/prediction.json": "0"}), "hashes of files and seals: gpu0/band"),
    ],
)
def test_a_record_that_was_edited_is_named(run, copied, change, named):
    edit(copied / RECORD, change)
    status, told = run(copied)
    assert status == 1 and f"- {named}" in told and "hashes of files and seals" in told


def test_a_table_that_was_edited_is_named(run, copied):
    def change(table):
        table["operators"][0].update(regime="memory", fraction_of_roof=0.99)
        table["score"]["times_right"] += 1
        next(one for one in table["checks"] if one["check"].startswith("memory reads")).update(result="fail")

    edit(copied / "roofline.json", change)
    told = run(copied)[1]
    for what in ("shares of the roof", "regimes", "predictions and their score: score: times_right", "verdicts: gpu0"):
        assert f"- {what}" in told


def test_the_users_own_operations_were_measured_elsewhere(run, copied):
    edit(copied / "roofline.json", lambda table: table["operators"].append(table["operators"][0] | {"record": None}))
    assert [line for line in run(copied)[1].splitlines() if line.startswith("- ")] == [
        "- hashes of files and seals: roofline.json"
    ]


@pytest.mark.parametrize("path", ["nothing", REFERENCE.parent / "runs", REFERENCE / "thorough-records.tar.gz"])
def test_what_is_no_run_of_this_version_is_told_in_a_line(run, path):
    status, told = run(path)
    assert status == 2 and len(told.splitlines()) == 1
