"""A formula gives an operator's FLOPs and least bytes: a function of a `Call`, registered by `@formula(...)`.

Every file of this folder is loaded, one for each family of operators. Names are without `aten::`. A formula returns
None if the work does not follow from the trace.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows its types once it is loaded
import numpy
import yaml

from roofline.api import COMMON_DTYPE, DTYPES

# NumPy's names of types by PyTorch's.
ARRAY_TYPES = yaml.safe_load(Path(__file__).with_name("types.yaml").read_text(encoding="utf-8"))
DTYPE_NAMES = {dtype.array: dtype.stored_as for dtype in DTYPES.values()}


class UnknownTypeError(LookupError):
    """A type of PyTorch, by its name, whose size or arithmetic is not known."""


def item_bytes(type_name: str) -> int:
    """Return the bytes of an element of a type by PyTorch's name. Raises UnknownTypeError."""
    if type_name not in ARRAY_TYPES:
        raise UnknownTypeError(type_name)
    return numpy.dtype(ARRAY_TYPES[type_name]).itemsize


@dataclass(frozen=True)
class Tensor:
    """A tensor argument as the trace records it: sizes and strides in elements."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    type: str  # PyTorch's name

    @property
    def item_bytes(self) -> int:
        return item_bytes(self.type)

    @property
    def dtype(self) -> str:
        """The project's name of the type, or NumPy's if it has none."""
        array_type = ARRAY_TYPES.get(self.type, self.type)
        return DTYPE_NAMES.get(array_type, array_type)

    @property
    def count(self) -> int:
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """The bytes of memory behind the tensor: what a stride of 0 repeats is one element."""
        return self.item_bytes * prod(size for size, stride in zip(self.dims, self.strides, strict=True) if stride)


@dataclass(frozen=True)
class Call:
    """One call of an operator, as the trace records it."""

    name: str  # without `aten::`; those of other libraries have their namespace
    inputs: tuple  # by argument: a Tensor, a tuple of them, the text of a scalar or list, or None
    kernel: str  # the name of the longest
    blocks: int = 0  # thread blocks of all its kernels
    gradients: tuple[int, ...] = ()  # elements of those that were accumulated before, of each parameter
    ranks: int = 1  # that may share a parameter

    def tensors(self) -> list[Tensor]:
        """Return all tensors among the arguments, in order, those of lists included."""
        lists = [argument if isinstance(argument, tuple) else (argument,) for argument in self.inputs]
        return [member for members in lists for member in members if isinstance(member, Tensor)]

    def argument(self, place: int) -> Any:
        """Return an argument; None if the call has none at that place."""
        return self.inputs[place] if place < len(self.inputs) else None

    def sizes(self, place: int) -> list[int]:
        """Return the integers of an argument such as `[2, 2]` or `1`; [] if the call has no argument at that place."""
        return [int(digits) for digits in re.findall(r"-?\d+", str(self.argument(place)))]


@dataclass(frozen=True)
class CallWork:
    """The FLOPs and the least bytes of one call."""

    flops: float
    read_bytes: float
    write_bytes: float
    dtype: str = COMMON_DTYPE  # of the arithmetic: that of CUDA cores
    product: bool = False  # a matrix product, an attention or a convolution: what MFU counts
    shape: str = ""
    sizes: tuple[int, ...] = ()  # that a product's tiles cover: m, n and k, or channels

    @property
    def moved_bytes(self) -> float:
        return self.read_bytes + self.write_bytes


Formula = Callable[[Call], CallWork | None]
FORMULAS: dict[str, Formula] = {}


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Return a decorator that registers a function as the formula of these operators; `*` stands for any characters.

    Operators of other libraries have their namespace: `*::silu_and_mul`.
    """

    def register(function: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(names, function))
        return function

    return register


@cache
def find_formula_key(name: str) -> str:
    """Return the key in FORMULAS of an operator, whose name is without `aten::`; empty if it has none."""
    if not FORMULAS:
        for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
            import_module(f"formulas.{path.stem}")
    if name in FORMULAS:
        return name
    return next((key for key in FORMULAS if "*" in key and fnmatchcase(name, key)), "")


def find_formula(name: str) -> Formula | None:
    """Return the formula of an operator, whose name is without `aten::`; None if there is none."""
    return FORMULAS.get(find_formula_key(name))


def count_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes of reading each tensor once; None has no bytes."""
    return sum(tensor.bytes for tensor in tensors if tensor)
