"""Reads config/datasheets.yaml and checks it; the file's header says what its fields mean."""

import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from roofline.core.dtypes import FIRST_CAPABILITY
from roofline.core.terms import Faults
from roofline.records.files import read_yaml

TENSOR_DTYPES = ("fp64", *FIRST_CAPABILITY)
CUDA_CORE_RATES = ("fp64_fma", "fp32", "fp16_fma")
MULTIPROCESSOR = ("warp_schedulers", "max_warps", "registers", "l1_and_shared_kib", "shared_kib")
MULTIPROCESSOR += ("shared_per_block_kib", "shared_bytes_per_clock", "l1_bytes_per_clock")
FIGURES = ("fp64", "fp64_fma", "fp32", *FIRST_CAPABILITY)

Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, Field(gt=0)]
Text = Annotated[str, Field(pattern=r"\S")]
Capability = Annotated[str, Field(pattern=r"^[0-9]+[.][0-9]+$")]


class Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def part(kind: type, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> type[Part]:
    """A mapping whose values are all of one kind."""
    return create_model("Part", __base__=Part, **dict.fromkeys(required, kind), **dict.fromkeys(optional, (kind, None)))


class RateClass(Part):
    meaning: Text
    name_contains: list[Text]
    factors: dict[Literal[TENSOR_DTYPES], Annotated[float, Field(ge=0, le=1)]]


class Architecture(Part):
    name: Text
    tensor_core: dict[Literal[TENSOR_DTYPES], Whole]
    cuda_core: part(Whole, CUDA_CORE_RATES)
    tensor_at_boost_clock: list[Literal[TENSOR_DTYPES]]
    multiprocessor: part(Whole, MULTIPROCESSOR)
    l2_bytes_per_clock: Positive | None
    unverified: list[Literal[(*TENSOR_DTYPES, *CUDA_CORE_RATES, *MULTIPROCESSOR, "l2_bytes_per_clock")]]
    source: Text


class Card(Part):
    device_names: Annotated[list[Text], Field(min_length=1)]
    compute_capability: Capability
    multiprocessors: Whole
    boost_clock_mhz: Positive
    tensor_clock_mhz: Positive
    rate_class: Text
    peaks_tflops: dict[Literal[FIGURES], Positive]
    memory_type: Text
    memory_gb: Positive
    bandwidth_gb_per_s: Positive
    l2_mib: Positive | None
    power_limit_w: Positive
    pcie_generation: Whole
    unverified: list[Text]
    sources: part(Text, ("device", "peaks", "bandwidth"), ("names", *FIGURES))
    from_formula: list[Literal[FIGURES]] = []
    notes: Text = ""


class Link(Part):
    gb_per_s: Positive
    verified: bool
    source: Text


class Datasheets(Part):
    schema_version: Literal[1]
    rate_classes: dict[str, RateClass]
    architectures: dict[Capability, Architecture]
    nvlink: dict[Capability, Link]
    cards: dict[str, Card]


def read(path: Path | str) -> dict:
    """The datasheets as the file has them.

    Raises ValueError, one line per fault and all faults at once, or OSError where the file cannot be opened.
    """
    try:
        content = read_yaml(path)
        Datasheets.model_validate(content)
    except Faults as error:
        raise ValueError(str(error)) from None
    except ValidationError as error:
        faults = [_line(fault) for fault in error.errors()]
    else:
        faults = _contradictions(**content)
    if faults:
        raise ValueError("\n".join(f"{path}: {fault}" for fault in faults))
    return content


def _line(fault: dict) -> str:
    """One fault: pydantic's own words, which say what is allowed, after the place and the value."""
    place = [step for step in fault["loc"] if step != "[key]"]
    key = ".".join(map(str, place)) or "the file"
    if fault["type"] == "missing":
        return f"{key}: missing"
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key, must be one of {', '.join(_model_at(place[:-1]).model_fields)}"
    ours = {
        "model_type": "must be a mapping",
        "dict_type": "must be a mapping",
        "string_type": "must be text, in quotes",
    }
    must = ours.get(fault["type"]) or re.sub(r"^(Input|String|List) should", "must", fault["msg"])
    return f"{key}: {fault['input']!r}, {must}"


def _model_at(place: list) -> type[Part]:
    kind = Datasheets
    for step in place:
        fields = getattr(kind, "model_fields", None)
        kind = fields[step].annotation if fields else get_args(kind)[-1]
    return kind


def _contradictions(*, rate_classes: dict, architectures: dict, cards: dict, **others) -> list[str]:
    """What is well-formed in itself and yet refers to nothing, or disagrees with something else in the file."""
    faults = [] if "full" in rate_classes else ["rate_classes.full: missing"]
    owners: dict[str, str] = {}
    for card_id, card in cards.items():
        found = [
            f"device_names: {name!r} is already the name of {owners[name]}"
            for name in card["device_names"]
            if owners.setdefault(name, card_id) != card_id
        ]
        if card["tensor_clock_mhz"] > card["boost_clock_mhz"]:
            found.append(f"tensor_clock_mhz: {card['tensor_clock_mhz']}, must not exceed the boost clock")
        for key, known in (("rate_class", rate_classes), ("compute_capability", architectures)):
            if card[key] not in known:
                found.append(f"{key}: {card[key]!r}, must be one of {', '.join(known)}")
        architecture = architectures.get(card["compute_capability"])
        units = {*architecture["tensor_core"], *architecture["cuda_core"]} if architecture else FIGURES
        for figure in card["peaks_tflops"]:
            if figure not in units:
                capability = card["compute_capability"]
                found.append(f"peaks_tflops.{figure}: compute capability {capability} has no unit for it")
        for figure in card["unverified"]:
            if figure not in (card.keys() | card["peaks_tflops"].keys()):
                found.append(f"unverified: {figure!r}, must be a field or a peak of this card")
        for figure in card.get("from_formula", ()):
            if figure not in card["peaks_tflops"] or figure not in card["unverified"]:
                found.append(f"from_formula: {figure!r}, must be in peaks_tflops and in unverified")
        faults += [f"cards.{card_id}.{fault}" for fault in found]
    return faults
