"""Cells drawn at random: the same for a commit, others for another, of every kind, and none too large."""

import subprocess
import sys

import pytest
from commands import COMMANDS, load
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from roofline.analysis.trial import Cells, Product
from roofline.operators.gemm.operator import filled
from roofline.run import settings

COMMAND = COMMANDS / "draw_cells.py"
PRESETS = settings.complete({}).config.model.presets


@pytest.fixture(scope="module")
def command():
    return load("draw_cells")


@effort(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**160))
def test_a_draw_is_the_seeds_own_and_none_of_its_cells_is_too_large(command, seed):
    drawn = command.draw(seed)
    assert command.draw(seed) == drawn != command.draw(seed + 1)
    assert {name: len(cells) for name, cells in drawn.items()} == command.CELLS
    for cell in drawn["decode_attn"]:
        assert 1 <= cell["seq_len"] <= command.LONGEST and 1 <= cell["batch"] <= command.LARGEST_BATCH
    assert all(1 <= cell[side] <= 8192 and cell[side] % 16 == 0 for cell in drawn["gemm"] for side in "mnk")
    assert all(8 * cell["rows"] * cell["columns"] <= command.MOST_BYTES for cell in drawn["row_norm"])
    assert all(cell["hidden"] % 64 == 0 for cell in drawn["rmsnorm_matmul"])


def test_draws_go_across_presets_dtypes_implementations_and_shapes(command):
    draws = [command.draw(seed) for seed in range(20)]
    cells = {name: [cell for one in draws for cell in one[name]] for name in command.CELLS}
    assert {cell["preset"] for cell in cells["decode_attn"]} == set(PRESETS)
    assert {cell["dtype"] for cell in cells["decode_attn"]} == set(command.DTYPES)
    assert {cell["implementation"] for cell in cells["decode_attn"]} == {"eager", "fused", "fused_graph"}
    assert {cell["implementation"] for cell in cells["row_norm"]} == {"array", "naive", "welford", "welford_graph"}
    assert {cell["implementation"] for cell in cells["rmsnorm_matmul"]} >= {"unfused_graph", "fused"}
    assert {cell["dtype"] for cell in cells["gemm"]} == set(command.PRODUCT_DTYPES)


def test_each_cell_is_a_job_of_one_implementation_or_a_product(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command.wanted(7)
    jobs = [one for one in found if isinstance(one, Cells)]
    assert [len(one.job.cases) for one in jobs] == [1] * (sum(command.CELLS.values()) - command.CELLS["gemm"])
    assert sum(isinstance(one, Product) for one in found) == command.CELLS["gemm"]
    drawn = {cell["implementation"] for cells in command.draw(7).values() for cell in cells if "implementation" in cell}
    assert {name for one in jobs for name in one.implementations} == drawn
    assert all((tmp_path / path).is_file() for one in jobs for path in one.job.files), "weights are made"
    half = found[: len(found) // 2]
    assert {one.operator.name for one in half if isinstance(one, Cells)} == {one.operator.name for one in jobs}


@pytest.mark.parametrize("arguments", [(), ("out", "no hash"), ("out", "1", "2"), ("--help",)])
def test_anything_but_a_folder_and_a_commit_is_answered_in_words(tmp_path, arguments):
    done = subprocess.run([sys.executable, COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and ("COMMIT" in done.stderr or "not the hash" in done.stderr)
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_a_changed_model_is_not_drawn_for(command, monkeypatch):
    sources = command.checkout.describe(COMMANDS.parents[1])
    told = sources.model_copy(update={"commit": "a" * 40, "changed_files": ["workflow/scripts/roofline/core/model.py"]})
    monkeypatch.setattr(command.checkout, "describe", lambda root: told)
    with pytest.raises(SystemExit, match="commit the model first"):
        command.frozen_commit()
    unchanged = told.model_copy(update={"changed_files": ["README.md"]})
    monkeypatch.setattr(command.checkout, "describe", lambda root: unchanged)
    assert command.frozen_commit() == "a" * 40


# ---------------------------------------------------------------- what the model makes of a GEMM's shape

SIDES = st.integers(1, 1 << 14)


@given(SIDES, SIDES, SIDES, st.integers(1, 200))
def test_a_shape_never_needs_more_than_all_multiplyadds(m, n, k, multiprocessors):
    assert 0 < filled(m, n, k, multiprocessors) <= 1


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        ((128 * 11, 128 * 12, 128), 1.0),  # 132 tiles on 132 multiprocessors
        ((128 * 7, 128 * 19, 128), 133 / 264),  # one tile in a wave of its own
        ((128, 128, 128), 1 / 132),
        ((128, 128, 8192), 16 / 132),  # shared by as many as have 512 of k each
        ((8, 128 * 132, 128), 0.5),  # of the narrowest tile
    ],
)
def test_tiles_come_in_waves_and_few_share_their_depth(shape, share):
    assert filled(*shape, multiprocessors=132) == pytest.approx(share)
