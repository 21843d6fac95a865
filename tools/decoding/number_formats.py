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

MXFP4 = NumberFormat("mxfp4", 4, "bf16", (1, 32), 1)


def fp8(block: tuple[int, int] | None) -> NumberFormat:
    """With an fp32 scale for each block, or one for the matrix."""
    words = f" in blocks of {block[0]} x {block[1]}" if block else ""
    return NumberFormat(f"fp8{words}", 8, "fp8_e4m3", block, 4)


def groups(bits: int, size: int, plain: str) -> NumberFormat:
    """Of GPTQ and AWQ: a scale of 16 bits and a zero point for each group of inputs; products in 16 bits."""
    return NumberFormat(f"int{bits} in groups of {size}", bits, plain, (1, size), 2 + bits / 8)


def rows(bits: int, arithmetic: str) -> NumberFormat:
    """With an fp32 scale for each output."""
    return NumberFormat(f"int{bits} by rows", bits, arithmetic, (1, 1 << 62), 4)


def normal_floats() -> NumberFormat:
    """4 bits of bitsandbytes: an fp32 scale for each 64 numbers."""
    return NumberFormat("nf4 in groups of 64", 4, "bf16", (1, 64), 4)
