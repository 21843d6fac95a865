"""The reader of config/datasheets.yaml, which checks it; the file's header says what its fields mean."""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from roofline.core.architectures import ARCHITECTURES
from roofline.core.dtypes import DTYPES, PRODUCT_DTYPES, REGISTER_ONLY_DTYPES
from roofline.core.terms import UserError
from roofline.records.base import Positive
from roofline.records.files import read_yaml

_ON_TENSOR_CORES = frozenset().union(*(architecture.tensor_dtypes for architecture in ARCHITECTURES))
TENSOR_DTYPES = tuple(name for name in PRODUCT_DTYPES if name in _ON_TENSOR_CORES and DTYPES[name].rated)
# The name of a dtype's rate on CUDA cores: a dtype that no tensor core takes has no other.
CUDA_CORE_FIGURES = {
    dtype: f"{dtype}_fma" if dtype in TENSOR_DTYPES else dtype for dtype in REGISTER_ONLY_DTYPES.values()
}
CUDA_CORE_RATES = tuple(CUDA_CORE_FIGURES.values())
PEAK_FIGURES = (*TENSOR_DTYPES, *CUDA_CORE_RATES)

PositiveInt = Annotated[int, Field(gt=0)]
Text = Annotated[str, Field(pattern=r"\S")]
TensorDtype = Literal[TENSOR_DTYPES]  # type: ignore[valid-type]  # of a tuple that follows from tables
PeakFigure = Literal[PEAK_FIGURES]  # type: ignore[valid-type]  # of another
CapabilityText = Annotated[str, Field(pattern=r"^[0-9]+[.][0-9]+$")]


class StrictModel(BaseModel):
    """A mapping of the file: unknown keys, and values of another type, are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def make_mapping_model(kind: type, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> type[StrictModel]:
    """Return the model of a mapping whose values are all of one kind."""
    fields: dict[str, Any] = dict.fromkeys(required, kind) | dict.fromkeys(optional, (kind, None))
    return create_model("Part", __base__=StrictModel, **fields)


class RateClass(StrictModel):
    """Cards whose tensor cores run at a fraction of their architecture's rates, by parts of their names."""

    meaning: Text
    name_contains: list[Text]
    factors: dict[TensorDtype, Annotated[float, Field(ge=0, le=1)]]


class ArchitectureRates(StrictModel):
    """The rates of one multiprocessor of a compute capability."""

    name: Text
    tensor_core: dict[TensorDtype, PositiveInt]
    cuda_core: make_mapping_model(PositiveInt, CUDA_CORE_RATES)  # type: ignore[valid-type]  # made at run time
    tensor_at_boost_clock: list[TensorDtype]
    unverified: list[PeakFigure]
    source: Text


class CardModel(StrictModel):
    """The figures that a vendor prints for one card."""

    device_names: Annotated[list[Text], Field(min_length=1)]
    compute_capability: CapabilityText
    multiprocessors: PositiveInt
    boost_clock_mhz: Positive
    tensor_clock_mhz: Positive
    rate_class: Text
    peaks_tflops: dict[PeakFigure, Positive]
    memory_type: Text
    memory_gb: Positive
    l2_mib: Positive
    bandwidth_gb_per_s: Positive
    power_limit_w: Positive
    unverified: list[Text]
    sources: make_mapping_model(Text, ("device", "peaks", "bandwidth"), ("names", *PEAK_FIGURES))  # type: ignore[valid-type]  # made at run time
    from_formula: list[PeakFigure] = []
    notes: Text = ""


class NvlinkEntry(StrictModel):
    """The bandwidth of one NVLink in one direction, for a compute capability."""

    gb_per_s: Positive
    verified: bool
    source: Text


class Datasheets(StrictModel):
    """The content of config/datasheets.yaml."""

    schema_version: Literal[1]
    rate_classes: dict[str, RateClass]
    architectures: dict[CapabilityText, ArchitectureRates]
    nvlink: dict[CapabilityText, NvlinkEntry]
    nvlinks: dict[str, PositiveInt] = {}
    cards: dict[str, CardModel]


@cache
def read_datasheets(path: Path | str) -> dict:
    """Return the datasheets as they are in the file. Raises UserError with all errors, OSError if it does not open."""
    content = read_yaml(path)
    try:
        Datasheets.model_validate(content)
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in error.errors()]
        raise UserError(lines) from None
    classes = content["rate_classes"]
    for card_id, card in content["cards"].items():
        if card["rate_class"] not in classes:
            allowed = ", ".join(classes)
            raise UserError(f"{path}: cards.{card_id}.rate_class: {card['rate_class']!r}, must be one of {allowed}")
    if unknown := [card_id for card_id in content.get("nvlinks", ()) if card_id not in content["cards"]]:
        raise UserError(f"{path}: nvlinks: {', '.join(unknown)} is not a card of the file")
    return content
