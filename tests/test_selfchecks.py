"""What a compute ceiling must satisfy: figures that cannot be are no figures."""

import pytest
from factories import device_record, product, vendor_figures, vendor_peak

from roofline.measure.selfchecks import require_possible

LIMIT = 132 * 4096 * 1980e6 / 1e12  # 1070.5 TFLOPS
PRODUCT = product(4096, library="cuBLASLt", layout="TN", output="fp32")


def peak(rate=4096.0):
    return vendor_peak(989.4, operations_per_clock_per_multiprocessor=rate)


def card(match="exact", sm_clock_max_mhz=1980, **peaks):
    """With such peaks of the vendor's, in TFLOPS by dtype."""
    promised = {dtype: vendor_peak(tflops) for dtype, tflops in peaks.items() if tflops}
    vendor = vendor_figures(match=match, reason="an unknown GH100", peaks=promised)
    return device_record(vendor=vendor, hardware={"multiprocessors": 132, "sm_clock_max_mhz": sm_clock_max_mhz})


@pytest.mark.parametrize("share", [0.1, 1.0009])
def test_up_to_every_multiprocessor_at_the_highest_clock_all_is_well(share):
    assert require_possible("fp16", share * LIMIT, peak(), card()) == []


def test_above_what_the_card_can_do_no_figure_is_written():
    with pytest.raises(ArithmeticError, match="1100 TFLOPS is above 132 multiprocessors"):
        require_possible("fp16", 1100, peak(), card("exact"))


def test_above_what_the_counted_clock_allows_no_figure_is_written():
    """Nor is one by a clock that the device does not report as its highest."""
    assert require_possible("fp16", 0.52 * LIMIT, peak(), card(), 990) == []
    for record in (card(), card(sm_clock_max_mhz=None)):
        with pytest.raises(ArithmeticError, match=r"1039\.5 MHz"):
            require_possible("fp16", 0.53 * LIMIT, peak(), record, 990)


def test_where_the_rate_is_by_formula_it_is_a_doubt():
    (doubt,) = require_possible("fp16", 1100, peak(), card("formula"))
    assert doubt.startswith("fp16: 1100 TFLOPS is above")


@pytest.mark.parametrize(
    ("promised", "record"),
    [(None, card()), (peak(rate=None), card()), (peak(), card(sm_clock_max_mhz=None))],
)
def test_without_a_rate_or_a_clock_nothing_is_impossible_and_that_is_the_doubt(promised, record):
    assert len(require_possible("fp16", 1e9, promised, record)) == 1
    assert require_possible("fp32", 1e9, peak(rate=None), device_record("cpu")) == [], "a CPU has neither"
