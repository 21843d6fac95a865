"""Two sides of runs compared: what with what, verdicts, false alarms and what is found; the command."""

import dataclasses
from itertools import combinations
from pathlib import Path

import pytest
import reference_runs
from commands import load
from pictures import overlapping_texts, texts_outside

from roofline.analysis.comparison import BETWEEN_CARDS, Incomparable, compare
from roofline.analysis.known_variation import Stored, stored
from roofline.core.run_spread import Spread
from roofline.records.base import read
from roofline.records.check import CheckResult
from roofline.records.comparison import Comparison
from roofline.report import comparison_figure, comparison_page
from roofline.run.archive import Refused
from roofline.run.jobs import exit_with
from roofline.run.runs import read_run

REFERENCE, CHANGED = reference_runs.H200, ("SLOWER", "FASTER")
OTHER_CARD = "GPU-86f4223b-7c36-2ccf-30fc-9f5c1c8946fd"
SMALL = {"fp32", "fp16", "fp16/sustained", "hbm_read", "l2", "h2d_pageable"}


@pytest.fixture(scope="module")
def run():
    """The reference run's GPU and a few of its figures."""
    whole = read_run(REFERENCE)
    figures = [one for one in whole.quantities if one.device == "gpu0" and (one.key in SMALL or "gemm" in one.key)]
    roofline = whole.roofline.model_copy(update={"checks": []})
    mine = {"gpu0": whole.devices["gpu0"]}
    return dataclasses.replace(whole, devices=mine, roofline=roofline, quantities=figures)


def another(run, source="another", factor=1.0, only=None, card=None, faults=(), **device):
    """A run like this one, its figures times a factor; its card's record with other fields."""
    record = run.devices["gpu0"]
    hardware = record.hardware | {key: device.pop(key) for key in list(device) if key in record.hardware}
    record = record.model_copy(update={"hardware": hardware, **({"uuid": card} if card else {}), **device})
    figures = [one._replace(value=one.value * (factor if only in (None, one.key) else 1.0)) for one in run.quantities]
    roofline = run.roofline.model_copy(update={"checks": list(faults)})
    whole = {"devices": {"gpu0": record}, "quantities": figures, "roofline": roofline}
    return dataclasses.replace(run, source=source, fingerprint=source, **whole)


def knowing(sd=0.001, df=20, cards=None, cards_df=5):
    """A stored spread that is the same for every quantity."""
    return lambda card: dict.fromkeys(
        [*SMALL, *KEYS], Stored(Spread(sd, df), cards and Spread(cards, cards_df), "distribution.json")
    )


KEYS = [one.key for one in read_run(REFERENCE).quantities]


def verdicts(comparison):
    return {one.key: one.verdict for one in comparison.quantities}


def of(comparison, key):
    return next(one for one in comparison.quantities if one.key == key)


def test_a_side_may_be_given_by_a_pattern(tmp_path, monkeypatch):
    """No shell expands A=results/archive/*.tar.gz."""
    monkeypatch.chdir(tmp_path)
    for name in ("b.tar.gz", "a.tar.gz"):
        Path(name).touch()
    assert load("compare").paths("*.tar.gz none.tar.gz", "A") == [
        Path(x) for x in ("a.tar.gz", "b.tar.gz", "none.tar.gz")
    ]


# ---------------------------------------------------------------- verdicts


def test_the_same_run_twice_is_the_same_throughout(run):
    found = compare([run], [dataclasses.replace(run, source="a copy")], known=lambda card: {})
    assert found.identical and set(verdicts(found).values()) == {"SAME"}
    assert {one.ratio for one in found.quantities} == {1.0}
    assert "the same run" in comparison_page.summary(found)


def test_one_run_a_side_of_unknown_spread_is_unclear(run):
    unknown = compare([run], [another(run, factor=0.999)], known=lambda card: {})
    assert set(verdicts(unknown).values()) == {"UNCLEAR"} and unknown.tests == 0
    assert "two or more runs a side would tell it" in of(unknown, "fp16").reason


def test_a_page_explains_the_columns_that_it_has(run):
    unknown, known = (compare([run], [another(run)], known=one) for one in (lambda card: {}, knowing()))
    for page in (comparison_page.markdown, comparison_page.screen):
        assert not {"95 % interval", "would find", "Would find:", "The interval is"} & words_in(page(unknown))
        assert {"95 % interval", "would find", "Would find:", "The interval is"} == words_in(page(known))


def words_in(page):
    return {one for one in ("95 % interval", "would find", "Would find:", "The interval is") if one in page}


def test_slower_faster_and_the_same_with_a_stored_spread(run):
    assert set(verdicts(compare([run], [another(run)], known=knowing())).values()) <= {"SAME", "UNCLEAR"}
    slower = compare([run], [another(run, factor=0.95, only="fp16")], known=knowing())
    assert verdicts(slower)["fp16"] == "SLOWER" and verdicts(slower)["hbm_read"] == "SAME"
    low, high = of(slower, "fp16").ci95
    assert low < 0.95 < high < 1 and of(slower, "fp16").spread_from == "distribution.json"
    time = next(one.key for one in run.quantities if one.kind == "device_time")
    longer = of(compare([run], [another(run, factor=1.1, only=time)], known=knowing()), time)
    assert longer.verdict == "SLOWER" and longer.ratio == pytest.approx(1.1)


def test_the_spread_of_the_runs_given_counts_before_a_stored_one(run):
    sides = [[another(run, f"{side}{i}", factor=1 + 0.03 * i) for i in range(3)] for side in "ab"]
    said = of(compare(*sides, known=knowing(sd=1e-5)), "fp16")
    assert said.spread_from == "these runs" and said.spread == pytest.approx(0.0296, abs=1e-3) and said.spread_df >= 4
    assert said.verdict == "UNCLEAR" and len(said.a) == len(said.b) == 3
    two = of(compare(sides[0][:2], sides[1][:1], known=knowing(sd=1e-5)), "fp16")
    assert two.spread_from == "distribution.json"


def test_few_samples_and_a_disturbed_record_conclude_nothing(run):
    found = compare([run], [another(run, factor=0.5)], known=knowing())
    assert verdicts(found)["fp16"] == "SLOWER"
    assert verdicts(found)["h2d_pageable"] == "UNCLEAR" and "fewer than 7 samples" in of(found, "h2d_pageable").reason
    alone = "no other process on the GPU during measurements"
    fault = CheckResult(
        device="gpu0",
        check=alone,
        result="fail",
        doubts_figures=True,
        reason="1 other process",
        records=["gpu0/peak_flops/fp16.json"],
    )
    disturbed = compare([run], [another(run, factor=0.5, faults=[fault])], known=knowing())
    assert (
        of(disturbed, "fp16").verdict == "UNCLEAR" and "another, which fails: no other" in of(disturbed, "fp16").reason
    )
    assert of(disturbed, "fp32").verdict == "SLOWER"
    sound = another(run, "sound")
    helped = of(compare([run], [sound, another(run, factor=0.5, faults=[fault])], known=knowing()), "fp16")
    assert helped.verdict == "SAME" and len(helped.b) == 1


def test_other_operands_are_no_like_pair(run):
    figures = [one._replace(inputs="zeros") if one.key == "fp16" else one for one in run.quantities]
    other = dataclasses.replace(another(run, factor=1.1), quantities=figures)
    assert "other operands" in of(compare([run], [other], known=knowing()), "fp16").reason


# ---------------------------------------------------------------- cards


def test_of_two_cards_the_spread_between_cards_of_their_model_is_part_of_the_error(run):
    other = another(run, factor=0.95, card=OTHER_CARD)
    unknown = compare([run], [other], known=knowing())
    assert of(unknown, "fp16").verdict == "UNCLEAR" and "more than 22 %" in of(unknown, "fp16").reason
    assert not unknown.subjects[0].same_cards
    assert {one.what for one in unknown.conditions} == {"card"}
    half = compare([run], [another(run, factor=1 - BETWEEN_CARDS - 0.1, card=OTHER_CARD)], known=knowing())
    assert of(half, "fp16").verdict == "SLOWER"
    wide = of(compare([run], [other], known=knowing(cards=0.02)), "fp16")
    assert wide.verdict == "UNCLEAR" and wide.card_spread == pytest.approx(0.02)
    assert of(compare([run], [other], known=knowing(cards=0.0005)), "fp16").verdict == "SLOWER"
    of_two = of(compare([run], [other], known=knowing(cards=0.0005, cards_df=1)), "fp16")
    assert of_two.verdict == "UNCLEAR" and of_two.card_spread is None  # two that agree by chance tell nothing


def test_cards_that_agree_in_one_figure_by_chance_differ_by_as_much_as_in_others_of_its_kind(run):
    def known(card):
        of_cards = {key: 0.03 for key in SMALL} | {"fp16": 0.0}
        return {key: Stored(Spread(0.001, 20), Spread(sd, 2), "distribution.json") for key, sd in of_cards.items()}

    found = of(compare([run], [another(run, factor=0.95, card=OTHER_CARD)], known=known), "fp16")
    assert found.verdict == "UNCLEAR" and found.card_spread > 0.02


def test_of_several_cards_a_side_each_is_one_observation(run):
    sides = [
        [
            another(run, f"{card}{i}", factor=mean * (1 + 0.001 * i), card=f"GPU-{card}")
            for card, mean in side
            for i in (0, 1)
        ]
        for side in ([("1", 1.0), ("2", 1.03)], [("3", 0.97), ("4", 1.0)])
    ]
    said = of(compare(*sides, known=knowing()), "fp16")
    assert said.spread_from == "these cards" and said.card_spread == pytest.approx(0.0212, abs=5e-4)
    assert said.verdict == "UNCLEAR"


def test_the_same_cards_on_both_sides_are_compared_each_with_itself(run):
    def side(name, factor):
        return [
            another(run, f"{name}{card}", card=f"GPU-{card}", factor=factor if card == 2 else 1.0) for card in (1, 2)
        ]

    found = compare(side("a", 1.0), side("b", 0.9), known=knowing())
    assert [one.same_cards for one in found.subjects] == [True, True]
    assert [one.name for one in found.subjects] == ["NVIDIA H200, GPU-1", "NVIDIA H200, GPU-2"]
    assert [one.verdict for one in found.quantities if one.key == "fp16"] == ["SAME", "SLOWER"]


def test_a_card_that_is_on_both_sides_is_compared_with_itself_and_others_with_others(run):
    def cards(*names):
        return [another(run, f"{name} of {names}", card=f"GPU-{name}") for name in names]

    found = compare(cards(1, 2), cards(2), known=knowing())
    assert [one.a_cards for one in found.subjects] == [["GPU-2"]] and found.left_out == ["gpu0, GPU-1: only in A"]
    found = compare(cards(1, 2), cards(2, 3), known=knowing())
    assert [(one.a_cards, one.b_cards) for one in found.subjects] == [(["GPU-2"],) * 2, (["GPU-1"], ["GPU-3"])]
    assert [one.same_cards for one in found.subjects] == [True, False]


def test_another_model_only_where_it_is_asked_for(run):
    a100 = another(run, factor=0.4, card=OTHER_CARD)
    a100.devices["gpu0"].name = "NVIDIA A100"
    with pytest.raises(Incomparable) as refused:
        compare([run], [a100], known=knowing())
    assert "NVIDIA H200 in A, NVIDIA A100 in B: another model; FORCE=1" in str(refused.value)
    forced = compare([run], [a100], force=True, known=knowing())
    assert of(forced, "fp16").ratio == pytest.approx(0.4) and of(forced, "fp16").verdict == "SLOWER"
    assert "model" in {one.what for one in forced.conditions}


def test_fewer_multiprocessors_or_a_slice_are_no_like_pair(run):
    for fields in ({"multiprocessors": 60}, {"mig_slice": True}):
        with pytest.raises(Incomparable):
            compare([run], [another(run, **fields)], known=knowing())


def test_what_differs_is_said_first(run):
    other = another(run, power_limit_w=600.0, software=run.devices["gpu0"].software | {"driver": "570.1"})
    config = other.manifest.config
    config = config | {"effort": "quick", "row_norm": config["row_norm"] | {"warmup": 3}}
    other = dataclasses.replace(other, manifest=other.manifest.model_copy(update={"config": config}))
    found = compare([run], [other], known=knowing())
    told = {one.what: (one.a, one.b) for one in found.conditions}
    assert told["power limit, W"] == ("700", "600") and told["driver"] == ("580.159.04", "570.1")
    assert told["effort"] == ("default", "quick") and "row_norm.warmup 3" in told["settings"][1]
    page = comparison_page.markdown(found)
    assert page.index("power limit") < page.index("### Ceilings")


def test_a_run_on_both_sides_is_refused(run):
    with pytest.raises(Incomparable, match="on both sides"):
        compare([run], [run, another(run)])


# ---------------------------------------------------------------- errors


def test_times_that_the_host_sets_get_no_verdict():
    whole = read_run(REFERENCE)
    modal = next(one for one in whole.quantities if one.modal and one.device == "gpu0")
    found = of(compare([whole], [another(whole, factor=2.0, only=modal.key)], known=knowing()), modal.key)
    assert found.verdict == "UNCLEAR" and "launch-bound" in found.reason


def real_runs():
    """Every run at hand, each once: archives of records, and the reference's."""
    archives = sorted((reference_runs.REFERENCE / "runs").glob("*.tar.gz"))
    runs = [read_run(path) for path in [*archives, REFERENCE]]
    return list({run.fingerprint: run for run in runs}.values())


def test_real_runs_of_the_same_card_show_no_change():
    runs, pairs, alarmed = real_runs(), 0, []
    for one, other in combinations(runs, 2):
        cards = [
            {record.uuid for record in run.devices.values() if record.device_kind == "gpu"} for run in (one, other)
        ]
        same = cards[0] & cards[1] or (not any(cards) and one.devices.keys() == other.devices.keys())
        if same and one.commit == other.commit:
            pairs += 1
            found = compare([one], [other])
            alarmed += [found] if any(one.verdict in CHANGED for one in found.quantities) else []
    assert pairs and len(alarmed) <= 0.05 * pairs


# ---------------------------------------------------------------- page, picture, command


def test_the_committed_spread_is_found_by_quantity():
    known = stored("NVIDIA H200")
    assert known["fp16"].runs.sd < known["fp16/sustained"].runs.sd and "cpu" not in known
    assert stored("no such card") == {}


def test_picture_of_changes(run):
    changed = another(another(run, factor=0.8, only="fp16"), factor=1.5, only="l2")
    found = compare([run], [changed], known=knowing())
    figure = comparison_figure.draw(found)
    assert not overlapping_texts(figure) and not texts_outside(figure)
    assert {"-20", "50"} <= {text.get_text() for text in figure.axes[0].get_xticklabels()}


def run_command(arguments, capsys):
    status = load("compare").main(list(map(str, arguments)))
    return status, capsys.readouterr()


def test_the_command_writes_page_numbers_and_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status, told = run_command([REFERENCE, reference_runs.THOROUGH], capsys)
    assert status in (0, 1) and "two different devices" in told.out
    where = tmp_path / "results/comparison"
    found = read(Comparison, where / "comparison.json")
    assert {path.name for path in where.iterdir()} == {"comparison.json", "comparison.md", "comparison.png"}
    assert of(found, "fp16").verdict and "| fp16 " in (where / "comparison.md").read_text()


def test_the_commands_status(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    slow = [one._replace(value=0.5 * one.value) for one in read_run(REFERENCE).quantities]
    command = load("compare")
    runs = iter(
        [[read_run(REFERENCE)], [dataclasses.replace(read_run(REFERENCE), quantities=slow, fingerprint="slow")]]
    )
    monkeypatch.setattr(command, "read_runs", lambda paths: next(runs))
    monkeypatch.setattr(command, "write_all", lambda *what: None)
    assert command.main([str(REFERENCE), str(REFERENCE)]) == 1
    assert "SLOWER" in capsys.readouterr().out


def test_an_error_that_nobody_foresaw_is_not_taken_for_slower(capsys):
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda arguments: 1 // 0, load("compare").REFUSED)
    assert ended.value.code == 2 and "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("a, b", [("", "x"), ("nowhere.tar.gz", "y.tar.gz"), ("'", "x")])
def test_what_cannot_be_read_is_status_2_and_a_line_each(tmp_path, monkeypatch, capsys, a, b):
    monkeypatch.chdir(tmp_path)
    status, told = run_command([a, b], capsys)
    assert status == 2 and not told.out and "Traceback" not in told.err
    assert 1 <= len(told.err.splitlines()) <= 2


def test_lists_of_paths(tmp_path):
    command = load("compare")
    blank = tmp_path / "two words"
    blank.mkdir()
    assert command.paths(str(blank), "A") == [blank]
    assert command.paths(f"one.tar.gz '{blank}'", "A") == [Path("one.tar.gz"), blank]
    for none in ("", " "):  # make hands over "" where B is left out
        with pytest.raises(Refused, match="A: no run is named"):
            command.paths(none, "A")
