"""The constants of a GPU's predictions are those that their cells give (reference/experiments)."""

import runpy
import sys
from types import SimpleNamespace

import pytest
from workflow_run import CHECKOUT

from roofline.operators.registry import builtin_operators

FITTED = [one for one in builtin_operators() if one.name in ("decode_attention", "gemm", "rmsnorm_matmul", "row_norm")]


@pytest.mark.parametrize("operator", FITTED, ids=lambda one: one.name)
def test_the_fit_finds_the_constants_of_the_code(operator, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    fit = SimpleNamespace(**runpy.run_path(str(CHECKOUT / "reference/experiments/predictions/fit.py")))
    monkeypatch.setitem(fit.fitted.__globals__, "TURNS", 3)  # nine tenths of the way
    constants = {name: one.value for name, one in operator.constants["gpu"].items()}
    found = fit.fitted(fit.cells_of(operator), constants, fit.free_constants(operator))
    assert found == pytest.approx(
        constants, rel=0.03, abs=0
    )  # the sums of split products are 2.7 % off, the others less than 1 %
