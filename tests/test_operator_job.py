"""The job of an operator, a tiny one, on a device whose clock the test turns."""

import numpy
import pytest
from factories import FakeDevice, clock_of, datasheet_figures, datasheet_peak, device_record, seals_for

from roofline.core.dtypes import array_dtype
from roofline.measure.operator_job import JobPlan, measure_job, predict_job
from roofline.measure.protocol import TimingBudget
from roofline.operators.base import Case, Implementation, Job, Operator

CALL_S, ITEM_S = 5e-6, 1e-9
ITEMS = 1 << 15  # of fp32 in and out: 256 KiB, of which twelve copies are three times the device's cache
COPIES = 12


class ArrayDevice(FakeDevice):
    """NumPy's arrays; a step takes what it adds to `spent_s`."""

    name = "gpu0"

    def time_steps(self, step, count, first=0, read_during=None):
        def seconds(number):
            self.spent_s = 0.0
            step(number)
            return self.spent_s

        return super().time_steps(seconds, count, first, read_during)

    def normal(self, shape, dtype, seed):
        return numpy.random.default_rng(seed).standard_normal(shape).astype(array_dtype(dtype))

    def empty(self, shape, dtype):
        return numpy.empty(shape, array_dtype(dtype))

    def poison(self, array):
        array.fill(numpy.nan)

    def to_host(self, array):
        return array

    def emulation_note(self, dtype):
        return f"{dtype} is emulated" if dtype == "fp16" else None


class Once(Implementation):
    name, kind = "once", "gpu"

    def compute(self, inputs):
        self.device.spent_s += CALL_S + ITEM_S * inputs["x"].size
        self.operator.seen.append(inputs["x"])
        inputs["y"][:] = 2 * inputs["x"]
        return inputs["y"]

    def plan(self):
        return {"blocks": 7}


class Thrice(Once):
    """One call goes through three copies, one after another, and returns what it made of the last."""

    name, graph = "thrice", True

    @property
    def per_call(self):
        return 3

    def step(self, scope):
        return lambda index: [self.compute(self.copies[(3 * index + i) % len(self.copies)]) for i in range(3)][-1]


class OnCpu(Once):
    name, kind = "on cpu", "cpu"


class Doubling(Operator):
    name, mix, outputs = "doubling", "copy", ("y",)
    implementations = (Once, Thrice, OnCpu)

    def __init__(self):
        self.seen = []

    def jobs(self, config):
        return []

    def flops(self, case, scope=None):
        return case.shape["n"]

    def bytes(self, case, scope=None):
        return 2 * case.shape["n"] * array_dtype(case.dtype).itemsize

    def inputs(self, device, case, seed):
        x = device.normal((case.shape["n"],), case.dtype, seed)
        return {"x": x, "y": 2 * x}  # what a step that does nothing would leave is right

    def reference(self, case, inputs):
        return 2 * inputs["x"].astype(numpy.float64)


def record_of(device_kind="gpu"):
    peaks = {"fp32": datasheet_peak(67.0), "fp16": datasheet_peak(990.0)}
    return device_record(f"{device_kind}0".replace("cpu0", "cpu"), datasheet=datasheet_figures(peaks=peaks))


def measured(operator=None, device=None, cases=None, implementations=None, cold=True, **options):
    operator, device = operator or Doubling(), device or ArrayDevice()
    cases = cases or [Case({"n": ITEMS}, "fp32")]
    budget = TimingBudget(**{"warmup": 2, "iterations": 8, "time_budget_s": 1.0} | options)
    plan = JobPlan(operator, device, Job("a/job", tuple(cases)), implementations, cold)
    with clock_of(device):
        return measure_job(plan, seals_for(record_of(device.kind), operator), budget)


def predicted_of(operator=None, cases=None, cold=True):
    operator, device = operator or Doubling(), ArrayDevice()
    job = Job("a/job", tuple(cases or [Case({"n": ITEMS}, "fp32")]))
    return predict_job(JobPlan(operator, device, job, None, cold), seals_for(record_of(device.kind), operator))


def test_every_case_implementation_and_scope_of_the_device_in_their_order():
    cases = [Case({"n": size}, dtype) for size in (4, 8) for dtype in ("fp32", "fp16")]
    found = measured(cases=cases)
    assert [(one.shape["n"], one.dtype, one.implementation) for one in found] == [
        (size, dtype, name) for size in (4, 8) for dtype in ("fp32", "fp16") for name in ("once", "thrice")
    ]
    assert [one.implementation for one in measured(implementations=["thrice", "on cpu"])] == ["thrice"]
    (on_cpu,) = measured(device=ArrayDevice("cpu"))
    assert (on_cpu.implementation, on_cpu.gpu_time) == ("on cpu", None)


def test_a_measurement_says_what_was_computed_and_how_also_of_a_call_that_applies_it_several_times():
    one, thrice = measured()
    assert (one.operator, one.shape) == ("doubling", {"n": ITEMS})
    assert (one.flops, one.bytes, one.per_call, thrice.per_call) == (ITEMS, 8 * ITEMS, 1, 3)
    assert one.plan == {"blocks": 7}
    assert one.check.relative_error == 0 and one.check.tolerance == 1e-5
    assert one.cpu_time.median_s == pytest.approx(CALL_S + ITEMS * ITEM_S)
    assert one.gpu_time.median_s == pytest.approx(one.cpu_time.median_s / 2)
    assert one.overhead_s == pytest.approx(CALL_S + ITEM_S)
    assert one.start_s == pytest.approx(one.overhead_s / 2)
    assert [state.when for state in one.states] == ["before", "after"]
    assert thrice.cpu_time.median_s == pytest.approx(one.cpu_time.median_s)
    assert thrice.gpu_time.median_s == pytest.approx(one.gpu_time.median_s)
    assert thrice.overhead_s == pytest.approx(one.overhead_s)


@pytest.mark.parametrize("part", [slice(None), slice(0, 1)])
@pytest.mark.parametrize("factor", [1.001, numpy.nan])
def test_a_wrong_result_fails_the_job_and_is_named(monkeypatch, part, factor):
    def wrong(self, inputs, compute=Once.compute):
        result = compute(self, inputs)
        result[part] *= factor
        return result

    monkeypatch.setattr(Once, "compute", wrong)
    with pytest.raises(ArithmeticError, match=r"^doubling, once, fp32 n 16: "):
        measured(cases=[Case({"n": 16}, "fp32")], implementations=["once"])


@pytest.mark.parametrize("written", [0, ITEMS - 1])
def test_outputs_are_poisoned_so_that_what_is_not_written_shows(monkeypatch, written):
    def idle(self, inputs):
        self.device.spent_s += CALL_S
        inputs["y"][:written] = 2 * inputs["x"][:written]
        return inputs["y"]

    monkeypatch.setattr(Once, "compute", idle)
    with pytest.raises(ArithmeticError, match="inf"):
        measured(implementations=["once"])


@pytest.mark.parametrize("cold", [True, False])
def test_a_job_is_predicted_as_its_measurements_are_and_without_arrays(monkeypatch, cold):
    cases = [Case({"n": size}, "fp32") for size in (ITEMS, 12 * ITEMS)]
    expected = {one.identity: one.sealed for one in measured(cases=cases, cold=cold)}
    monkeypatch.delattr(ArrayDevice, "normal")
    monkeypatch.delattr(ArrayDevice, "empty")
    assert {one.identity: one.sealed for one in predicted_of(cases=cases, cold=cold)} == expected
    monkeypatch.setattr(Thrice, "costs", lambda self, scope: self.copies[0]["x"], raising=False)
    once, thrice = predicted_of()
    assert once.sealed and once.reason is None
    assert thrice.sealed is None and thrice.reason.startswith("AttributeError")


@pytest.mark.parametrize(("name", "each"), [("once", 1), ("thrice", 3)])
def test_cold_steps_go_through_all_copies_in_turn_and_no_two_are_alike(name, each):
    operator = Doubling()
    (one,) = measured(operator, implementations=[name], iterations=30, warmup=1)
    timed = [x for x in operator.seen if x.size == ITEMS][each:]  # without the check's step
    addresses = [x.ctypes.data for x in timed]
    copies = addresses[:COPIES]
    assert len(set(copies)) == COPIES and len(addresses) >= (1 + 30 + 7) * each
    assert addresses == [copies[place % COPIES] for place in range(len(addresses))], "from warm-up to device time"
    assert len({float(x[0]) for x in timed}) == len({float(x[-1]) for x in timed}) == COPIES
    assert one.cache == "cold"


@pytest.mark.parametrize(
    ("items", "cold", "cached", "cache", "level", "ceilings"),
    [
        (ITEMS, True, True, "cold", "hbm", ["hbm_copy"]),
        (ITEMS, False, True, "warm", "l2", ["l2"]),
        (ITEMS, False, False, "warm", "hbm", ["hbm_copy"]),  # the operator says that no cache serves it
        (ITEMS * 6, False, True, "warm", "hbm", ["hbm_copy"]),  # 1.5 MiB do not stay in a cache of 1 MiB
        (ITEMS * 12, False, True, "cold", "hbm", ["hbm_copy"]),  # and 3 MiB leave nothing of themselves there
    ],
)
def test_the_roof_is_of_the_level_that_the_inputs_come_from(items, cold, cached, cache, level, ceilings):
    operator = Doubling()
    operator.cached_when_warm = cached
    (one,) = measured(operator, cases=[Case({"n": items}, "fp32")], implementations=["once"], cold=cold)
    assert (one.cache, one.memory_level, one.memory_ceilings) == (cache, level, ceilings)


def test_overheads_are_of_each_smallest_case_and_no_longer_than_the_cell():
    operator, cases = Doubling(), [Case({"n": n}, "fp32") for n in (10, 1000)]
    for smallest, seconds in (
        (lambda case: case, [CALL_S + 10 * ITEM_S, CALL_S + 1000 * ITEM_S]),
        (lambda case: None, [None] * 2),
    ):
        operator.smallest = smallest
        found = measured(operator, cases=cases, implementations=["once"])
        assert [one.overhead_s for one in found] == pytest.approx(seconds)
    operator.smallest = lambda case: case.resized(n=100 * ITEMS)
    (one,) = measured(operator, implementations=["once"])
    assert one.overhead_s == one.cpu_time.median_s
    assert one.start_s == one.gpu_time.median_s
