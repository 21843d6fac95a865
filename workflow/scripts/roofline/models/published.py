"""Floors beside decode speeds that others measured, by the datasheets of their cards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from roofline.devices import datasheets
from roofline.models import config_file, decoding, floor
from roofline.models.families import build
from roofline.models.floor import Ceilings
from roofline.models.number_formats import PLAIN

PUBLISHED = Path(__file__).with_name("published.yaml")


class Compared(NamedTuple):
    what: str
    model: str
    card: str
    batch: int
    context: int
    floor_s: float
    measured_s: float
    source: str

    @property
    def ratio(self) -> float:
        """Of the measured time; 1 would be an engine at the floor."""
        return self.floor_s / self.measured_s


def compared(sheets: Mapping) -> list[Compared]:
    """Every published speed beside its floor; `sheets` are config/datasheets.yaml."""
    return [_compared(one, sheets) for one in yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))]


def _compared(one: Mapping[str, Any], sheets: Mapping) -> Compared:
    name, ceilings = _card(one["card"], sheets)
    found = config_file.find(one["model"])
    quantised = {"quantization_config": one["quantised"]} if "quantised" in one else {}
    model = build(found["name"], found["source"], {**found["config"], **quantised})
    step = decoding.step(model, one["batch"], one["context"], PLAIN["bf16"])
    measured_s = one["batch"] / one["tokens_per_s"]
    floor_s = floor.floor(step, ceilings).seconds
    return Compared(one["what"], one["model"], name, one["batch"], one["context"], floor_s, measured_s, one["source"])


def _card(named: str | Mapping, sheets: Mapping) -> tuple[str, Ceilings]:
    if isinstance(named, Mapping):
        return named["name"], Ceilings(named["gb_per_s"], named["tflops"])
    return named, of_datasheet(next(one for one in sheets["cards"].values() if named in one["device_names"]))


def of_datasheet(card: Mapping) -> Ceilings:
    """What its vendor promises."""
    tflops = {dtype: value for dtype in datasheets.DTYPES if (value := card["peaks_tflops"].get(dtype))}
    return Ceilings(card["bandwidth_gb_per_s"], tflops)
