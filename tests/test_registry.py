"""Which operators there are: the library's own, and a user's file with all that can be wrong with it."""

import re
from pathlib import Path

import pytest

from roofline.core.terms import UserError
from roofline.operators.about import describe
from roofline.operators.registry import load, own_files, registered

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
        load(path)
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"operators: {path}: ")
    return "\n".join([lines[0].removeprefix(f"operators: {path}: "), *lines[1:]])


def test_a_whole_file_is_one_operator_more_than_the_librarys_own(file):
    rules = {"decode_attn": "decode_attention", "peak_flops": "gemm"}
    rules |= {name: name for name in ("rmsnorm_matmul", "row_norm")}
    assert {rule: operator.name for rule, operator in registered().items()} == rules
    assert all(own_files(operator) == [] for operator in registered().values())
    path = file()
    found = registered([path])
    operator = found["gelu"]
    assert (operator.name, operator.rule, operator.picture, describe(operator).title) == ("gelu",) * 3 + ("GELU",)
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
        ('"cupy", "gpu"', '"cupy", "tpu"', "Arrays.kind .*'tpu'.* gpu, cpu"),
        ("outputs = GeluSettings,", "outputs = dict,", "Gelu.Settings .* OperatorSettings"),
        ('= "gelu",', '= "ge lu",', "Gelu.rule .*'ge lu'"),
        ('astype("float64"), numpy)', 'astype("float64"), numpy)\n\n\nclass B(Gelu):\n    name = "b"', "b, gelu"),
    ],
)
def test_what_is_wrong_with_a_class_is_named(file, old, new, named):
    assert re.search(named, refused(file(old, new)))
