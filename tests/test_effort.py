"""What an effort gives to the budgets that are null, and that the defaults are written alike everywhere."""

from __future__ import annotations

import pytest
import yaml
from workflow_run import CHECKOUT

from roofline.report import screen
from roofline.run import effort, settings

SCHEMA = CHECKOUT / "workflow/schemas/config.schema.yaml"
GIVEN = {"time_budget_s": 7, "sustained_s": 30, "sweep_points": 5}
JOBS = [(rule, device) for rule in ("peak_flops", "bandwidth", "decode_attn") for device in ("gpu0", "cpu")]


def schema() -> dict:
    return yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))


def completed(config: dict) -> dict:
    return settings.complete(config, SCHEMA)


def budgets(config: dict) -> dict:
    """The budgets of the completed settings, by rule and key."""
    whole = completed(config)
    return {(rule, key): whole[rule][key] for rule, key in effort.BUDGETS}


def test_the_default_effort_is_what_nobody_chose():
    assert budgets({}) == budgets({"effort": "default"})
    assert completed({})["effort"] == "default"


@pytest.mark.parametrize("name", effort.EFFORTS)
def test_every_effort_fills_every_budget_that_the_schema_leaves_null(name):
    by_effort = {
        (rule, key)
        for rule in ("peak_flops", "bandwidth", "decode_attn")
        for key, part in schema()["properties"][rule]["properties"].items()
        if "by effort" in part["description"]
    }
    assert by_effort == set(effort.BUDGETS)
    assert all(settings.with_defaults({}, schema())[rule][key] is None for rule, key in by_effort)
    assert all(value is not None for value in budgets({"effort": name}).values())


@pytest.mark.parametrize("name", effort.EFFORTS)
def test_what_an_effort_gives_may_be_given_by_hand(name):
    """Written out, its values are allowed, and mean the same."""
    written: dict = {}
    for (rule, key), value in budgets({"effort": name}).items():
        written.setdefault(rule, {})[key] = value
    assert completed(written) == completed({"effort": name}) | {"effort": "default"}


@pytest.mark.parametrize("name", effort.EFFORTS)
@pytest.mark.parametrize(("rule", "key"), effort.BUDGETS)
def test_a_value_that_is_given_wins_and_null_takes_the_efforts(name, rule, key):
    others = budgets({"effort": name})
    assert budgets({"effort": name, rule: {key: GIVEN[key]}}) == others | {(rule, key): GIVEN[key]}
    assert budgets({"effort": name, rule: {key: None}}) == others


@pytest.mark.parametrize("seconds", [0, 2, 2.5, 600, None])
def test_a_sustained_load_that_is_allowed(seconds):
    found = completed({"peak_flops": {"sustained_s": seconds}})["peak_flops"]["sustained_s"]
    assert found == (2 if seconds is None else seconds)


def test_what_is_no_budget_stays_null():
    assert completed({"effort": "thorough"})["bandwidth"]["size_mib"] is None


def test_the_settings_that_were_given_are_left_as_they_are():
    given = completed({})
    given["bandwidth"]["sweep_points"] = None
    effort.fill(given)
    assert given["bandwidth"]["sweep_points"] is None


def test_a_greater_effort_takes_longer():
    for quick, default, thorough in effort.BUDGETS.values():
        assert quick < default < thorough
    for rule, device in JOBS:
        quick, default, thorough = (screen.expected_s(rule, device, completed({"effort": e})) for e in effort.EFFORTS)
        assert 0 < quick < default < thorough


def test_the_schema_and_the_efforts_have_the_same_names():
    assert tuple(schema()["properties"]["effort"]["enum"]) == effort.EFFORTS


def test_the_file_of_settings_holds_the_schemas_defaults():
    written = yaml.safe_load((CHECKOUT / "config/config.yaml").read_text(encoding="utf-8"))
    assert written == settings.with_defaults({}, schema())


def test_the_settings_and_the_readme_tell_what_each_effort_gives():
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    commented = (CHECKOUT / "config/config.yaml").read_text(encoding="utf-8")
    for (rule, key), (quick, default, thorough) in effort.BUDGETS.items():
        assert f"| `{rule}.{key}` | `null`: {quick}, {default}, {thorough} |" in readme
        lines = [line for line in commented.splitlines() if line.lstrip().startswith(f"{key}: null")]
        assert any(line.endswith(f": {quick}, {default} or {thorough}") for line in lines), key
