"""Element-wise operators, norms and softmax, which mapped.yaml lists: every tensor read once, one result written."""

from math import prod
from pathlib import Path

import yaml

from formulas.base import Call, CallWork, formula, read

LISTED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
READ, NORMS = (
    {name: count for count, names in LISTED[family].items() for name in names.split()}
    for family in ("elementwise", "norms")
)
READ |= {f"{name}_": count for name, count in READ.items() if not name.endswith("_")}


@formula(*READ)
def elementwise(call: Call) -> CallWork:
    inputs, result = call.tensors()[: READ[call.name]], call.inputs[0]
    count = result.count if call.name.endswith("_") else 0
    if not count:
        result = max(inputs, key=lambda one: (bool(one.dims), one.item_bytes * (one.type != "bool")))
        rank = max(len(one.dims) for one in inputs)
        sides = zip(*((1,) * (rank - len(one.dims)) + one.dims for one in inputs), strict=True)
        count = prod(max(side) if all(side) else 0 for side in sides)
    written = 1 if call.name in LISTED["to_bool"].split() else result.item_bytes + (call.name == "native_dropout")
    return CallWork(count, read(inputs), count * written)  # the mask of a dropout is written too


@formula(*NORMS)
def norm(call: Call) -> CallWork:
    first = call.inputs[0]
    return CallWork(NORMS[call.name] * first.count, read(call.tensors()), first.count * first.item_bytes)
