"""What work costs a host: measured before any operator, and carried by the operators' seals."""

import pytest
from factories import device_record as opened_record
from fake_gpu import open_gpu
from hypothesis import given
from hypothesis import strategies as st
from records_factory import SEALED

from roofline.core.cell_prediction import divided_cost_terms, weighted_sum
from roofline.devices import discovery
from roofline.measure.calibration import calibrate, derive_constants
from roofline.measure.sealing import MEASURED_SOURCE, seal_operator
from roofline.operators import registry
from roofline.operators.constants import _GPU_HOST_VALUES as of_host
from roofline.records.calibration_record import HostCost

READ = "read_s_per_byte"
POSITIVE = st.floats(1e-12, 1e-3)


def block(name, count, seconds, amount=1.0):
    return HostCost(constant=name, count=count, amount=amount, samples_s=[seconds], median_s=seconds)


@given(POSITIVE, st.floats(0.01, 1.0), st.integers(2, 128))
def test_one_core_and_all_take_what_they_took(alone, faster, cores):
    """Between a time that all share and one that they divide."""
    together = alone / (1 + faster * (cores - 1))
    found = derive_constants([block(READ, 1, alone), block(READ, cores, together)])
    for count, seconds in ((1, alone), (cores, together)):
        assert weighted_sum(divided_cost_terms(READ, 1.0, count), found) == pytest.approx(seconds, rel=1e-6)


def test_every_host_cost_of_every_operator_is_measured_in_seconds(monkeypatch):
    on_gpu = calibrate(open_gpu(monkeypatch), opened_record("gpu0"), lambda: SEALED)
    assert on_gpu.constants.keys() == of_host.keys()
    record = opened_record("cpu")
    made = calibrate(discovery.open_device("cpu"), record, lambda: SEALED)
    for operator in registry.builtin_operators():
        seal = seal_operator(operator.name, operator.constants, record, SEALED, made)
        assumed = {name for name, source in seal.constant_sources.items() if source != MEASURED_SOURCE}
        assert assumed <= {"blas_share"}
        assert all(seal.constants[name] == made.constants[name] for name in seal.constants.keys() - assumed)
    assert 0 < made.constants["array_operation_s"] < made.constants["handover_s"] < 1e-2
