"""kernels/random.cu in NumPy: Philox 4x32-10 and Box and Muller's transform, number by number the same."""

from functools import lru_cache

import numpy

from roofline.core.dtypes import array_dtype

MULTIPLIERS, KEY_STEPS, ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
WORD = 0xFFFFFFFF


def philox(counters, key: tuple[int, int]) -> list:
    """Four random 32-bit words per counter of four words; arrays of uint64 hold them."""
    x = [numpy.asarray(words, numpy.uint64) for words in counters]
    for number in range(ROUNDS):
        key0, key1 = (numpy.uint64((word + number * step) & WORD) for word, step in zip(key, KEY_STEPS, strict=True))
        a, b = (x[2 * place] * numpy.uint64(multiplier) for place, multiplier in enumerate(MULTIPLIERS))
        high_a, high_b = a >> numpy.uint64(32), b >> numpy.uint64(32)
        low_a, low_b = a & numpy.uint64(WORD), b & numpy.uint64(WORD)
        x = [high_b ^ x[1] ^ key0, low_b, high_a ^ x[3] ^ key1, low_a]
    return x


@lru_cache(maxsize=2)
def normal(count: int, seed: int, dtype: str):
    """The first numbers that kernel normal_{dtype} writes for a seed, as the array type of the dtype."""
    each = 2 if dtype == "fp64" else 4
    counters = numpy.arange(-(-count // each), dtype=numpy.uint64)
    zeros = numpy.zeros_like(counters)
    words = philox((counters & numpy.uint64(WORD), counters >> numpy.uint64(32), zeros, zeros), _key(seed))
    if dtype == "fp64":
        a, b = ((high << numpy.uint64(21)) ^ (low >> numpy.uint64(11)) for high, low in (words[:2], words[2:]))
        pairs = _pair((a.astype(numpy.float64) + 0.5) * 2.0**-53, b * 2.0**-52)
    else:
        single = [word.astype(numpy.float32) for word in words]
        of_four = [
            _pair((a + numpy.float32(0.5)) * numpy.float32(2.0**-32), b * numpy.float32(2.0**-31))
            for a, b in (single[:2], single[2:])
        ]
        pairs = [number for pair in of_four for number in pair]
    return _rounded(numpy.stack(pairs, axis=-1).reshape(-1)[:count], dtype)


def _key(seed: int) -> tuple[int, int]:
    return seed & WORD, seed >> 32 & WORD


def _pair(uniform, half_turns):
    radius, angle = numpy.sqrt(-2 * numpy.log(uniform.astype(numpy.float64))), numpy.pi * half_turns
    return radius * numpy.cos(angle), radius * numpy.sin(angle)


def _rounded(values, dtype: str):
    values = values if dtype == "fp64" else values.astype(numpy.float32)
    if dtype == "int8":
        return numpy.clip(numpy.rint(32 * values), -127, 127).astype(numpy.int8)
    return values.astype(array_dtype(dtype))
