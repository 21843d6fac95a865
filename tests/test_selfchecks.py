"""What a compute ceiling must satisfy: figures that cannot be are no figures."""

import re
from types import SimpleNamespace

import pytest
from small_run import VENDOR, device_record

from roofline.measure.selfchecks import require_above_fp32, require_possible
from roofline.records.compute import Product
from roofline.records.device import VendorPeak

LIMIT = 132 * 4096 * 1980e6 / 1e12  # 1070.5 TFLOPS
PRODUCT = Product(
    library="cuBLASLt",
    shape={"m": 8192, "n": 4096, "k": 2048},
    layout="TN",
    algorithm="1",
    accumulation="fp32",
    output="fp32",
)


def peak(rate=4096.0):
    return VendorPeak(
        tflops=989.4,
        unit="tensor_core",
        operations_per_clock_per_multiprocessor=rate,
        source="made up",
        verified=True,
        derived=False,
    )


def card(match="exact", **hardware):
    hardware = {"multiprocessors": 132, "sm_clock_max_mhz": 1980} | hardware
    vendor = VENDOR.model_copy(update={"match": match, "reason": "an unknown GH100"})
    return device_record("gpu0", hardware=hardware, vendor=vendor)


@pytest.mark.parametrize("match", ["exact", "formula"])
@pytest.mark.parametrize("share", [0.1, 0.99, 1.0, 1.0009])
def test_up_to_every_multiprocessor_at_the_highest_clock_all_is_well(match, share):
    assert require_possible("fp16", share * LIMIT, peak(), card(match)) == []


def test_above_what_the_card_can_do_no_figure_is_written():
    told = r"fp16: 1100 TFLOPS is above 132 multiprocessors x 4096 operations a clock x 1980 MHz = 107\d"
    with pytest.raises(ArithmeticError, match=told):
        require_possible("fp16", 1100, peak(), card("exact"))


def test_where_the_rate_is_by_formula_it_is_a_doubt():
    (doubt,) = require_possible("fp16", 1100, peak(), card("formula"))
    assert doubt.startswith("fp16: 1100 TFLOPS is above 132 multiprocessors")
    assert doubt.endswith("the rate is by formula (an unknown GH100)")


@pytest.mark.parametrize(
    ("promised", "record"),
    [(None, card()), (peak(rate=None), card()), (peak(), card(sm_clock_max_mhz=None))],
)
def test_without_a_rate_or_a_clock_nothing_is_impossible_and_that_is_the_doubt(promised, record):
    for tflops in (1, 1e9):
        (doubt,) = require_possible("fp16", tflops, promised, record)
        assert doubt.startswith("fp16: not held against the highest clock")


@pytest.mark.parametrize("promised", [None, peak(rate=None)])
def test_a_cpu_has_neither_and_is_not_doubted_for_it(promised):
    assert require_possible("fp32", 1e9, promised, device_record("cpu")) == []


class FakeDevice:
    """Its fp32 product reaches so many TFLOPS, but for the first run."""

    def __init__(self, tflops):
        self.asked = []
        self._tflops = tflops

    def product_of_shape(self, dtype, shape):
        self.asked.append((dtype, shape))
        return SimpleNamespace(step=lambda index: None, flops=2e12)

    def step_times(self, step, count, first=0):
        assert count > 2
        return [9.9] + [2 / self._tflops] * (count - 1)


def test_tf32_above_the_same_product_in_fp32_passes():
    device = FakeDevice(55)
    assert require_above_fp32(device, PRODUCT, 400, card()) == []
    assert device.asked == [("fp32", PRODUCT.shape)]


def promising(tf32=None, fp32=None):
    """A card with such peaks of the vendor's."""
    promised = {"tf32": tf32, "fp32": fp32}
    peaks = {dtype: peak().model_copy(update={"tflops": tflops}) for dtype, tflops in promised.items() if tflops}
    record = card()
    return record.model_copy(update={"vendor": record.vendor.model_copy(update={"peaks": peaks})})


NOT_ABOVE = r"tf32: .* TFLOPS is not above the 55(\.\d*)? of the same product"


@pytest.mark.parametrize("tf32", [50, 54.9])
@pytest.mark.parametrize("record", [card(), promising(495), promising(None, 67), promising(495, 67), promising(87, 66)])
def test_tf32_no_faster_than_fp32_did_not_run_as_tf32(tf32, record):
    with pytest.raises(ArithmeticError, match=NOT_ABOVE):
        require_above_fp32(FakeDevice(55), PRODUCT, tf32, record)


@pytest.mark.parametrize("promised", [(35, 67), (73, 73), (85, 67)])
def test_where_the_card_is_promised_no_more_in_tf32_it_is_a_doubt(promised):
    """Cards for graphics, at half the rate."""
    (doubt,) = require_above_fp32(FakeDevice(55), PRODUCT, 50, promising(*promised))
    assert re.match(NOT_ABOVE, doubt)
    assert require_above_fp32(FakeDevice(55), PRODUCT, 60, promising(*promised)) == []
