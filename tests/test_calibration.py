"""What work costs a host: measured before any operator, and carried by the operators' seals."""

import copy
import time
from types import SimpleNamespace

import pytest
from factories import device_record as opened_record
from hypothesis import given
from hypothesis import strategies as st
from records_factory import CONSTANTS, SEALED, beside, cell, hashes_of, operator_record, operator_seal, results

from roofline import devices
from roofline.core.host_costs import CALL, HANDOVER, SHARED, Block, constants, divided
from roofline.core.prediction import weighted_sum
from roofline.devices import host
from roofline.measure.calibration import calibrate
from roofline.measure.operator_seal import seal_operator
from roofline.operators import registry
from roofline.operators.constants import MEASURED
from roofline.records.calibration import CalibrationRecord, HostCost
from roofline.table.checks.surroundings import QUIET
from roofline.table.load import Asked, load

READ = "product_read_s_per_byte"
POSITIVE = st.floats(1e-12, 1e-3)

# ---------------------------------------------------------------- what follows from blocks


@given(POSITIVE, st.floats(0.01, 1.0), st.integers(2, 128))
def test_one_core_and_all_take_what_they_took(alone, faster, cores):
    """Between a time that all share and one that they divide."""
    together = alone / (1 + faster * (cores - 1))
    found = constants([Block(READ, 1, 1.0, alone), Block(READ, cores, 1.0, together)])
    for count, seconds in ((1, alone), (cores, together)):
        assert weighted_sum(divided(READ, 1.0, count), found) == pytest.approx(seconds, rel=1e-6)


def test_a_line_has_a_start_and_a_slope():
    found = constants([Block(HANDOVER, 1, 10, 400e-6), Block(HANDOVER, 5, 10, 800e-6)])
    assert found == pytest.approx({HANDOVER: 30e-6, "thread_s": 10e-6})
    assert constants([Block(HANDOVER, 1, 10, 400e-6)]) == pytest.approx({HANDOVER: 40e-6, "thread_s": 0})


def test_calls_and_handing_over_are_no_part_of_another_cost():
    known = [Block(CALL, 1, 10, 20e-6), Block(CALL, 4, 40, 80e-6)]  # all of it is shared
    known += [Block(HANDOVER, 1, 1, 30e-6), Block(HANDOVER, 4, 1, 30e-6)]
    found = constants([*known, Block("pass_s_per_byte", 4, 1e6, 1000e-6 + 8 * 2e-6 + 30e-6, calls=8, threads=4)])
    assert found["pass_s_per_byte"] / 4 + found[SHARED + "pass_s_per_byte"] == pytest.approx(1e-9)


# ---------------------------------------------------------------- seals


def test_a_calibration_that_stayed_disturbed_is_told_and_measured_again():
    costs = {"array_operation_s": 2e-6}
    block = HostCost(name="array_operation_s", count=1, amount=1, samples_s=[2e-6], median_s=2e-6)
    made = {"device": "cpu", "device_kind": "cpu", "sealed_at": "2026-11-05T11:59:00+00:00", "elapsed_s": 1.5}
    made |= {"blocks": [block], "constants": constants([block.block])}
    seal = operator_seal("cpu", "scan", CONSTANTS["cpu"] | costs)

    def checked(contention):
        calibrated = CalibrationRecord(**made, contention=contention)
        run = results(operator_record("cpu", cell("cpu", 1.0)), seal, calibrated)
        (quiet,) = [one for one in load(run, Asked(), hashes_of(run)).checks if one.check == QUIET]
        return quiet

    assert (checked(beside()).result, checked(beside()).records) == ("pass", [])
    found = checked(beside(other_cores=4))
    assert (found.result, found.records) == ("fail", ["cpu/calibration.json"])


# ---------------------------------------------------------------- this host


@pytest.fixture(scope="module")
def cpu():
    return devices.open_device("cpu")


def test_every_host_cost_of_every_operator_is_measured_in_seconds(cpu):
    record = opened_record("cpu")
    start = time.monotonic()
    made = calibrate(cpu, record, lambda: SEALED)
    assert time.monotonic() - start < 20  # about two where nobody else works
    for operator in registry.builtin():
        seal = seal_operator(operator, record, SEALED, made)
        assumed = {name for name, source in seal.constant_sources.items() if source != MEASURED}
        assert assumed <= {"blas_share"}
        assert all(seal.constants[name] == made.constants[name] for name in seal.constants.keys() - assumed)
    cost = made.constants
    assert 0 < cost["array_operation_s"] < cost["handover_s"] + cost["thread_s"] < 1e-2


@pytest.mark.parametrize(("cores", "free_bytes"), [(256, 2 << 30), (64, 200 << 20), (1, 200 << 20)])
def test_a_host_of_many_cores_or_of_little_memory_is_calibrated_too(cpu, monkeypatch, cores, free_bytes):
    monkeypatch.setattr(host, "memory_available_bytes", lambda: free_bytes)
    many = copy.copy(cpu)
    many.cores = cores
    many.workers = SimpleNamespace(run=lambda count, work: [work(core) for core in range(count)])
    for work in many.host_costs():
        if work.name not in ("handover_s", "loop_s", "copy_s_per_byte"):  # of threads that this host has not
            work.step(1)
        assert work.amount > 0
