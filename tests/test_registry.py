"""Which operators there are: the library's own, and a user's file with all that can be wrong with it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline.core.terms import UserError
from roofline.devices.cpu.cpu_identity import discover
from roofline.operators.about import describe_own_operator
from roofline.operators.operator_checks import check_operator
from roofline.operators.registry import collect_operators, load_operator_file, own_files

CHECKOUT = Path(__file__).parents[1]
WHOLE = (CHECKOUT / "examples/gelu.py").read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path):
    def write(old: str = "", new: str = "") -> str:
        assert old in WHOLE
        (tmp_path / "mine.py").write_text(WHOLE.replace(old, new, 1) if old else WHOLE, encoding="utf-8")
        return str(tmp_path / "mine.py")

    return write


def refused(path: str) -> str:
    with pytest.raises(UserError) as error:
        load_operator_file(path)
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"operators: {path}: ")
    return "\n".join([lines[0].removeprefix(f"operators: {path}: "), *lines[1:]])


def test_a_whole_file_is_one_operator_more_than_the_librarys_own(file):
    rules = {rule: operator.name for rule, operator in collect_operators().items()}
    assert rules.items() >= {"decode_attn": "decode_attention", "peak_flops": "gemm", "row_norm": "row_norm"}.items()
    assert all(own_files(operator) == [] for operator in collect_operators().values())
    path = file()
    found = collect_operators([path])
    operator = found["gelu"]
    assert (operator.name, operator.rule, operator.picture, describe_own_operator(operator).title) == ("gelu",) * 3 + (
        "GELU",
    )
    assert operator.path == path and [str(one) for one in own_files(operator)] == [path]
    assert len(found) == len(rules) + 1


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("def flops(", "def other(", "Gelu .*flops"),
        ("def compute(", "def other(", "Arrays .*compute or step"),
        ('name, title, mix = "gelu", "GELU", "copy"', "mix = 'copy'", "Gelu .*name"),
        ("(Arrays, Kernel, OnCpu)", "(Arrays, 3)", "3 .* Implementation"),
        ('name, kind, launches = "cupy", "gpu", 9', 'name = "cupy"', "Arrays .*kind"),
        ('"cupy", "gpu"', '"cupy", "tpu"', "Arrays.kind .*'tpu'.* gpu, .*cpu"),
        ("outputs = GeluSettings,", "outputs = dict,", "Gelu.Settings .* OperatorSettings"),
        ('= "gelu",', '= "ge lu",', "Gelu.rule .*'ge lu'"),
        ('astype("float64"), numpy)', 'astype("float64"), numpy)\n\n\nclass B(Gelu):\n    name = "b"', "b, gelu"),
    ],
)
def test_what_is_wrong_with_a_class_is_named(file, old, new, named):
    assert re.search(named, refused(file(old, new)))


@pytest.mark.parametrize(
    ("text", "line"),
    [(b"x = 1\n\nclass:\n", 3), (b"# a\nx = '\xff'\n", 2), (b"def f():\n\tx = 1\n        y = 2\n", 3)],
    ids=["syntax", "encoding", "tabs"],
)
def test_a_file_that_is_not_python_is_one_line_with_its_place(tmp_path, text, line):
    (tmp_path / "mine.py").write_bytes(text)
    said = refused(str(tmp_path / "mine.py"))
    assert len(said.splitlines()) == 1 and f"mine.py, line {line}" in said


def test_the_working_directory_outlives_an_import(file, tmp_path):
    before = Path.cwd()
    load_operator_file(file("import numpy\n", f"import os\nimport numpy\n\nos.chdir({str(tmp_path)!r})\n"))
    assert Path.cwd() == before


@pytest.mark.parametrize(("key", "lines"), [("m", 1), ("n", 0), ("bytes", 0)])
def test_an_axis_that_no_shape_has_is_refused_before_anything_is_measured(file, key, lines):
    operator = load_operator_file(file("    Settings, impl", f'    axis = ("{key}", "M")\n    Settings, impl'))
    found = check_operator(operator, SimpleNamespace(gelu=operator.Settings()), discover(capacities=False))
    assert len(found) == lines and all("axis: 'm' is not in the shape; allowed: n, bytes" in line for line in found)


def test_bytes_by_which_inputs_would_fill_the_memory_are_refused(file):
    operator = load_operator_file(file('2 * 4 * case.shape["n"]', "0"))
    (line,) = check_operator(operator, SimpleNamespace(gelu=operator.Settings()), discover(capacities=False))
    assert "bytes: 0" in line


@pytest.mark.parametrize("part", ["def jobs(self, config):", "def flops(self, case, scope=None):"])
def test_an_exception_while_a_run_is_planned_is_one_line_with_its_place(file, part):
    path = file(part, f"{part} 1 / 0\n\n    {part.replace('def ', 'def other_')}")
    number = (Path(path).read_text().splitlines()).index(f"    {part} 1 / 0") + 1
    operator = load_operator_file(path)
    (line,) = check_operator(operator, SimpleNamespace(gelu=operator.Settings()), discover(capacities=False))
    assert f"{path}, line {number}: ZeroDivisionError" in line
