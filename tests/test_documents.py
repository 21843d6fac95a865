"""The documents agree with the code, and with one another."""

import re
import subprocess
from statistics import median

import pytest
from pictures import reference
from workflow_run import CHECKOUT, NEWEST

from roofline.core.cell_prediction import CLOSE_WITHIN_FACTOR, is_within_factor
from roofline.plan import settings
from roofline.records.base import read
from roofline.records.cards import read_all_cards, read_cards
from roofline.records.device_record import DeviceRecord
from roofline.report import words
from roofline.run.archive import unpacked
from roofline.table.rows import Roofline
from roofline.table.standing import rank_among_cards, select_comparable_runs

PAGES = sorted(page for folder in ("", "docs/", "tools/*/", "reference/**/") for page in CHECKOUT.glob(f"{folder}*.md"))
FENCED = re.compile(r"```.*?```", re.DOTALL)


def test_the_config_as_it_comes_gives_the_defaults(tmp_path):
    """As it was committed: a user may have edited the file since."""
    shown = ["git", "show", "HEAD:config/config.yaml"]
    (tmp_path / "config.yaml").write_bytes(subprocess.run(shown, cwd=CHECKOUT, capture_output=True, check=True).stdout)
    given = settings.read_file(tmp_path / "config.yaml")
    assert settings.complete(given).config.model_dump() == settings.complete({}).config.model_dump()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_examples_in_the_documents_are_right(capsys):
    page = (CHECKOUT / "docs/own_operator.md").read_text(encoding="utf-8")
    block, analysis = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert block in (CHECKOUT / "examples/gelu.py").read_text(encoding="utf-8")
    exec(analysis)
    printed = [float(word) if word != "memory" else word for word in capsys.readouterr().out.split()]
    assert printed.pop(1) == "memory"
    assert printed == pytest.approx([5, 23e12, 2300 / 55, 2e9 / 23e12, 4e8 / 4.6e12])


def test_make_lists_every_target_that_the_documents_name():
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    quoted = {target for page in pages for target in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))}
    listed = subprocess.run(["make", "-s", "help"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    assert quoted <= {line.split()[0] for line in listed.splitlines()}


def among_known_cards(key: str, value: float) -> str:
    """Median and range of the other known cards of the reference's model, as pages give them."""
    row = reference().devices["gpu0"]
    with unpacked(NEWEST) as root:
        device = read(DeviceRecord, root / "results" / row.record)
    runs = select_comparable_runs(device, read_cards(row.name).runs, "default").of_others
    return words.format_rank(rank_among_cards(key, value, runs)).split("median ")[1]


def test_the_first_screen_has_the_figures_of_the_reference_run():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    ceilings = {ceiling.name: ceiling for ceiling in reference().ceilings if ceiling.device == "gpu0"}
    for name in ("fp16", "fp8_e4m3"):
        ceiling = ceilings[name]
        rates = (ceiling.sustained_tflops, ceiling.burst_tflops)
        shares = " / ".join(f"{100 * rate / ceiling.datasheet_tflops:.0f}" for rate in rates)
        figures = " / ".join(f"{rate:.0f}" for rate in rates)
        others = among_known_cards(f"{name}/sustained", rates[0])
        row = rf"\| {name} GEMM.*\| {figures} TFLOPS \| {shares} % \| {re.escape(others)} sustained \|"
        assert re.search(row, text), (figures, shares, others)
    reads = ceilings["hbm_read"].gb_per_s
    assert f" {reads:.0f} GB/s | 96 % | {among_known_cards('hbm_read', reads)} |" in text
    assert f" {ceilings['l2'].gb_per_s:.0f} GB/s |" in text


def test_the_scores_of_the_archived_runs_are_theirs():
    tables = [reference()]
    with unpacked(NEWEST.with_name("nvidia-h100-80gb-hbm3")) as root:
        tables.append(read(Roofline, root / "results/roofline.json"))
    cells = [
        [cell for cell in table.operators if cell.device == "gpu0" and not cell.doubt and not cell.roof_doubt]
        for table in tables
    ]
    gpu_errors = [[cell.sealed_gpu_time_error for cell in of_run if cell.sealed_gpu_time_error] for of_run in cells]
    medians = " and ".join(f"{100 * median(map(abs, errors)):.1f}" for errors in gpu_errors)
    too_long = " and ".join(f"{sum(error > 0 for error in errors)} of {len(errors)}" for errors in gpu_errors)
    text = " ".join((CHECKOUT / "docs/prediction.md").read_text(encoding="utf-8").split())
    assert f"GPU times are {medians} %" in text and f"{too_long} GPU times are predicted too long" in text


def test_the_pooled_score_of_drawn_shapes_is_that_of_all_runs_with_these_constants():
    runs = [run for model in read_all_cards() for run in model.runs if run.drawn]
    newest: dict[str, str] = {}  # sets that other constants predicted do not count
    for run in sorted(runs, key=lambda run: run.queried_at):
        newest |= run.drawn.constants_sha256
    errors = [
        error
        for run in runs
        for cell, each in run.drawn.gpu_time.items()
        for error in each
        if run.drawn.constants_sha256[cell.partition("/")[0]] == newest[cell.partition("/")[0]]
    ]
    close = sum(is_within_factor(1 + error, 1, CLOSE_WITHIN_FACTOR) for error in errors)
    words = f"{100 * median(map(abs, errors)):.1f} %, {close} within 1.25x"
    text = " ".join((CHECKOUT / "README.md").read_text(encoding="utf-8").split())
    assert f"{len(errors)} GPU times were predicted with a median error of {words}" in text
