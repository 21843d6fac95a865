"""A trial of the model: what is wanted is predicted, measured and scored; what fails is told and the rest goes on."""

import math
import runpy
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpu import open_gpu

from roofline.analysis import trial
from roofline.operators.base import Case, Implementation, Job, Operator
from roofline.report.trial_page import markdown

EXPERIMENT = Path(__file__).parents[1] / "reference" / "experiments" / "other_hardware" / "run.py"
CASE = Case({"n": 1 << 16}, "fp32")


class Copy(Implementation):
    name, kind = "copy", "gpu"

    def compute(self, inputs):
        inputs["y"][...] = inputs["x"]
        return inputs["y"]


class Broken(Copy):
    name = "broken"

    def compute(self, inputs):
        raise RuntimeError("no such kernel")


class Copying(Operator):
    name, mix = "copying", "read"
    unit = "tensor_core"
    outputs = ("y",)
    implementations = (Copy, Broken)

    def jobs(self, config):
        return []

    def flops(self, case, scope=None):
        return case.shape["n"]

    def bytes(self, case, scope=None):
        return 8 * case.shape["n"]

    def inputs(self, device, case, seed):
        return {"x": device.normal((case.shape["n"],), case.dtype, seed), "y": device.empty((case.shape["n"],), "fp32")}

    def reference(self, case, inputs):
        return inputs["x"]


@pytest.fixture
def device(monkeypatch):
    return open_gpu(monkeypatch, multiProcessorCount=4)


def run(device, *wanted, deadline=math.inf, **ceilings):
    promised = SimpleNamespace(name="A fake GPU", device_kind="gpu", hardware={})
    promised.vendor = SimpleNamespace(peaks={}, bandwidth=None)
    return trial.run(device, promised, wanted, deadline, say=lambda line: None)


def cells(name):
    return trial.Cells(Copying(), Job("n", (CASE,)), [name])


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch):
    monkeypatch.setattr(trial, "_ceilings", lambda *arguments: {"fp32": 50.0, "hbm_read": 1000.0, "l2": 2000.0})


def test_what_fails_is_told_and_the_rest_goes_on(device):
    found = run(device, cells("broken"), cells("copy"))
    assert [cell.implementation for cell in found.cells] == ["copy"]
    assert found.score.cells == 1 and found.cells[0].textbook_regime == "memory"
    assert len(found.faults) == 1 and "no such kernel" in found.faults[0]
    page = markdown(found)
    assert "1 of 1" in page or "0 of 1" in page
    assert "copying" in page and "not measured: copying n: RuntimeError" in page


def test_after_the_deadline_nothing_is_begun_and_that_is_told(device):
    found = run(device, cells("copy"), cells("copy"), deadline=time.monotonic() - 1)
    assert found.cells == [] and found.faults == ["no time for 2 of 2 in pass 1 of 3: copying n and what follows"]
    assert markdown(found).startswith("No cell was measured.")


# ---------------------------------------------------------------- parts of a card


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    return SimpleNamespace(**runpy.run_path(str(EXPERIMENT)))


def test_a_part_is_predicted_as_a_card_of_as_many_multiprocessors(experiment):
    from records_factory import VENDOR, device_record

    peak = {"tflops": 800.0, "unit": "tensor_core", "operations_per_clock_per_multiprocessor": None}
    peak |= {"source": "made up", "verified": True, "derived": False}
    vendor = VENDOR.model_validate(VENDOR.model_dump() | {"peaks": {"fp16": peak}})
    record = device_record("gpu0", vendor=vendor)
    part = experiment.scaled(record, SimpleNamespace(name="part", multiprocessors=33), 132)
    assert part.vendor.peaks["fp16"].tflops == 200 and part.vendor.peaks["fp16"].derived
    assert part.vendor.bandwidth == record.vendor.bandwidth
    assert part.hardware["multiprocessors"] == 33 and "33 of 132" in part.name


def test_a_drivers_refusal_names_the_function(experiment):
    refused = SimpleNamespace(name="CUDA_ERROR_INVALID_RESOURCE_TYPE", __int__=lambda self: 914)
    status = type("Status", (), {"__int__": lambda self: 914, "name": refused.name})()
    with pytest.raises(experiment.NoPart, match="cuDevSmResourceSplitByCount: CUDA_ERROR_INVALID_RESOURCE_TYPE"):
        experiment.called("cuDevSmResourceSplitByCount", (status, None))
    assert experiment.called("cuGreenCtxCreate", (0, "context")) == ("context",)


def test_the_device_is_itself_again_after_a_part(experiment, device, monkeypatch):
    """On the part its stream and multiprocessors are the part's, also where measuring fails."""
    import cupy

    monkeypatch.setattr(cupy.cuda, "ExternalStream", lambda address: SimpleNamespace(use=lambda: None), raising=False)
    monkeypatch.setitem(experiment.on_part.__wrapped__.__globals__, "part_of", lambda count: (1, count, ()))
    before = device.stream, device.multiprocessors, device.name
    device.synchronize = lambda: None
    with pytest.raises(ZeroDivisionError), experiment.on_part(device, 0.5) as part:
        assert part.multiprocessors == 2 and part.stream is not before[0] and "part of 2" in part.name
        raise ZeroDivisionError
    assert (device.stream, device.multiprocessors, device.name) == before
