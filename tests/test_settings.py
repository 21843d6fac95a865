"""The configuration: how every mistake is answered, what an effort fills in, and what the machine must hold."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from roofline.core.terms import UserError
from roofline.core.units import GIB
from roofline.devices.base import Identity
from roofline.operators.setting_types import ByEffort
from roofline.plan import targets
from roofline.plan.machine_checks import choose_devices
from roofline.plan.settings import complete, read_file
from roofline.run.estimates import estimate_s

COPY = {"name": "copy", "flops": 0, "memory_bytes": 1.0e9, "dtype": "fp32"}
PRESET = {"layers": 1, "heads": 1, "head_size": 64}


def faults(config: dict) -> list[str]:
    with pytest.raises(UserError) as error:
        complete(config)
    return error.value.lines


# ---------------------------------------------------------------- values

# A setting with its value, the key that the line begins with, and what else it names.
ONE_LINE = [
    ("peak_flops.szie", 1, "peak_flops.szie", "size"),
    ("operations", [{"name": "a", "flops": 1, "dtype": "fp32"}], "operations[0].memory_bytes", "required"),
    ("plot.dpi", "80", "plot.dpi", "'80'"),
    ("plot.dpi", 601, "plot.dpi", "600 (got 601)"),
    ("peak_flops.dtypes", ["fp32", "fp23"], "peak_flops.dtypes[1]", "'fp23'"),
    ("peak_flops.dtypes", ["fp32", "fp32"], "peak_flops.dtypes", "'fp32'"),
    ("peak_flops.time_budget_s", math.inf, "peak_flops.time_budget_s", "inf"),
    ("operations", [COPY | {"flops": 1e40}], "operations[0].flops", "1e+40"),
    ("operations", [COPY, COPY], "operations", "'copy'"),
    ("operations", [COPY | {"memory_bytes": 0}], "operations", "memory_bytes"),
    ("model.presets", {"a": PRESET | {"haeds": 1}}, "model.presets.a.haeds", "heads"),
    ("operators", ["nowhere.py"], "operators", "nowhere.py"),
]


@pytest.mark.parametrize(("setting", "value", "key", "named"), ONE_LINE)
def test_an_error_is_one_line_that_names_key_and_value(setting, value, key, named):
    section, _, name = setting.partition(".")
    (line,) = faults({section: {name: value} if name else value})
    assert line.startswith(f"{key}: ") and named in line and line.isprintable()


def test_names_hold_nothing_that_a_terminal_obeys():
    (one,) = complete({"operations": [COPY | {"name": "a\x1b[31m\nb"}]}).config.operations
    assert one.name == "a [31m b" and faults({"plot": {"a\x1b\nb": 1}})[0].isprintable()


def test_all_faults_are_told_at_once():
    config = {"effrt": 1, "plot": {"dpi": 5, "x": 1}, "bandwidth": {"levels": ["l9", "dram"]}, "devices": 3}
    keys = ["devices", "bandwidth.levels[0]", "plot.dpi", "plot.x", "effrt"]
    assert [line.partition(":")[0] for line in faults(config)] == keys


# ---------------------------------------------------------------- files

FILES = {
    "two keys that stand twice": (
        "devices: auto\ndevices: all\nplot: {}\nplot: {}\n",
        ["line 2: the key 'devices'", "line 4: the key 'plot'"],
    ),
    "code": ("plot: !!python/object/apply:os.system [exit]\n", ["os.system"]),
    "a list": ("- devices\n", ["list"]),
}


@pytest.mark.parametrize(("text", "why"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_read_is_told_by_line(tmp_path, text, why):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_file(path)
    assert len(error.value.lines) == len(why)
    for line, part in zip(error.value.lines, why, strict=True):
        assert line.startswith(str(path)) and part in line and "\n" not in line


# ---------------------------------------------------------------- defaults and efforts


def test_a_section_without_keys_has_the_defaults():
    assert complete({"peak_flops": None}).config.model_dump() == complete({}).config.model_dump()
    assert len(faults({"peak_flps": None})) == 1


def budgets(checked) -> dict:
    """What each budget is filled with, by section and key."""
    config = checked.config
    return {
        (name, key): getattr(getattr(config, name), key)
        for name in type(config).model_fields
        if hasattr(type(getattr(config, name)), "model_fields")
        for key, field in type(getattr(config, name)).model_fields.items()
        for mark in field.metadata
        if isinstance(mark, ByEffort) and not isinstance(mark.default, (list, bool))
    }


def test_every_effort_fills_every_budget_and_a_greater_one_takes_longer():
    quick, default, thorough = (complete({"effort": name}) for name in ByEffort._fields)
    assert budgets(default) == budgets(complete({})) and len(budgets(default)) >= 10
    for key, value in budgets(default).items():
        assert budgets(quick)[key] < value <= budgets(thorough)[key]
    for rule in ("peak_flops", "bandwidth", "decode_attn", "rmsnorm_matmul", "row_norm"):
        times = [estimate_s(rule, checked) for checked in (quick, default, thorough)]
        assert 0 < times[0] < times[1] < times[2]
    assert estimate_s("bandwidth_hbm", thorough, 2) > 60, "the energy roofline is a minute of it"
    assert thorough.config.bandwidth.size_mib is None, "null is its own value where no effort speaks of it"


@pytest.mark.parametrize(
    ("rule", "device", "most_s"), [("peak_flops", "gpu0", 5), ("bandwidth_hbm", "gpu0", 10), ("peak_flops", "cpu", 0)]
)
def test_an_estimate_allows_for_each_load_and_for_what_it_may_go_on(rule, device, most_s):
    loaded, unloaded = (complete({"peak_flops": {"sustained_s": seconds}}) for seconds in (3, 0))
    assert estimate_s(rule, loaded, 1, device) - estimate_s(rule, unloaded, 1, device) == pytest.approx(most_s)


def test_a_budget_that_is_given_wins():
    given = {"effort": "thorough", "peak_flops": {"sustained_s": 0, "time_budget_s": 7.5}}
    expected = {("peak_flops", "sustained_s"): 0, ("peak_flops", "time_budget_s"): 7.5}
    assert budgets(complete(given)) == budgets(complete({"effort": "thorough"})) | expected


# ---------------------------------------------------------------- the user's operators

GELU = str(Path(__file__).parents[1] / "examples/gelu.py")


def test_a_users_operator_has_a_section_with_its_settings_and_budgets():
    config = complete({"operators": [GELU], "gelu": {"sizes": [8]}, "effort": "thorough"}).config
    assert (config.gelu.sizes, config.gelu.cache, config.gelu.time_budget_s) == ([8], "cold", 2)
    assert complete({"operators": [GELU]}).config.gelu.sizes == [1 << 20, 1 << 24]
    (line,) = faults({"operators": [GELU], "gelu": {"sizes": [0]}})
    assert line.startswith("gelu.sizes[0]: ") and "(got 0)" in line
    assert faults({"gelu": {"sizes": [8]}})[0].startswith("gelu: ")
    (line,) = faults({"operators": [GELU, GELU]})
    assert line.startswith(f"operators: '{GELU}'")


def test_a_device_without_code_for_an_operator_is_reported(tmp_path):
    (tmp_path / "mine.py").write_text(Path(GELU).read_text().replace("(Arrays, Kernel, OnCpu)", "(OnCpu,)"))
    mine = str(tmp_path / "mine.py")
    checked = complete({"operators": [mine]})
    asked = targets.build_request(checked, ["gpu0", "cpu"])
    assert asked["without"] == [{"device": "gpu0", "operator": "gelu", "reason": "no implementation for gpu"}]
    assert targets.devices_with(checked.operators["gelu"], checked.config, ["gpu0", "cpu"]) == ["cpu"]
    with pytest.raises(UserError, match="operators: gelu has no implementation for gpu0"):
        choose_devices(complete({"operators": [mine], "devices": ["gpu0"]}), PRESENT)


# ---------------------------------------------------------------- held against the machine

CPU = Identity("cpu", "cpu", "A CPU", "uuid", None, 64 * GIB, 48 * GIB, last_level_cache_bytes=32 << 20)
GPU = Identity("gpu0", "gpu", "NVIDIA H200", "uuid", "580", 141 * GIB, 140 * GIB, 60 << 20, "9.0", multiprocessors=132)
PRESENT = {"gpu0": GPU, "gpu1": replace(GPU, device="gpu1"), "cpu": CPU}


def chosen(config=None, present=PRESENT):
    return choose_devices(complete(config or {}), present)


def impossible(config=None, present=PRESENT) -> list[str]:
    with pytest.raises(UserError) as error:
        chosen(config, present)
    return error.value.lines


@pytest.fixture(autouse=True)
def roomy(monkeypatch):
    """A host of known memory, and CUDA libraries that are all there."""
    monkeypatch.setattr("roofline.devices.host.memory_available_bytes", lambda: 64 * GIB)


def test_which_devices_are_measured():
    assert chosen() == ["gpu0", "cpu"]
    assert chosen({"devices": "all"}) == ["gpu0", "gpu1", "cpu"]
    assert chosen({"devices": ["cpu"]}) == chosen({"devices": "cpu"}) == chosen(present={"cpu": CPU}) == ["cpu"]
    (line,) = impossible({"devices": ["gpu7"]})
    assert line.startswith("devices: gpu7 ") and line.endswith("gpu0, gpu1, cpu")


def test_a_device_that_does_not_work_is_a_fault_of_those_that_are_chosen():
    broken = {"gpu0": replace(GPU, fault="gpu0: CuPy is not installed"), "cpu": CPU}
    assert impossible(present=broken) == ["devices: gpu0: CuPy is not installed"]
    assert chosen({"devices": ["cpu"]}, broken) == ["cpu"]
