"""Which operators there are: the library's own, and a user's file with all that can be wrong with it."""

import re
import textwrap
from pathlib import Path

import pytest

from roofline.core.terms import UserError
from roofline.operators.about import describe
from roofline.operators.registry import load, own_files, registered

CHECKOUT = Path(__file__).parents[1]

WHOLE = """
    import numpy

    from roofline.operators.base import Case, Implementation, Job, Operator


    class WithNumpy(Implementation):
        name, kind = "numpy", "cpu"

        def compute(self, inputs):
            return inputs["x"].sum(axis=1)


    class WithCupy(Implementation):
        name, kind = "cupy", "gpu"

        def compute(self, inputs):
            return inputs["x"].sum(axis=1)


    class RowSum(Operator):
        name = "row_sum"
        implementations = (WithNumpy, WithCupy)

        def jobs(self, config):
            return [Job("all", (Case({"rows": 4, "columns": 8}, "fp32"),))]

        def flops(self, case, scope=None):
            return case.shape["rows"] * case.shape["columns"]

        def bytes(self, case, scope=None):
            return 4 * case.shape["rows"] * case.shape["columns"]

        def inputs(self, device, case, seed):
            return {"x": device.normal((4, 8), "fp32", seed)}

        def reference(self, case, inputs):
            return inputs["x"].astype(numpy.float64).sum(axis=1)
"""


@pytest.fixture
def file(tmp_path):
    def write(text: str = WHOLE, name: str = "row_sum.py", **replaced) -> str:
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return str(tmp_path / name)

    return write


def refusal(path: str) -> list[str]:
    with pytest.raises(UserError) as error:
        load(path)
    return str(error.value).splitlines()


def refused(path: str) -> str:
    (message,) = refusal(path)
    assert message.startswith(f"operators: {path}: ")
    return message.removeprefix(f"operators: {path}: ")


def test_a_whole_file_is_an_operator_beside_the_others(file):
    path = file()
    operator = registered([path])["row_sum"]
    assert (operator.name, operator.rule, operator.picture) == ("row_sum",) * 3
    assert describe(operator).title == "row sum"
    assert operator.path == path and [str(one) for one in own_files(operator)] == [path]
    assert len(registered([path])) == len(registered()) + 1


def test_modules_beside_a_file_are_found_and_are_sources_of_its_jobs(file):
    beside = file("import sum_of_rows_further\n", name="sum_of_rows.py")
    further = file("import numpy\n", name="sum_of_rows_further.py")
    file("", name="sum_of_nothing.py")
    path = file(**{"import numpy": "import numpy\n    import sum_of_rows"})
    assert [str(one) for one in own_files(load(path))] == [path, beside, further]


@pytest.mark.parametrize("name", ["json.py", "sum_of_columns.py"])
def test_a_module_beside_a_file_that_another_hides_is_named(file, name):
    module = name.removesuffix(".py")
    file("", name=f"one/{name}")
    if module != "json":
        load(file(name="one/op.py", **{"import numpy": f"import numpy\n    import {module}"}))
    file("", name=f"two/{name}")
    path = file(name="two/op.py", **{"import numpy": f"import numpy\n    import {module}"})
    assert refused(path) == f"{name} beside it has the name of another module; rename it"


def test_a_file_that_is_missing_or_no_python(file, tmp_path):
    assert refused(str(tmp_path / "missing.py")) == "no such file"
    assert refused(str(tmp_path)) == "a folder, and a file is needed"
    assert refused(file("a: 1\n", name="row_sum.yaml")) == "not a Python file"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("def first():\n    1 / 0\n\nfirst()\n", "ZeroDivisionError: division by zero"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    ],
)
def test_what_a_file_raises_is_shown_as_python_shows_it(file, text, last):
    path = file(text)
    message, *shown = refusal(path)
    assert (message, shown[-1]) == (f"operators: {path}: not importable", last)
    assert path in "".join(shown)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("def flops(", "def other(", "RowSum lacks flops"),
        ("def compute(", "def other(", "WithNumpy lacks compute or step"),
        ('name = "row_sum"', "pass", "RowSum lacks name"),
        ("implementations = (WithNumpy, WithCupy)", "pass", "RowSum lacks implementations"),
        ("(WithNumpy, WithCupy)", "(WithNumpy, 3)", "3 .* Implementation"),
        ('name, kind = "cupy", "gpu"', 'name = "cupy"', "WithCupy lacks kind"),
        ('"cupy", "gpu"', '"cupy", "tpu"', "WithCupy.kind .*'tpu'; allowed: gpu, cpu"),
        ('name = "row_sum"', 'name, mix = "row_sum", "reads"', "RowSum.mix .*'reads'; allowed: .* copy, triad"),
        ('name = "row_sum"', 'name, unit = "row_sum", "dsp"', "RowSum.unit .*'dsp'; allowed: tensor_core, cuda_core"),
        ('name = "row_sum"', 'name, Settings = "row_sum", dict', "RowSum.Settings .* OperatorSettings"),
        ('name = "row_sum"', 'name = "row sum"', "RowSum.rule .*'row sum'; allowed: letters, digits and _"),
    ],
)
def test_what_is_wrong_with_a_class_is_named(file, old, new, named):
    assert re.fullmatch(named, refused(file(textwrap.dedent(WHOLE).replace(old, new))))


def test_a_file_holds_one_operator(file):
    two = WHOLE + "\n    class Another(RowSum):\n        name = 'another'\n"
    assert refused(file(two)).endswith("and there are: another, row_sum")
    assert refused(file("import numpy\n")).endswith("and there are: none")
    imported = "from roofline.operators.gemm.operator import Gemm\n"
    assert refused(file(imported)).endswith("and there are: none")


@pytest.mark.parametrize("name", ["decode_attn", "gemm", "plot", "operation"])
def test_a_name_that_is_taken(file, name):
    path = file(textwrap.dedent(WHOLE).replace('"row_sum"', f'"{name}"'))
    with pytest.raises(UserError, match=f"operators: {path}: the name '{name}' is already taken"):
        registered([path])
