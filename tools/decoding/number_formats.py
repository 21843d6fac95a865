"""How weights and caches are stored: bytes of numbers and of their scales, and the dtype of their products."""

import math
from dataclasses import dataclass

from roofline.api import DTYPES

Block = tuple[int, int] | None  # of (outputs, inputs); None: the matrix


@dataclass(frozen=True)
class NumberFormat:
    """Numbers of `bits` bits, with `scale_bytes` for each block."""

    name: str  # of the numbers alone
    bits: int
    product_dtype: str  # if the card has it
    block: Block = None
    scale_bytes: float = 0

    def matrix_bytes(self, outputs: int, inputs: int) -> int:
        """Return the bytes of a matrix of outputs x inputs and of its scales."""
        blocks = math.ceil(outputs / self.block[0]) * math.ceil(inputs / self.block[1]) if self.block else 1
        return -(-outputs * inputs * self.bits // 8) + math.ceil(blocks * self.scale_bytes)


# A card without products of a dtype uses the first of these that it has and that is not narrower.
SUBSTITUTE_DTYPES = ("bf16", "fp16", "fp32")
PLAIN_FORMATS = {dtype: NumberFormat(dtype, DTYPES[dtype].bits, dtype) for dtype in SUBSTITUTE_DTYPES}
# By the names of Hugging Face, which are those of arrays.
HUGGING_FACE_FORMATS = {DTYPES[dtype].array: number_format for dtype, number_format in PLAIN_FORMATS.items()}
PLAIN_FORMATS["fp8"] = NumberFormat("fp8", 8, "fp8_e4m3")
CACHE_DTYPES = ("bf16", "fp16", "fp8")

ROW_BLOCK = (1, 1 << 62)  # a block that holds a row


def fp8_format(block: Block) -> NumberFormat:
    """Return FP8 with an fp32 scale for each block, or one for the matrix."""
    return NumberFormat("fp8", 8, "fp8_e4m3", block, 4)


def fp4_format(group_size: int, product_dtype: str) -> NumberFormat:
    """Return MXFP4 or NVFP4: a scale of 8 bits for each group of inputs, products in 16 bits."""
    return NumberFormat("fp4", 4, product_dtype, (1, group_size), 1)


def integer_format(bits: int, block: Block, product_dtype: str, *, zero_points: bool) -> NumberFormat:
    """Return integers with a scale of 16 bits for each block, and maybe a zero point (GPTQ, AWQ)."""
    return NumberFormat(f"int{bits}", bits, product_dtype, block, 2 + zero_points * bits / 8)
