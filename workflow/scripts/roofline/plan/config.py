"""The sections of the config that are no operator's, and the model of the whole. What they mean: config/config.yaml."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

from roofline.core.dtypes import COMPUTE_CEILINGS, DEFAULT_CEILINGS
from roofline.core.formatting import join_words
from roofline.core.levels import TARGET_NAMES as LEVELS
from roofline.core.terms import DEVICE_TRAITS, AccessPattern, make_printable
from roofline.operators import setting_types
from roofline.operators.base import Operator
from roofline.operators.setting_types import Budget, ByEffort, EachOnce, Effort, Listed, Settings, Whole

SettingsT = TypeVar("SettingsT", bound=BaseModel)


def _zero_or_between(lowest: float, highest: float) -> AfterValidator:
    def within(value: float | None) -> float | None:
        if value and not lowest <= value <= highest:
            raise ValueError(f"should be 0, or from {lowest:g} to {highest:g}")
        return value

    return AfterValidator(within)


# Beyond these, figures overflow or the picture's axes do; nothing real comes near.
Count = Annotated[float, _zero_or_between(1e-3, 1e30)]
Seconds = Annotated[float, Field(ge=1e-12, le=1e12)]
MOST_DRAWN = 1000  # shapes of an operator
# A machine may have several accelerators.
DEVICE_NAME = re.compile("|".join(rf"{kind}\d+" if row.accelerator else kind for kind, row in DEVICE_TRAITS.items()))
Ceiling = Literal[COMPUTE_CEILINGS]  # type: ignore[valid-type]  # a tuple built at run time


def _parse_devices(value: Any) -> Any:
    """Return the devices as a list; a single name becomes a list of one."""
    if value in ("auto", "all"):
        return value
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(DEVICE_NAME.fullmatch(str(name)) for name in names):
        raise ValueError("should be auto, all, or a list of devices such as [gpu0, cpu]")
    return setting_types.require_distinct(names)


class PeakFlopsSettings(Settings):
    """Settings of the compute ceilings: what is measured, the size of the GEMMs, and time budgets in seconds."""

    dtypes: Annotated[
        Listed[Ceiling] | None,
        ByEffort(["fp32", "fp16", "bf16", "fp8_e4m3", "fp32_fma"], list(DEFAULT_CEILINGS), list(COMPUTE_CEILINGS)),
    ] = None
    size: Annotated[int, Field(ge=16)] = 4096
    warmup: Whole = 3
    iterations: Whole = 100
    time_budget_s: Annotated[Budget, ByEffort(0.3, 0.4, 10)] = None
    sustained_s: Annotated[float | None, _zero_or_between(2, 600), ByEffort(0, 3, 10)] = None


class BandwidthSettings(Settings):
    """Settings of the memory ceilings: levels, sizes of arrays in MiB, and time budgets in seconds."""

    levels: Listed[Literal[LEVELS]] = Field(default=list(LEVELS))  # type: ignore[valid-type]  # a tuple built at run time
    size_mib: Whole | None = None
    transfer_size_mib: Whole = 256
    warmup: Whole = 3
    iterations: Whole = 1000
    time_budget_s: Annotated[Budget, ByEffort(0.1, 0.2, 3)] = None
    energy: Annotated[bool | None, ByEffort(False, False, True)] = None
    sweep_points: Annotated[Annotated[int, Field(ge=1, le=32)] | None, ByEffort(2, 3, 8)] = None


class OwnOperationSettings(Settings):
    """An operation that the user places under the roof: its FLOPs, its bytes and, if known, its time in seconds."""

    name: Annotated[str, Field(pattern=r"\S"), AfterValidator(make_printable)]
    flops: Count
    memory_bytes: Count
    dtype: Ceiling
    mix: AccessPattern = "read"
    measured_s: Seconds | None = None
    device: Annotated[str, Field(min_length=1)] | None = None


def _check_operations(operations: list[OwnOperationSettings]) -> list[OwnOperationSettings]:
    setting_types.require_distinct([operation.name for operation in operations])
    if idle := [operation.name for operation in operations if not operation.flops and not operation.memory_bytes]:
        raise ValueError(f"flops and memory_bytes of {join_words(idle)} should not both be 0")
    return operations


class PlotSettings(Settings):
    """Settings of the pictures: dots per inch."""

    dpi: Annotated[int, Field(ge=50, le=600)] = 160


class CostSettings(Settings):
    """The price of the machine, in USD per hour."""

    usd_per_hour: Annotated[float | None, _zero_or_between(1e-9, 1e9)] = None


class Config(Settings):
    """The settings of a run, without the sections of operators."""

    devices: Annotated[Literal["auto", "all"] | list[str], BeforeValidator(_parse_devices)] = "auto"
    cpu: Literal["auto", "all"] = "auto"
    effort: Effort = "default"
    operators: Annotated[list[str], EachOnce] = Field(default=[])
    drawn: Annotated[Annotated[int, Field(ge=0, le=MOST_DRAWN)] | None, ByEffort(0, 2, 24)] = None
    predictions: Annotated[str, Field(min_length=1)] | None = None
    counters: Annotated[
        Literal["auto", "off", "required"] | None,
        BeforeValidator(lambda value: "off" if value is False else value),  # YAML reads `off` as false
        ByEffort("off", "auto", "auto"),
    ] = None
    peak_flops: PeakFlopsSettings = PeakFlopsSettings()
    bandwidth: BandwidthSettings = BandwidthSettings()
    operations: Annotated[list[OwnOperationSettings], AfterValidator(_check_operations)] = Field(default=[])
    plot: PlotSettings = PlotSettings()
    cost: CostSettings = CostSettings()


def config_model(operators: Mapping[str, Operator]) -> type[Config]:
    """Return the model of the complete config, with a section for each of these operators."""
    sections: dict[str, type[Settings]] = {}
    for operator in operators.values():
        if not operator.measured_with_ceilings:
            sections |= {operator.rule: operator.Settings} | operator.sections
    fields: dict[str, Any] = {name: (section, Field(default_factory=section)) for name, section in sections.items()}
    return create_model("Config", __base__=Config, **fields)


def fill_by_effort(section: SettingsT, effort: Effort) -> SettingsT:
    """Return the config, or a section of it, with nulls replaced by the values of the effort."""
    values = {}
    for name, field in type(section).model_fields.items():
        marks = [mark for mark in field.metadata if isinstance(mark, ByEffort)]
        if isinstance(inner := getattr(section, name), BaseModel):
            values[name] = fill_by_effort(inner, effort)
        elif marks and inner is None:
            values[name] = getattr(marks[0], effort)
    return section.model_copy(update=values)
