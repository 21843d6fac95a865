"""How weights and caches are stored: bytes of numbers and of their scales, and what they are multiplied in."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class NumberFormat:
    """Numbers of `bits` bits; `scale_bytes` for each block of (outputs, inputs), without blocks once a matrix."""

    name: str
    bits: int
    arithmetic: str  # the dtype of the products, where the card has it
    block: tuple[int, int] | None = None
    scale_bytes: float = 0

    def matrix_bytes(self, outputs: int, inputs: int) -> int:
        blocks = math.ceil(outputs / self.block[0]) * math.ceil(inputs / self.block[1]) if self.block else 1
        return -(-outputs * inputs * self.bits // 8) + math.ceil(blocks * self.scale_bytes)


PLAIN = {
    "bf16": NumberFormat("bf16", 16, "bf16"),
    "fp16": NumberFormat("fp16", 16, "fp16"),
    "fp32": NumberFormat("fp32", 32, "fp32"),
    "fp8": NumberFormat("fp8", 8, "fp8_e4m3"),
}
CACHES = ("bf16", "fp16", "fp8")
# What Hugging Face calls them.
NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# Where a card has no such products, the next of these that it has.
OTHERWISE = {
    "fp8_e4m3": ("bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp32": (),
}

BY_ROW = (1, 1 << 62)  # a block


def fp8(block: tuple[int, int] | None) -> NumberFormat:
    """With an fp32 scale for each block, or one for the matrix."""
    words = f" in blocks of {block[0]} x {block[1]}" if block else ""
    return NumberFormat(f"fp8{words}", 8, "fp8_e4m3", block, 4)


def fp4(size: int, plain: str) -> NumberFormat:
    """MXFP4 and NVFP4: a scale of 8 bits for each group of inputs; products in 16 bits."""
    return NumberFormat(f"fp4 in groups of {size}", 4, plain, (1, size), 1)


def integers(bits: int, block: tuple[int, int] | None, arithmetic: str, *, zero_points: bool = False) -> NumberFormat:
    """GPTQ and AWQ, for one: a scale of 16 bits for each block, and a zero point unless they are symmetric."""
    return NumberFormat(f"int{bits}", bits, arithmetic, block, 2 + zero_points * bits / 8)


INT8 = NumberFormat("int8 by rows", 8, "int8", BY_ROW, 4)  # of bitsandbytes


def four_bits(double: bool) -> NumberFormat:
    """Of bitsandbytes: an fp32 scale for each 64 numbers, or `double`: 8 bits, and an fp32 scale for 256 of those."""
    return NumberFormat("4 bits in groups of 64", 4, "bf16", (1, 64), 1 + 4 / 256 if double else 4)
