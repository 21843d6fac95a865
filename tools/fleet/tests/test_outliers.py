"""Which cards are slow, which nodes pass, and what cannot be in one report."""

import json
from pathlib import Path

import fleet as command
import outliers
import pytest
from made_up import results

from roofline.api import UserError

FILES = {"fleet.png", "fleet.json", "passing_nodes.txt", "failing_nodes.txt"}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "nodes").mkdir()
    return tmp_path / "nodes"


def sound(folder: Path, count: int = 5, **facts) -> list[Path]:
    return [results(folder, f"n{number}", **facts) for number in range(1, count + 1)]


def report(folder: Path, paths, *options: str) -> tuple[int, dict]:
    made = folder.parent / "made"
    status = command.main([*map(str, paths), "--into", str(made), *options])
    path = made / "fleet.json"
    return status, json.loads(path.read_text()) if path.exists() else {}


def nodes(folder: Path, name: str) -> str:
    return (folder.parent / "made" / f"{name}_nodes.txt").read_text()


def test_a_sound_fleet_passes(folder, capsys):
    status, found = report(folder, sound(folder))
    assert (status, found["outliers"], found["failing"]) == (0, [], {})
    assert nodes(folder, "passing") == "n1,n2,n3,n4,n5\n" and nodes(folder, "failing") == ""
    assert {path.name for path in (folder.parent / "made").iterdir()} == FILES
    assert "5 × NVIDIA H200, 5 nodes, 31 figures\nNo slow card." in capsys.readouterr().out


@pytest.mark.parametrize(("factor", "slow"), [(0.96, True), (0.98, False), (1.1, False)])
def test_a_card_is_slow_from_three_per_cent_below_the_median(folder, capsys, factor, slow):
    status, found = report(folder, [*sound(folder), results(folder, "n6", gpus=2, slow={"hbm": factor})])
    assert status == slow and nodes(folder, "failing") == ("n6\n" if slow else "")
    assert {one["figure"] for one in found["outliers"]} == (
        {"hbm_read", "hbm_write", "hbm_copy", "hbm_triad", "d2d"} if slow else set()
    )
    assert all(one["rows"] == ["n6 gpu0"] for one in found["outliers"])
    assert ("n6 gpu0: " in capsys.readouterr().out) is slow
    assert ("d2d" in found["failing"].get("n6", "")) is slow


def test_where_cards_scatter_the_limit_is_three_scaled_deviations(folder):
    factors = (0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 0.8)
    paths = [results(folder, f"n{i}", slow={"l1": factor}) for i, factor in enumerate(factors)]
    status, found = report(folder, paths)
    (limit,) = [one["limit"] for one in found["figures"] if one["key"] == "l1"]
    assert status == 0 and limit == pytest.approx(3 * 1.4826 * 0.05, rel=0.1), "0.8 is within it"
    assert {one["limit"] for one in found["figures"] if one["key"] not in ("l1", "h2d")} == {0.03}, "h2d has 6 samples"


def test_four_cards_are_not_judged(folder, capsys):
    status, found = report(folder, [*sound(folder, 3), results(folder, "n4", slow={"hbm": 0.5})])
    assert (status, found["outliers"]) == (2, []) and {one["limit"] for one in found["figures"]} == {None}
    assert "Not judged: 4 cards, and 5 or more are needed." in capsys.readouterr().out


def test_a_node_that_lost_a_gpu_fails(folder):
    status, found = report(folder, [*sound(folder, 3, gpus=4), results(folder, "n4", gpus=3)])
    assert status == 1 and found["failing"] == {"n4": "3 cards, and most nodes have 4"}


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"name": "NVIDIA A100"}, "odd: its card is NVIDIA A100, and most are NVIDIA H200"),
        ({"effort": "quick"}, "odd: its effort is quick, and that of most is default"),
    ],
)
def test_another_model_or_effort_is_one_line(folder, odd, why):
    paths = [*sound(folder), results(folder.parent, "odd", **odd)]
    with pytest.raises(UserError, match=f"^{why}$"):
        report(folder, paths)
    status, found = report(folder, paths, "--wanted")
    assert status == 1 and found["failing"] == {"odd": why} and len(found["rows"]) == 5


def test_what_cannot_be_read_is_refused_or_of_a_cluster_fails_its_node(folder):
    (folder / "broken.tar.gz").write_bytes(b"no archive")
    odd = [folder / "broken.tar.gz", folder / "missing.tar.gz"]
    with pytest.raises(UserError) as refused:
        report(folder, [*odd, *sound(folder)])
    assert len(refused.value.lines) == 2
    status, found = report(folder, [*odd, *sound(folder)], "--wanted")
    assert status == 1 and set(found["failing"]) == {"broken", "missing"}
    assert nodes(folder, "failing") == "broken,missing\n"
    with pytest.raises(UserError):
        report(folder, odd, "--wanted")


def test_a_pair_is_not_judged_as_a_card_but_the_faster_pair_of_a_card_is():
    keys = ("all_reduce_gpu1/1024", "p2p_gpu1_write", "all_reduce/1024")
    assert [outliers.is_of_card("link", key) for key in keys] == [False, False, True]
