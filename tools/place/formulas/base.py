"""A formula gives an operator's FLOPs and least bytes: a function of a `Call`, registered by `@formula(...)`.

Every file of this folder is loaded. Names are without `aten::`. None: the work does not follow from the trace.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path

ITEM_BYTES = {"double": 8, "long int": 8, "c10::Half": 2, "c10::BFloat16": 2, "short": 2, "bool": 1, "signed char": 1}
DTYPES = {"float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16", "signed char": "int8"}


@dataclass(frozen=True)
class Tensor:
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    type: str  # PyTorch's name

    @property
    def item_bytes(self) -> int:
        return 1 if "Float8" in self.type or self.type == "unsigned char" else ITEM_BYTES.get(self.type, 4)

    @property
    def dtype(self) -> str:
        return "fp8_e4m3" if "Float8" in self.type else DTYPES.get(self.type, "fp32")

    @property
    def count(self) -> int:
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """Once each: what a stride of 0 repeats is one element."""
        return self.item_bytes * prod(size for size, stride in zip(self.dims, self.strides, strict=True) if stride)


@dataclass(frozen=True)
class Call:
    name: str
    inputs: tuple  # by argument: a Tensor, a tuple of them, the text of a scalar or list, or None
    kernel: str  # the name of the longest

    def tensors(self) -> list[Tensor]:
        lists = (one if isinstance(one, tuple) else (one,) for one in self.inputs)
        return [one for some in lists for one in some if isinstance(one, Tensor)]

    def sizes(self, place: int) -> list[int]:
        """Of an argument such as `[2, 2]` or `1`."""
        return [int(one) for one in re.findall(r"-?\d+", str(self.inputs[place]))] if place < len(self.inputs) else []


@dataclass(frozen=True)
class CallWork:
    flops: float  # of one call
    read_bytes: float
    write_bytes: float
    dtype: str = "fp32"  # of the arithmetic; fp32 is that of CUDA cores
    product: bool = False  # a matrix product, an attention or a convolution: what MFU counts
    shape: str = ""


FORMULAS: dict[str, Callable[[Call], CallWork | None]] = {}


def formula(*names: str):
    def register(function: Callable[[Call], CallWork | None]):
        FORMULAS.update(dict.fromkeys(names, function))
        return function

    return register


def find(name: str) -> Callable[[Call], CallWork | None] | None:
    """The formula of an operator, or of those that start alike, such as `triton_*`."""
    for path in Path(__file__).parent.glob("[a-z]*.py") if not FORMULAS else ():
        import_module(f"formulas.{path.stem}")
    alike = (one for key, one in FORMULAS.items() if key.endswith("*") and name.startswith(key[:-1]))
    return FORMULAS.get(name) or next(alike, None)


def read(tensors: Iterable[Tensor | None]) -> int:
    return sum(one.bytes for one in tensors if one)
