"""Cells drawn by chance: the same for a seed, a configuration that is taken, and none too large."""

import subprocess
import sys

import pytest
import yaml
from commands import COMMANDS, load
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from roofline import devices
from roofline.run import settings

COMMAND = COMMANDS / "draw_cells.py"


@pytest.fixture(scope="module")
def command():
    return load("draw_cells")


def test_a_seed_draws_the_same_file_every_time(tmp_path):
    (tmp_path / "config").mkdir()
    written = []
    for _ in range(2):
        subprocess.run([sys.executable, COMMAND, "7"], cwd=tmp_path, check=True, capture_output=True)
        written.append((tmp_path / "config/drawn.yaml").read_text())
    assert written[0] == written[1]
    assert "Seed 7; written by: python workflow/commands/draw_cells.py 7" in written[0]


def test_seeds_draw_different_cells(command):
    assert len({command.config(seed) for seed in range(20)}) == 20


@effort(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**9))
def test_a_draw_is_forty_cells_of_a_valid_configuration_that_fits_a_card(command, seed):
    checked = settings.complete(yaml.safe_load(command.config(seed)))
    drawn, config = checked.config.decode_attn, checked.config
    assert [len(getattr(drawn, key)) for key in ("seq_lens", "batch_sizes", "dtypes", "presets")] == [10, 2, 2, 1]
    assert all(1 <= seq_len <= 16384 for seq_len in drawn.seq_lens)
    assert all(1 <= batch <= 512 for batch in drawn.batch_sizes)
    assert drawn.implementations == ["fused", "fused_graph"]
    # On a GPU a dtype stands under the ceiling of its own name, and attention under hbm_read.
    assert set(drawn.dtypes) <= set(config.peak_flops.dtypes)
    assert config.bandwidth.levels == ["hbm", "l2"]  # l2: what the smallest cells stay in
    card = devices.Identity(
        device="gpu0",
        kind="gpu",
        name="made up",
        uuid="made up",
        driver=None,
        memory_total_bytes=command.MOST_BYTES,
        memory_free_bytes=command.MOST_BYTES,
        last_level_cache_bytes=50 << 20,
        compute_capability="8.0",
    )
    assert settings.choose_devices(checked, {"gpu0": card}) == ["gpu0"]


def test_every_octave_of_s_is_as_likely(command):
    """Of 300 draws of ten, each of the 14 octaves gets its share, but for S of which there are few."""
    drawn = [seq_len for seed in range(300) for seq_len in command.draw(seed)["seq_lens"]]
    octaves = [sum(1 << octave <= seq_len < 2 << octave for seq_len in drawn) for octave in range(4, 14)]
    assert min(octaves) > 0.6 * max(octaves)


@pytest.mark.parametrize("arguments", [(), ("seven",), ("1", "2")])
def test_anything_but_a_seed_is_answered_with_the_usage(tmp_path, arguments):
    done = subprocess.run([sys.executable, COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "SEED" in done.stderr
    assert not (tmp_path / "config").exists()
