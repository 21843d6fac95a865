"""The report of a fleet: who is slow and why, who was not measured, what differs, and what is refused."""

import contextlib
import re
import shutil
import time
from pathlib import Path

import pytest
from commands import load
from fleets import REFERENCE, measured, nodes

from roofline.analysis.fleet import fleet
from roofline.records.base import read, write
from roofline.records.fleet import Fleet, FleetNode, FleetNodes, Load
from roofline.report import fleet_page
from roofline.run import fleet_report
from roofline.run.archive import Refused
from roofline.run.runs import read_run
from roofline.run.settings import complete

RUNS = REFERENCE.parent / "runs"
H200S = sorted(RUNS.glob("nvidia-h200-*.tar.gz"))
SINGLE, PAIR, PAIR_AGAIN = (
    RUNS / f"nvidia-h200-20261122T{at}Z-records.tar.gz" for at in ("195013", "213844", "214324")
)  # two cards, of which one was measured again
CPUS = sorted(RUNS.glob("intel-*.tar.gz"))
BYTES, SECONDS = 8_000_000, 20


def name(number):
    return f"n{number:03}"


def of(runs, more=()):
    return fleet([*nodes(runs), *more], runs)


def sound(count=40, start=10, **facts):
    return [measured(name(start + number), **facts) for number in range(count)]


def status(found, node="n001"):
    return next(card.status for card in found.cards if card.node == node)


@pytest.fixture
def command(tmp_path):
    """Runs it into a folder, and returns its status."""
    module = load("fleet_report")
    return lambda *arguments: module.main([*map(str, arguments), "--into", str(tmp_path / "made")])


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("clock", "cause", "words"), [(0.85, "clock", "low clock"), (1.0, "same clock", "slow at the same clock")]
)
def test_a_slow_card_is_named_with_its_clock_power_and_heat(clock, cause, words):
    hot = Load(power_w=640.0, temperature_c=88.0)
    found = of([*sound(), measured("n001", slow={"fp16/sustained_mean": 0.85}, clock=clock, load=hot)])
    (one,) = found.findings
    assert (one.figure, one.status, one.cause, found.again) == ("fp16/sustained_mean", "flagged", cause, ["n001"])
    assert one.of_median[0] == pytest.approx(0.85, abs=0.02) and one.p_value < one.critical_p
    assert (found.failing, len(found.passing)) == (["n001"], 40)
    page = fleet_page.markdown(found)
    assert words in page and "640 W (690), 88 °C (62)" in page and "Re-run to confirm." in page


def test_half_a_link_has_its_lanes_beside_it():
    found = of([*sound(), measured("n001", slow={"link": 0.5}, pcie_width_now=8)])
    assert {one.figure for one in found.findings} == {"h2d", "d2h"}
    assert "5 x8" in fleet_page.screen(found)
    assert [one.others for one in found.drift if one.what == "pcie_width_now"] == [{"8": ["n001"]}]


@pytest.mark.parametrize(("again", "expected"), [(0.97, "confirmed"), (1.0, "not confirmed")])
def test_a_card_is_named_once_its_repeat_is_slow_too(again, expected):
    first = [*sound(), measured("n001", slow={"memory": 0.97})]
    assert of(first).again == ["n001"]
    found = of([*first, measured("n001", 2, slow={"memory": again}, at="12")])
    assert (status(found), found.again) == (expected, [])
    assert found.failing == (["n001"] if expected == "confirmed" else [])


def figure(found, key="hbm_read"):
    return next(one for one in found.figures if one.key == key)


def test_repeats_add_to_the_stored_spread_between_runs():
    stored = figure(of(sound()))
    assert stored.run_spread_from == "stored" and stored.run_spread_df == 8
    both = figure(of([*sound(), measured("n010", 2, at="12"), measured("n011", 2, at="12")]))
    assert both.run_spread_from == "both" and both.run_spread_df == 10
    assert f"({both.run_spread_df:g})" in fleet_page.markdown(of([*sound(), measured("n010", 2), measured("n011", 2)]))


def test_repeats_of_a_slow_figure_say_nothing_of_the_spread_between_runs():
    first = [*sound(), measured("n001", slow={"memory": 0.9})]
    found = of([*first, measured("n001", 2, at="12")])
    assert status(found) == "not confirmed" and figure(found).run_spread == figure(of(first)).run_spread
    assert figure(found, "fp32").run_spread_df == figure(of(first), "fp32").run_spread_df + 1


def test_every_node_is_in_the_report_and_those_without_a_card_fail():
    ((_, cpu_alone),), _ = fleet_report._read([("n002", "cpus", CPUS[0])])
    late = FleetNode(node="n003", status="pending too long", reason="Priority", archives=[])
    broken = FleetNode(node="n004", status="failed", reason="exit code 1, twice", archives=[])
    found = of([*sound(), cpu_alone], [late, broken])
    assert found.failing == ["n002", "n003", "n004"] and len(found.nodes) == 43
    page = fleet_page.html(found)
    assert all(words in page for words in ("pending too long", "Priority", "exit code 1, twice", "no such card"))


@pytest.mark.parametrize("lost_in", ["every run", "its second run"])
def test_a_node_that_lost_a_gpu_fails_and_is_named_with_both_numbers(lost_in):
    runs = [*sound(20, cards=8), measured("n001", cards=7 if lost_in == "every run" else 8)]
    if lost_in == "its second run":
        runs.append(measured("n001", 2, cards=7, at="12"))
    found = of(runs)
    assert found.failing == ["n001"]
    for page in (fleet_page.html(found), fleet_page.markdown(found), fleet_page.screen(found)):
        assert "n001 (7 of 8)" in page and "the majority of nodes" in page


@pytest.mark.parametrize(("asked", "failing"), [("all", 20), ("auto", 0)])
def test_slurms_number_of_gpus_counts_where_all_were_to_be_measured(asked, failing):
    runs = sound(20, cards=2, asked=asked)
    found = fleet([one.model_copy(update={"gpus": 8}) for one in nodes(runs)], runs)
    assert len(found.failing) == failing
    assert {(one.gpus, one.expected, one.expected_from) for one in found.missing_gpus} == (
        {(2, 8, "Slurm")} if failing else set()
    )


def test_drift_names_who_differs_from_most():
    other = measured("n001", software={"driver": "570.1"}, vbios="96.1", power_limit_w=500.0)
    found = of([*sound(vbios="96.0"), other])
    drift = {one.what: one for one in found.drift}
    assert set(drift) == {"driver", "vbios", "power_limit_w"}
    assert drift["power_limit_w"].majority == "700" and drift["power_limit_w"].others == {"500": ["n001"]}
    halves = of([measured(name(number), vbios=str(number % 2)) for number in range(10)])
    assert halves.drift[0].majority is None and {len(who) for who in halves.drift[0].others.values()} == {5}


def test_cards_of_one_node_are_told_apart():
    found = of([*sound(12, cards=4), measured("n001", cards=4, slow={"memory": 0.9})])
    assert {one.card for one in found.findings} == {"GPU-n001-0"} and found.failing == ["n001"]
    assert "n001 gpu0" in fleet_page.screen(found)


def test_a_figure_that_most_have_is_missed():
    lame = measured("n001")
    figures = [one for one in lame.run.quantities if one.key != "fp8_e4m3"]
    found = of([*sound(), lame._replace(run=lame.run.__class__(**{**vars(lame.run), "quantities": figures}))])
    assert [card.missing for card in found.cards if card.node == "n001"] == [["fp8_e4m3"]]


def test_a_few_cards_of_an_unknown_model_are_not_judged():
    runs = sound(5)
    for one in runs:
        one.run.devices["gpu0"] = one.run.devices["gpu0"].model_copy(update={"name": "NVIDIA Unheard"})
    found = of([*runs[1:], runs[0]])
    assert {card.status for card in found.cards} == {"not judged"} and found.failing == []
    assert "Not judged: 5 cards" in fleet_page.screen(found)


def test_one_card_or_none_is_a_report_too():
    lost = FleetNode(node="n001", status="failed", reason="twice", archives=[])
    assert of([], [lost]).failing == ["n001"] and "n001" in fleet_page.html(of([], [lost]))
    assert status(alone := of([measured("n001")])) == "not judged" and "1 × NVIDIA H200" in fleet_page.html(alone)


# ---------------------------------------------------------------- files


def test_archives_collected_by_hand(command, tmp_path, capsys):
    assert command(PAIR, PAIR_AGAIN, SINGLE) == 0
    made = tmp_path / "made"
    assert {path.name for path in made.iterdir()} == set(fleet_report.FILES)
    found = read(Fleet, made / "fleet.json")
    assert [(card.runs, card.device) for card in found.cards] == [(1, "gpu0"), (2, "gpu0"), (1, "gpu1")]
    first, second = (path.name.removesuffix(".tar.gz") for path in (SINGLE, PAIR))
    assert (made / "passing_nodes.txt").read_text() == f"{first},{second}\n"
    assert (made / "failing_nodes.txt").read_text() == ""
    assert "3 × NVIDIA H200" in capsys.readouterr().out


def test_nodes_of_a_fleet_and_a_page_in_another_folder(command, tmp_path):
    (tmp_path / "n1").mkdir()
    for name_, path in (("n1", SINGLE), ("n2", PAIR_AGAIN)):
        (tmp_path / f"{name_}.tar.gz").symlink_to(path)
    told = [("n1", "measured", None, ["n1.tar.gz"]), ("n2", "measured", None, ["n2.tar.gz"])]
    told.append(("n3", "unavailable", "drained: bad fan", []))
    keys = ("node", "status", "reason", "archives")
    listed = FleetNodes(nodes=[FleetNode(**dict(zip(keys, one, strict=True))) for one in told])
    write(listed, tmp_path / "nodes.json")
    assert command("--nodes", tmp_path / "nodes.json") == 1, "a node fails"
    assert (tmp_path / "made/passing_nodes.txt").read_text() == "n1,n2\n"
    assert (tmp_path / "made/failing_nodes.txt").read_text() == "n3\n"
    assert "drained: bad fan" in (tmp_path / "made/fleet.html").read_text()
    assert fleet_report.report(listed, tmp_path) == read(Fleet, tmp_path / "fleet.json")


def fleet_of(tmp_path, places, settings=None):
    """A fleet's report of archives by node, and why nodes failed."""
    for node, path in places.items():
        (tmp_path / node).symlink_to(path)
    nodes = [FleetNode(node=node, status="measured", reason=None, archives=[node]) for node in places]
    found = fleet_report.report(FleetNodes(nodes=nodes), tmp_path, settings)
    assert found == read(Fleet, tmp_path / "fleet.json")
    return found, {one.node: one.reason for one in found.nodes if one.status == "failed"}


def test_an_odd_archive_fails_its_node_and_the_others_are_reported(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def one_of_another_model(path, opened=fleet_report.opened):
        with opened(path) as (results, run):
            if path.name == "n3":
                run.devices["gpu0"] = run.devices["gpu0"].model_copy(update={"name": "NVIDIA A100"})
            yield results, run

    monkeypatch.setattr(fleet_report, "opened", one_of_another_model)
    (tmp_path / "none.tar.gz").write_bytes(b"no archive")
    places = {"n1": PAIR_AGAIN, "n2": SINGLE, "n3": REFERENCE, "n4": PAIR_AGAIN, "n5": tmp_path / "none.tar.gz"}
    found, reasons = fleet_of(tmp_path, places)
    assert set(reasons) == set(found.failing) == {"n3", "n4", "n5"}
    assert {card.node for card in found.cards} == {"n1", "n2"}
    assert (
        "n3: its card is NVIDIA A100" in reasons["n3"]
        and "the same run as n1" in reasons["n4"]
        and "n5" in reasons["n5"]
    )
    assert not any("\n" in reason for reason in reasons.values())


def test_an_archive_of_other_settings_fails_its_node(tmp_path, monkeypatch):
    settings = read_run(REFERENCE).manifest.config | {"plot": {"dpi": 80}}

    @contextlib.contextmanager
    def as_of_this_version(path, opened=fleet_report.opened):
        with opened(path) as (results, run):
            if path.name == "n1":  # which was measured before some settings were there
                run.manifest.config.update(complete(dict(run.manifest.config)).as_dict)
            yield results, run

    monkeypatch.setattr(fleet_report, "opened", as_of_this_version)
    found, reasons = fleet_of(tmp_path, {"n1": REFERENCE, "n2": PAIR, "n3": PAIR_AGAIN}, settings)
    assert set(reasons) == {"n2", "n3"} and found.passing == ["n1"], "most are no measure of what was asked for"
    assert "n2: measured with other settings: cpu is not set, and auto in the fleet's settings" in reasons["n2"]


def test_a_slurm_fleets_report_is_not_overwritten_by_hand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet/plan.json").write_text("{}")
    assert load("fleet_report").main([str(PAIR_AGAIN)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "FLEET=october" in line and len(list((tmp_path / "fleet").iterdir())) == 1


def test_cpus_are_the_cards_where_no_archive_has_a_gpu(command, tmp_path):
    assert command(*CPUS) == 0
    found = read(Fleet, tmp_path / "made/fleet.json")
    assert [card.id for card in found.cards] == [card.node for card in found.cards] and len(found.cards) == 3


def test_what_cannot_be_in_one_report_is_refused_in_a_line_each(command, tmp_path, capsys):
    (tmp_path / "none.tar.gz").write_bytes(b"no archive")
    assert command(tmp_path / "none.tar.gz", tmp_path / "missing.tar.gz", H200S[0]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "none.tar.gz" in lines[0] and "missing.tar.gz" in lines[1]
    assert command(PAIR, REFERENCE.with_name("nvidia-h200-x2") / "run-records.tar.gz") == 2
    assert "run-records.tar.gz: refused, it is the same run as" in capsys.readouterr().err
    assert command() == 2 and len(capsys.readouterr().err.splitlines()) == 1
    assert command("--nodes", tmp_path / "nodes.json") == 2 and len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "made").exists()


def test_other_models_and_efforts_are_named_all_at_once():
    runs = [(f"{one.node}.tar.gz", one) for one in sound(5)]
    model = runs[1][1].run.devices
    model["gpu0"] = model["gpu0"].model_copy(update={"name": "NVIDIA A100"})
    runs[2][1].run.__dict__["manifest"] = runs[2][1].run.manifest.model_copy(update={"config": {"effort": "quick"}})
    with pytest.raises(Refused) as refused:
        fleet_report._require_alike(runs)
    lines = str(refused.value).splitlines()
    assert len(lines) == 2
    assert lines[0] == "n011.tar.gz: refused, its card is NVIDIA A100; allowed: NVIDIA H200, as the rest of this fleet"
    assert lines[1] == "n012.tar.gz: refused, its effort is quick; allowed: default, as the rest of this fleet"


# ---------------------------------------------------------------- a large fleet


def test_a_thousand_cards_are_a_page_of_their_own_that_is_small_and_soon_made(tmp_path):
    runs = [*sound(124, start=100, cards=8), measured("n001", cards=8, slow={"memory": 0.97})]
    start = time.perf_counter()
    fleet_report.write_all(of(runs), tmp_path)
    assert time.perf_counter() - start < SECONDS
    page = (tmp_path / "fleet.html").read_text(encoding="utf-8")
    assert len(page.encode()) < BYTES and page.count('<td class="s ') == 1000
    assert not re.search(r"""(src|href)=|url\(|@import""", page), "it needs no other file"
    assert "n001 gpu0" in page.split("</header>")[0]
    assert len((tmp_path / "FLEET.md").read_text(encoding="utf-8")) < 100_000


# ---------------------------------------------------------------- names


CPU_RUNS = sorted(RUNS.glob("intel-*.tar.gz"))


def placed(folder: Path, name: str) -> list[Path]:
    """A run of a CPU in each of three places."""
    targets = [folder / name.format(number) for number in range(len(CPU_RUNS))]
    for source, target in zip(CPU_RUNS, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return targets


def test_archives_of_a_slurm_fleet_have_their_nodes_names(tmp_path):
    found = fleet_report.report_archives(placed(tmp_path, "fleet/nodes/n{}/run1.tar.gz"), tmp_path / "made")
    assert [card.node for card in found.cards] == ["n0", "n1", "n2"] == [one.node for one in found.nodes]


def test_cpus_whose_archives_have_one_name_are_not_taken_for_one_node(tmp_path):
    with pytest.raises(Refused, match="run1: archives of several nodes have this name; rename them"):
        fleet_report.report_archives(placed(tmp_path, "n{}/run1.tar.gz"), tmp_path / "made")
