"""The energy roofline's fit, of points with known terms."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.energy_record import EnergyPoint, LoadEnergy, MemoryLoad
from roofline.table.energy_roofline import fit_energy

BASE_W, PER_BYTE, PER_FLOP = 165.0, 121e-12, 4.6e-12
MIXES = [(4, 1.0), (8, 1.0), (8, 2.0), (16, 3.0), (32, 1.5), (64, 0.5)]  # FLOP/byte and TB/s


def point(flops_per_byte, tb_per_s, clock_mhz=1980, limited_by=(), off=0.0, why=None, multiply_adds=None):
    bytes_per_s = 1e12 * tb_per_s
    watts = (BASE_W + (PER_BYTE + flops_per_byte * PER_FLOP) * bytes_per_s) * (1 + off)
    energy = LoadEnergy(
        joules=2 * watts, duration_s=2, ticks=20, work=2 * bytes_per_s, power_w=watts, nvml_power_w=watts, reason=why
    )
    load = MemoryLoad(
        duration_s=3,
        settled_after_s=1,
        gb_per_s=1e3 * tb_per_s,
        sm_clock_mhz=clock_mhz,
        temperature_c=50,
        throttle_reasons=list(limited_by),
        energy=energy,
    )
    return EnergyPoint(
        dtype="fp32",
        multiply_adds_per_number=multiply_adds or round(1000 * flops_per_byte + tb_per_s),  # another for each mix
        blocks_per_multiprocessor=1,
        intensity_flops_per_byte=flops_per_byte,
        sustained=load,
    )


def fits(points, **ceilings):
    record = BandwidthRecord.model_construct(device="gpu0", energy_points=points)
    return list(fit_energy("gpu0/bandwidth/hbm.json", record, ceilings))


def test_the_terms_are_found():
    (fit,) = fits([point(*mix) for mix in MIXES])
    assert (fit.base_power_w, fit.joules_per_byte, fit.joules_per_flop) == pytest.approx(
        (BASE_W, PER_BYTE, PER_FLOP), rel=1e-6, abs=0
    )
    assert fit.rms_relative_error == pytest.approx(0, abs=1e-9)


def test_points_at_another_clock_or_under_the_power_limit_do_not_count():
    aside = [point(2, 4.5, 1700, off=0.2), point(1, 4.5, limited_by=["sw_power_cap"], off=0.2), point(3, 1, why="why")]
    (fit,) = fits([*(point(*mix) for mix in MIXES), *aside])
    assert len(fit.points) == len(MIXES) and fit.rms_relative_error < 1e-9
    assert len(fit.left_out) == 3 and "1700 MHz" in fit.left_out[0] and "power" in fit.left_out[1]


def test_repeats_are_held_against_how_the_line_misses():
    points = [point(*mix, off=0.02 * (-1) ** place) for place, mix in enumerate(MIXES)]
    (fit,) = fits([*points, point(*MIXES[2], off=0.021)])
    assert fit.repeats_spread == pytest.approx(1.021 / 1.02 - 1) and fit.rms_relative_error > 0.01
    assert fits(points)[0].repeats_spread is None


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_the_intervals_cover_the_constants_as_often_as_they_say(seed):
    """A coverage of 95 %: of 300 draws 285, and 15 more or less in all but one of ten thousand cases."""
    noise, covered = random.Random(seed), 0
    for _ in range(300):
        (fit,) = fits([point(*mix, off=noise.gauss(0, 0.01)) for mix in MIXES])
        covered += abs(fit.joules_per_byte - PER_BYTE) <= fit.joules_per_byte_half_width
    assert 269 <= covered <= 299


def test_too_few_points_have_no_fit():
    assert fits([point(*mix) for mix in MIXES[:3]]) == []


@pytest.mark.parametrize(
    ("watts", "unit", "above_w"),
    [(700.0, "cuda_core", 700 - BASE_W - 50e12 * PER_FLOP), (300.0, "cuda_core", None), (700.0, "tensor_core", None)],
)
def test_what_a_gemm_on_cuda_cores_draws_above_the_fit_is_on_chip(watts, unit, above_w):
    energy = SimpleNamespace(power_w=watts, joules_per_flop=watts / 50e12, sm_clock_mhz=1970)
    gemm = SimpleNamespace(compute_unit=unit, energy=energy)
    (fit,) = fits([point(*mix) for mix in MIXES], fp32=gemm, fp64=gemm)
    assert fit.gemm_above_fit_w == (above_w and pytest.approx(above_w))
    assert fit.gemm_above_fit_joules_per_flop == (above_w and pytest.approx(above_w / 50e12, rel=1e-6, abs=0))
    for changed in ({"sm_clock_mhz": 1700}, {"joules_per_flop": None}):
        vars(energy).update(changed)
        (fit,) = fits([point(*mix) for mix in MIXES], fp32=gemm)
        assert fit.gemm_above_fit_w is None


def test_terms_that_the_points_do_not_separate_are_not_shown():
    assert fits([point(8, tb_per_s, off=0.1 * tb_per_s) for tb_per_s in (1, 1.5, 2, 2.5)]) == []
