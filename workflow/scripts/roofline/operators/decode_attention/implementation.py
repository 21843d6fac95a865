"""What the implementations of decode attention have in common."""

from typing import ClassVar

from roofline.operators.base import Implementation, rotation_copies
from roofline.operators.decode_attention.counts import Shape, traffic_bytes


def product(device, left, right):
    """Matrices multiplied in their own dtype, or in fp32 where the device emulates it."""
    widened = (device.widened(array) for array in (left, right))
    return device.xp.matmul(*widened).astype(left.dtype, copy=False)


def projected_query(device, shape: Shape, hidden, layer: dict):
    """[batch, heads, head size]."""
    query = product(device, hidden, layer["query"]) + layer["query_bias"]
    return query.reshape(shape.batch, shape.heads, shape.head_size)


class DecodeImplementation(Implementation):
    """Steps go round the caches; their result is [batch, heads, d] of a core, [batch, hidden] of a block."""

    scopes = ("core",)
    tolerance: ClassVar[dict[str, float]] = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2}

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.shape, self.dtype = Shape.of(case.shape), case.dtype

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.query, self.hidden = shared["query"], shared["hidden"]
        self.caches = [(copy["keys"], copy["values"]) for copy in copies]
        self.layers = [shared.get("layer")]

    def poison(self) -> None:
        """Overwrite the result, where a step has a buffer of its own for it."""

    def rotated_layers(self) -> list[dict]:
        """The projections' weights, in as many copies as make those of a block cold; one where the caches are warm."""
        first, device = self.shared["layer"], self.device
        moved = traffic_bytes(self.shape, self.dtype, "block")
        copies = 1 if len(self.caches) == 1 else rotation_copies(moved, device.last_level_cache_bytes)
        made = {name: device.rolled(array, copies - 1) for name, array in first.items()}
        return [first, *({name: arrays[place] for name, arrays in made.items()} for place in range(copies - 1))]
