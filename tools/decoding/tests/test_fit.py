"""The constants of a decode step are those that its measured steps give (reference/experiments)."""

import runpy
import sys
from types import SimpleNamespace

import pytest
from workflow_run import CHECKOUT


def test_the_fit_of_a_models_step_finds_the_constants_of_the_code(monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    fit = SimpleNamespace(**runpy.run_path(str(CHECKOUT / "reference/experiments/predictions/fit_model.py")))
    constants = {name: one.value for name, one in fit.GPU_CONSTANTS.items()}
    steps = [one for one in fit.cells() if one["model"] == fit.FITTED_ON]
    assert fit.fitted(steps, constants, fit.free_constants()) == pytest.approx(constants, rel=0.01)
