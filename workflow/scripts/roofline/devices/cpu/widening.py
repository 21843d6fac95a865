"""Numbers that a CPU cannot compute in, as fp32: piece by piece, in its caches. It loads NumPy."""

import numpy

# The bits of an fp16 number, moved to where fp32 has them, are 2^-112 times the number: the exponents' offsets differ
# by that. What the number is multiplied with makes up for it. Infinity and NaN, which would become numbers, are looked
# for.
FP16_SCALE = 2.0**112
FP16_BITS = numpy.int32(-0x70002000)  # 0x8fffe000: a sign, five bits of exponent, ten of mantissa
FP16_INFINITY = 0x7C00  # from which on are no numbers; with a sign, from 0xfc00 on
# Threads that call NumPy one short time after another wait for the interpreter's lock, and are woken anew each time:
# two cores were seen to go through pieces of 4 MiB, in the third cache, 1.7 (fp16) to 2.9 times (bf16) as fast as
# through pieces of 512 KiB, in the second one.
PIECE_BYTES_PER_CORE, MOST_PIECE_BYTES = 16 << 10, 4 << 20


def piece_items(device) -> int:
    """Numbers that a core widens at once."""
    shared = min(MOST_PIECE_BYTES, device.last_level_cache_bytes // device.cores // 2)
    return max(shared, device.l2_bytes // 2, PIECE_BYTES_PER_CORE * device.cores) // 4


def widened(numbers, wide):
    """fp16 or bf16 as fp32, written to `wide`; fp16 as 2^-112 times the numbers, see FP16_SCALE.

    NumPy converts fp16 one by one: with bits moved by whole arrays a step was four times as fast, with a table of all
    numbers at most twice. The conversion of bf16 is as fast as moving the bits.
    """
    if numbers.dtype != numpy.float16:
        numpy.copyto(wide, numbers)
        return wide
    bits, found = numbers.view(numpy.int16), wide.view(numpy.int32)
    if bits.max() >= FP16_INFINITY or numbers.view(numpy.uint16).max() >= FP16_INFINITY | 0x8000:
        numpy.copyto(wide, numbers)
        wide /= numpy.float32(FP16_SCALE)
        return wide
    numpy.copyto(found, bits)
    numpy.left_shift(found, 13, out=found)
    numpy.bitwise_and(found, FP16_BITS, out=found)
    return wide
