"""Which ceilings a compute capability has, and on which unit: a table by hand against the code."""

from pathlib import Path

import pytest

from roofline.devices import datasheets
from roofline.devices.gpu import capabilities

TABLE = datasheets.load(Path(__file__).parents[1] / "config" / "datasheets.yaml")

CEILINGS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8", "fp64_fma", "fp32_fma", "fp16_fma")
# T: tensor cores, C: CUDA cores; a number: the first compute capability that has the ceiling.
EXPECTED = {
    #        fp64 fp32 tf32   fp16   bf16   fp8    int8   fp64_fma fp32_fma fp16_fma
    "5.2": ("C", "C", "8.0", "5.3", "8.0", "8.9", "7.5", "C", "C", "5.3"),
    "5.3": ("C", "C", "8.0", "C", "8.0", "8.9", "7.5", "C", "C", "C"),
    "6.1": ("C", "C", "8.0", "C", "8.0", "8.9", "7.5", "C", "C", "C"),
    "7.0": ("C", "C", "8.0", "T", "8.0", "8.9", "7.5", "C", "C", "C"),
    "7.2": ("C", "C", "8.0", "T", "8.0", "8.9", "7.5", "C", "C", "C"),
    "7.5": ("C", "C", "8.0", "T", "8.0", "8.9", "T", "C", "C", "C"),
    "8.0": ("T", "C", "T", "T", "T", "8.9", "T", "C", "C", "C"),
    "8.6": ("C", "C", "T", "T", "T", "8.9", "T", "C", "C", "C"),
    "8.7": ("C", "C", "T", "T", "T", "8.9", "T", "C", "C", "C"),
    "8.9": ("C", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
    "9.0": ("T", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
    "10.0": ("T", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
    "10.3": ("T", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
    "11.0": ("C", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
    "12.0": ("C", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
    "12.1": ("C", "C", "T", "T", "T", "T", "T", "C", "C", "C"),
}
UNITS = {"T": "tensor_core", "C": "cuda_core"}


@pytest.mark.parametrize("capability", EXPECTED)
def test_every_ceilings_unit_or_the_reason_why_there_is_none(capability):
    for ceiling, expected in zip(CEILINGS, EXPECTED[capability], strict=True):
        reason = capabilities.unsupported(ceiling, capability)
        if expected in UNITS:
            assert reason is None
            assert capabilities.compute_unit(ceiling, capability) == UNITS[expected]
        else:
            assert reason == f"compute capability {capability}, {ceiling} needs {expected}"


@pytest.mark.parametrize("ceiling", ["fp4", "d2d", ""])
def test_an_unknown_ceiling_is_an_error(ceiling):
    for question in (capabilities.unsupported, capabilities.compute_unit):
        with pytest.raises(KeyError):
            question(ceiling, "9.0")


@pytest.mark.parametrize("capability", TABLE["architectures"])
def test_the_unit_is_the_one_whose_rate_the_datasheets_count(capability):
    """Else a ceiling of CUDA cores would be held against the peak of tensor cores, or the other way round."""
    peaks = datasheets.vendor_figures(
        TABLE,
        name="A card that nobody knows",
        compute_capability=capability,
        multiprocessors=100,
        memory_bytes=1 << 34,
        sm_clock_max_mhz=1500,
        memory_clock_max_mhz=None,
        memory_bus_width_bits=None,
    )["peaks"]
    here = {ceiling for ceiling in CEILINGS if capabilities.unsupported(ceiling, capability) is None}
    assert set(peaks) == here
    assert {name: peak["unit"] for name, peak in peaks.items()} == {
        ceiling: capabilities.compute_unit(ceiling, capability) for ceiling in here
    }
