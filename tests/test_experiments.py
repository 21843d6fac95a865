"""The constants of a GPU's predictions are those that their cells give (reference/experiments)."""

import runpy
import sys
from types import SimpleNamespace

import pytest
from workflow_run import CHECKOUT

from roofline.operators.registry import builtin

FITTED = [one for one in builtin() if one.name in ("decode_attention", "gemm", "rmsnorm_matmul", "row_norm")]


def run(name, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    return SimpleNamespace(**runpy.run_path(str(CHECKOUT / "reference/experiments/predictions" / name)))


@pytest.mark.parametrize("operator", FITTED, ids=lambda one: one.name)
def test_the_fit_finds_the_constants_of_the_code(operator, monkeypatch):
    fit = run("fit.py", monkeypatch)
    constants = {name: one.value for name, one in operator.constants["gpu"].items()}
    found = fit.fitted(fit.cells_of(operator), constants, fit.free_constants(operator))
    assert found == pytest.approx(constants, rel=0.01)


def test_the_fit_of_a_models_step_finds_the_constants_of_the_code(monkeypatch):
    fit = run("fit_model.py", monkeypatch)
    constants = {name: one.value for name, one in fit.GPU.items()}
    steps = [one for one in fit.cells() if one["model"] == fit.FITTED_ON]
    found = fit.fitted(steps, constants, fit.free_constants())
    assert found == pytest.approx(constants, rel=0.01)
