"""Random numbers of the GPU: kernels/random.cu in NumPy, which test_gpu.py compares with a real card."""

import math

import numpy
import pytest
from fake_gpu import random_numbers

DTYPES = ("fp64", "fp32", "fp16", "bf16", "int8", "fp8_e4m3")
COUNT = 1 << 18


@pytest.fixture
def numbers(monkeypatch):
    return random_numbers(monkeypatch)


def test_philox_gives_the_known_answers_of_random123(numbers):
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    for (counter, key), words in (
        (((0, 0, 0, 0), (0, 0)), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (pi, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ):
        assert [int(word) for word in numbers.philox(counter, key)] == words


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_normal(numbers, dtype):
    found = numbers.normal(COUNT, 7, dtype).astype(numpy.float64) / (32 if dtype == "int8" else 1)
    rounding = {"fp8_e4m3": 2**-4, "int8": 2**-6}.get(dtype, 2**-9)
    error = 1 / math.sqrt(COUNT)
    assert abs(found.mean()) < 5 * error
    assert found.var() == pytest.approx(1, abs=5 * math.sqrt(2) * error + rounding**2)
    assert (found**4).mean() == pytest.approx(3, abs=5 * math.sqrt(96) * error + 6 * rounding**2)
    assert abs(numpy.corrcoef(found[:-1], found[1:])[0, 1]) < 5 * error
    assert numpy.abs(found).max() < 7
    if dtype == "int8":
        assert (found.min(), found.max()) == (-127 / 32, 127 / 32)
