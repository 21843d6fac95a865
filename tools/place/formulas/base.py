"""What a formula sees of an operator's call, and what it gives: FLOPs and least bytes.

A formula is a function of a `Call`, named for operators by `@formula(...)`; every file of this folder is loaded. Names
are without `aten::`. None: the work does not follow from what the trace holds.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path

# By PyTorch's name of a type: bytes of an element, and the dtype of its ceiling.
TYPES = {
    "float": (4, "fp32"),
    "double": (8, "fp64"),
    "c10::Half": (2, "fp16"),
    "c10::BFloat16": (2, "bf16"),
    "c10::Float8_e4m3fn": (1, "fp8_e4m3"),
    "c10::Float8_e5m2": (1, "fp8_e4m3"),
    "signed char": (1, "int8"),
    "unsigned char": (1, "int8"),
    "bool": (1, ""),
    "short": (2, ""),
    "int": (4, ""),
    "long int": (8, ""),
    "c10::complex<float>": (8, "fp32"),
}
# Types in the names of kernels that copy or step through lists of tensors.
IN_NAME = re.compile(r"OpaqueType<(\d+)|\b(c10::BFloat16|c10::Half|float|double|long)\b")


@dataclass(frozen=True)
class Tensor:
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    type: str

    @property
    def item_bytes(self) -> int:
        return TYPES.get(self.type, (4, ""))[0]

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

    def tensors(self, until: int | None = None) -> list[Tensor]:
        lists = (one if isinstance(one, tuple) else (one,) for one in self.inputs[:until])
        return [one for some in lists for one in some if isinstance(one, Tensor)]

    def sizes(self, place: int) -> list[int]:
        """Of an argument such as `[2, 2]` or `1`."""
        return [int(one) for one in re.findall(r"-?\d+", str(self.inputs[place]))] if place < len(self.inputs) else []


@dataclass(frozen=True)
class Work:
    """Of one call."""

    flops: float
    read_bytes: float
    write_bytes: float
    dtype: str = "fp32"  # of the arithmetic; of element-wise work that of CUDA cores
    product: bool = False  # a matrix product, an attention, a convolution: what model FLOPs count
    shape: str = ""


FORMULAS: dict[str, Callable[[Call], Work | None]] = {}


def formula(*names: str):
    """Registers a function for operators."""

    def register(function: Callable[[Call], Work | None]):
        FORMULAS.update(dict.fromkeys(names, function))
        return function

    return register


def find(name: str) -> Callable[[Call], Work | None] | None:
    """The formula of an operator, or of those that start alike, such as `triton_*`."""
    for path in Path(__file__).parent.glob("[a-z]*.py") if not FORMULAS else ():
        import_module(f"formulas.{path.stem}")
    return FORMULAS.get(name) or FORMULAS.get(f"{name.partition('_')[0]}_*")


def read(tensors: Iterable[Tensor | None]) -> int:
    return sum(one.bytes for one in tensors if one)


def mapped(inputs: list[Tensor], flops_each: float, result: Tensor | None = None, item: int | None = None) -> Work:
    """Every input read once, one output written: `result`, or what the inputs broadcast to."""
    if result:
        count, item = result.count, item or result.item_bytes
    else:
        widest = max(inputs, key=lambda one: (bool(one.dims), one.item_bytes * (one.type != "bool")))
        count, item = prod(broadcast(inputs)), item or widest.item_bytes
    return Work(flops_each * count, read(inputs), item * count)


def broadcast(tensors: list[Tensor]) -> list[int]:
    rank = max(len(one.dims) for one in tensors)
    padded = [(1,) * (rank - len(one.dims)) + one.dims for one in tensors]
    return [0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True)]


def item_in(kernel: str) -> int | None:
    """Bytes of an element by the name of a kernel, for lists of tensors, whose types a trace does not hold."""
    found = IN_NAME.search(kernel)
    return found and int(found[1] or {"float": 4, "double": 8, "long": 8}.get(found[2], 2))
