"""What a compute ceiling is measured with: a matrix product of a library, or a register-only kernel."""

from pydantic import Field

from roofline.records.base import AtLeastOne, Record


class Product(Record):
    """What runs to find a compute ceiling: a matrix product, or a register-only kernel."""

    library: str = Field(description="what computes: cupy.matmul, cuBLASLt, numpy.matmul, a kernel of ours")
    shape: dict[str, AtLeastOne] = Field(description="m, n, k of a product; blocks and threads of a kernel")
    layout: str | None = Field(description="which operands are transposed in memory: TN; null if none can be")
    algorithm: str | None = Field(description="among those that the library offers; null where it chooses by itself")
    accumulation: str
    output: str
