"""Documents that follow from the code: schemas, the table of settings, and the constants of predictions.

`documents()` is what the files must hold; `make documents` writes them, and a test holds the two equal.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from roofline.analysis.table import Roofline
from roofline.core.formatting import capacity, duration, percent
from roofline.devices import datasheets
from roofline.measure.device_seal import AMD_GB_PER_S_PER_CORE, CPU_GB_PER_S_OF_ALL, CPU_GB_PER_S_PER_CORE, CPU_SOURCE
from roofline.models import config_file, families, published
from roofline.models.number_formats import PLAIN
from roofline.operators import about, registry
from roofline.operators.base import GENERIC_CONSTANTS, Constant, Constants
from roofline.operators.settings import EFFORTS, ByEffort, Settings
from roofline.report.markdown import table
from roofline.run.config import config_model

DATASHEETS = Path(__file__).parents[4] / "config" / "datasheets.yaml"
SETTINGS = """# Settings

Every setting of [config/config.yaml](../config/config.yaml). Each key may be left out. Mistakes are reported before
anything is measured, one line each. This page is generated from the code (`make documents`).

Settings that are `null` depend on `effort`; the table gives them as {efforts}. A value in the config wins.

{table}
"""
CONSTANTS = """# The constants of the predictions

What the model of [prediction.md](prediction.md) assumes beside datasheets, and where each value comes from. Every run
seals its own copy: written, and its hash recorded, before any record that carries it is begun. This page is generated
from the code (`make documents`).

What calls cost a host, and on a CPU bytes and numbers, is measured by every run before any operator is timed, and the
measured value is sealed; the values below are those of one host. A cost of a core has a `shared_` part beside it, which
all cores take together (core/host_costs.py).

*Elsewhere* is what is published of other hardware or code; where it is empty, nothing is known here.

{tables}
"""
DECODING = """# What decoding a model costs

```sh
make model MODEL=llama-3-70b CARD=reference/nvidia-h200
make model MODEL=path/to/config.json BATCH=1,8 CONTEXT=1024 CACHE=fp8
make model MODEL=mixtral-8x7b CARD="reference/nvidia-h200,NVIDIA A100-SXM4-80GB"
```

`CARD` is a run (a results folder, or a folder or an archive with one) or a card of
[config/datasheets.yaml](../config/datasheets.yaml): then no GPU is needed, and nothing is measured. Without it, it is
this folder's results; and where their card is in this machine and [a chain of kernels](model_decode.md) can run the
model, steps of it are measured first, by default at batches 1 and 32 and a context of 1024. A default run shows the
same for the `models` of its [config](settings.md): floor, prediction and measurement side by side, or why a step was
not measured. This page is generated from the code (`make documents`).

## The floor

A decode step makes one token for each of a batch of sequences. It reads every weight that it needs once, and the keys
and values of every token that it attends to; it multiplies two FLOPs for each weight and token. So it takes at least
the longer of

- all bytes that it reads, by the measured read of the memory, and
- all FLOPs, each by the measured ceiling of the dtype that it is multiplied in (burst; `sustained` by the other).

No engine whose kernels keep to those ceilings can be faster. A product's ceiling is what the library reached
([limits](limits.md)): a better kernel would lower the floor of steps that computing sets. `one by one` is the sum of
each operation's own limit: what engines whose kernels do not overlap cannot beat. How far an engine stays behind is its
own; see the last table.

**Counted.** Projections, attention, MLP, routed and shared experts, router, norms' weights, biases, sinks, a row of
the embedding, the head. Bytes are those *read*, not those resident: of experts the fewest that a batch can use (its
tokens may all choose the same), and as `expected` those that uniform routing uses. Sliding windows by layer. Latent
attention (DeepSeek) in its absorbed form. Weights in 4 bits are multiplied in 16 bits, as kernels do without
such tensor cores; FP8 in FP8 where the card has it.

**Not counted**, which keeps the floor a floor: activations and the new token's keys and values (they stay on the chip),
the FLOPs of norms, softmax and activation functions, launches, sampling, layers that predict further tokens. *Fits*
counts weights, keys and values alone: an engine needs a few GB more. Weights are not read, only the config.

**No floor** is given by this for engines that make several tokens a step (speculation), for sequences that share a
prefix, and for models so small that their weights stay in the last-level cache.

**Defaults.** A field that the config lacks is taken from the published config class of its model_type, and named. One
whose cost is not known, or an unknown model_type, is an error. Known: {families}.

## Models by name

{models}

## Against what others measured

By the datasheet of each card, since these cards were not measured here. All floors lie below. Left out, since they
name no card or no batch: MLPerf's and TensorRT-LLM's throughput tables, NIM's latencies.

{published}
"""
COLUMNS = ["device", "constant", "what it is", "value", "source", "elsewhere"]


def documents() -> dict[str, str]:
    """The text of every generated document by its path in the repository."""
    operators = registry.registered([])
    config = config_model(operators)
    return {
        "workflow/schemas/config.schema.json": _json(config.model_json_schema()),
        "workflow/schemas/roofline.schema.json": _json(Roofline.model_json_schema()),
        "docs/settings.md": _settings(config),
        "docs/constants.md": _constants(operators),
        "docs/decoding.md": _decoding(),
    }


def _json(schema: dict) -> str:
    return json.dumps(schema, indent=2) + "\n"


def _settings(config: type[BaseModel]) -> str:
    rows = _rows(config)
    return SETTINGS.format(efforts=", ".join(EFFORTS), table=table(["key", "default", "meaning"], rows, left=3))


def _rows(section: type[BaseModel], prefix: str = "") -> Iterator[list[str]]:
    for name, field in section.model_fields.items():
        key, kind = f"{prefix}{name}", field.annotation
        if isinstance(kind, type) and issubclass(kind, Settings):
            yield from _rows(kind, f"{key}.")
        else:
            yield [f"`{key}`", _default(field), field.description]
            for item in _items(kind):
                yield from _rows(item, f"{key}[]." if getattr(kind, "__origin__", None) is list else f"{key}.NAME.")


def _items(kind: Any) -> list[type[BaseModel]]:
    """The models that a list or a mapping of a setting holds."""
    return [part for part in getattr(kind, "__args__", ()) if isinstance(part, type) and issubclass(part, Settings)]


def _default(field: FieldInfo) -> str:
    efforts = [mark for mark in field.metadata if isinstance(mark, ByEffort)]
    if efforts:
        values = [json.dumps(value).replace('"', "") for value in efforts[0]]
        return "`null`: " + ("; " if any("," in value for value in values) else ", ").join(values)
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, dict):
        return ", ".join(f"`{name}`" for name in value)
    return f"`{re.sub(chr(34), '', json.dumps(value))}`"


def _constants(operators: Mapping) -> str:
    each, all_cores = f"{CPU_GB_PER_S_PER_CORE:g} GB/s (AMD {AMD_GB_PER_S_PER_CORE:g})", f"{CPU_GB_PER_S_OF_ALL:g} GB/s"
    of_cpu = [
        "CPU",
        "memory bandwidth",
        "of a core, and what all together approach",
        f"{each}, {all_cores}",
        CPU_SOURCE,
    ]
    parts = [
        "## Devices",
        table(COLUMNS, [[*of_cpu, ""]], left=6),
        "## Operators that declare none",
        _table(GENERIC_CONSTANTS),
    ]
    for operator in operators.values():
        if operator.constants is not GENERIC_CONSTANTS:
            title = about.builtin()[operator.name].title
            parts += [f"## {title[0].upper()}{title[1:]}", _table(operator.constants)]
    return CONSTANTS.format(tables="\n\n".join(parts))


def _decoding() -> str:
    models = [config_file.read(config_file.find(name)) for name in config_file.shipped()]
    rows = [
        [
            f"`{one.name}`",
            f"{one.parameters:,}",
            f"{one.active_parameters:,}" if one.active_parameters != one.parameters else "",
            capacity(one.weight_bytes),
            capacity(one.cache_bytes(1024, PLAIN["bf16"])),
            one.source,
        ]
        for one in models
    ]
    found = published.compared(datasheets.load(DATASHEETS))
    beside = [
        [
            one.model,
            one.what,
            one.card,
            str(one.batch),
            str(one.context),
            duration(one.floor_s),
            duration(one.measured_s),
            percent(one.ratio),
            one.source,
        ]
        for one in found
    ]
    columns = ["model", "parameters", "for a token", "weights", "K/V of 1024 tokens", "source"]
    named = ["model", "engine", "card", "batch", "context", "floor", "measured", "floor of it", "source"]
    return DECODING.format(
        families=", ".join(families.known()),
        models=table(columns, rows),
        published=table(named, beside, left=3),
    )


def _table(by_kind: Mapping[str, Constants]) -> str:
    rows = [
        [kind.upper(), f"`{name}`", one.meaning, _value(name, one.value), one.source, one.elsewhere]
        for kind, constants in by_kind.items()
        for name, one in ((name, Constant(*constant)) for name, constant in constants.items())
    ]
    return table(COLUMNS, rows, left=6)


def _value(name: str, value: float) -> str:
    if not value:
        return "0"
    if name.endswith("_share"):
        return percent(value)
    if "_s_per_" in name:
        unit = name.rpartition("_")[2]
        of = {"byte": "B/s", "flop": "FLOP/s"}.get(unit, f"{unit}s/s")
        return f"1 / ({1 / value / 1e9:.3g} G{of})"
    return duration(value)
