"""The sections of the config that are no operator's, and the model of the whole: one source of checks and documents."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

from roofline.devices.datasheets import CEILINGS
from roofline.devices.levels import NAMES as LEVELS
from roofline.operators.base import Operator
from roofline.operators.settings import EFFORTS, Budget, ByEffort, EachOnce, Settings, Whole

# Beyond these, figures overflow or the picture's axes do; nothing real comes near.
COUNTS, SECONDS, PRICE = (1e-3, 1e30), (1e-12, 1e12), (1e-9, 1e9)


def _zero_or(lowest: float, highest: float):
    def within(value: float | None) -> float | None:
        if value and not lowest <= value <= highest:
            raise ValueError(f"allowed: 0, or from {lowest:g} to {highest:g}")
        return value

    return AfterValidator(within)


def _zero_or_long(value: float | None) -> float | None:
    if value and not 2 <= value <= 600:
        raise ValueError("allowed: 0, or a number from 2 to 600, or null")
    return value


def _devices(value: Any) -> Any:
    """auto, all, or a list of devices' names; a name alone is a list of one."""
    allowed = "auto, all, or a list such as [gpu0, cpu]"
    if value in ("auto", "all"):
        return value
    if isinstance(value, str) and re.fullmatch(r"cpu|gpu\d+", value):
        return [value]
    if not isinstance(value, list):
        raise ValueError(f"is unknown; allowed: {allowed}")
    if not value:
        raise ValueError(f"is empty; allowed: {allowed}")
    for place, name in enumerate(value):
        if not isinstance(name, str) or not (name == "cpu" or (name.startswith("gpu") and name[3:].isdigit())):
            raise ValueError(f"{name!r} is unknown; allowed: {allowed}")
        if name in value[:place]:
            raise ValueError(f"{name!r} is listed twice; allowed: each once")
    return value


def _counters(value: Any) -> Any:
    """YAML reads `off` as false."""
    return "off" if value is False else value


QUICK_CEILINGS = ["fp32", "fp16", "bf16", "fp8_e4m3", "fp32_fma"]
Dtypes = Annotated[list[Literal[CEILINGS]], Field(min_length=1), EachOnce]


class PeakFlopsSettings(Settings):
    """Compute ceilings, one job each. What a device lacks is skipped with the reason."""

    dtypes: Annotated[Dtypes | None, ByEffort(QUICK_CEILINGS, list(CEILINGS), list(CEILINGS))] = Field(
        default=None,
        description="matrix products by dtype, and multiply-adds in registers (fma), on CUDA cores or a CPU; null: by "
        "effort",
    )
    size: Annotated[int, Field(ge=16)] = Field(
        default=4096,
        description="rows and columns of the reference GEMM; it must fill the GPU, and on the CPU be 256 or more",
    )
    warmup: Whole = Field(default=3, description="products before the timed ones")
    iterations: Whole = Field(default=100, description="timed products")
    time_budget_s: Annotated[Budget, ByEffort(0.3, 0.4, 10)] = Field(
        default=None,
        description="seconds for the search of the fastest product, and for each timed block: a slow device gives "
        "fewer samples, never a long wait; null: by effort",
    )
    sustained_s: Annotated[float | None, AfterValidator(_zero_or_long), ByEffort(0, 3, 10)] = Field(
        default=None, description="seconds of load without a pause, 2 to 600; 0: none; null: by effort"
    )


class BandwidthSettings(Settings):
    """Memory ceilings, one job per level: dram and sweep of the CPU, all but dram of a GPU."""

    levels: Annotated[list[Literal[LEVELS]], Field(min_length=1), EachOnce] = Field(
        default=list(LEVELS),
        description="hbm (a GPU's memory, by kernels that read, write, copy...), d2d (the driver's copies), l2, l1, "
        "shared, h2d and d2h (between host and device), p2p (between GPUs, where several are measured), dram, sweep "
        "(reads over sizes of the working set)",
    )
    size_mib: Whole | None = Field(
        default=None,
        description="MiB of each array of hbm, d2d, p2p and dram, twice the last-level cache or more; null: as large "
        "as needed (on a GPU 4 GiB where memory allows, 1 GiB of p2p; on a CPU 2 to 4 times the last-level cache)",
    )
    transfer_size_mib: Whole = Field(default=256, description="MiB copied between host and device")
    warmup: Whole = Field(default=3, description="runs before the timed ones")
    iterations: Whole = Field(
        default=1000, description="most samples; sampling ends once the median's 95 % interval is within 0.5 %"
    )
    time_budget_s: Annotated[Budget, ByEffort(0.1, 0.2, 3)] = Field(
        default=None,
        description="seconds per stream (one mix of accesses to one level); copies from and to the host have twice as "
        "long; null: by effort",
    )
    sweep_points: Annotated[Annotated[int, Field(ge=1, le=32)] | None, ByEffort(2, 3, 8)] = Field(
        default=None, description="working-set sizes per octave; null: by effort"
    )


class Operation(Settings):
    """An operation of the user's own, placed on a device's roofline, or on all. Counts are plain numbers: 1.0e+9, not
    1e9."""

    name: Annotated[str, Field(min_length=1)] = Field(description="how the plot and the tables call it")
    flops: Annotated[float, Field(ge=0), _zero_or(*COUNTS)] = Field(
        description="floating-point operations; a multiply-add is two"
    )
    memory_bytes: Annotated[float, Field(ge=0), _zero_or(*COUNTS)] = Field(description="bytes of traffic; 0 means none")
    dtype: Literal[CEILINGS] = Field(description="the compute ceiling that it stands under")
    measured_s: Annotated[float, Field(ge=SECONDS[0], le=SECONDS[1])] | None = Field(
        default=None, description="seconds, where you have measured it; without, a hollow marker at what is attainable"
    )
    device: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="the device that it was timed on, such as gpu0; without, it is placed on every device"
    )


class PlotSettings(Settings):
    """The pictures."""

    dpi: Annotated[int, Field(ge=50, le=600)] = Field(default=160, description="dots per inch of the pictures")


class CostSettings(Settings):
    """What the machine costs."""

    usd_per_hour: Annotated[float | None, Field(ge=0), _zero_or(*PRICE)] = Field(
        default=None, description="the hourly price; the manifest then says what the run cost; null: no cost is given"
    )


def _named_once(operations: list[Operation]) -> list[Operation]:
    names = [operation.name for operation in operations]
    for name in names:
        if not name.strip():
            raise ValueError(f"the name {name!r}; allowed: text")
        if names.count(name) > 1:
            raise ValueError(f"the name {name!r} is given twice; allowed: each once")
    return operations


def config_model(operators: Mapping[str, Operator]) -> type[BaseModel]:
    """The model of the whole config, with a section for each of these operators."""
    sections = {"peak_flops": PeakFlopsSettings, "bandwidth": BandwidthSettings}
    for operator in operators.values():
        if not operator.measured_with_ceilings:
            sections |= {operator.rule: operator.Settings} | operator.sections
    fields = {name: (section, Field(default_factory=section)) for name, section in sections.items()}
    return create_model(
        "Config",
        __base__=Settings,
        __doc__="The configuration of a roofline run.",
        devices=(
            Annotated[Literal["auto", "all"] | list[str], BeforeValidator(_devices)],
            Field(
                default="auto",
                description="auto: the first GPU that works, and the CPU; all: every GPU and the CPU; or a list, "
                "[gpu0, cpu]. gpu0 is the first in PCI order that CUDA_VISIBLE_DEVICES leaves visible",
            ),
        ),
        cpu=(
            Literal["auto", "all"],
            Field(
                default="auto",
                description="what is measured of the CPU; auto: everything, or beside a GPU only what comparing both "
                "needs (fp32 and main memory), as by effort quick; all: everything",
            ),
        ),
        effort=(
            Literal[EFFORTS],
            Field(default="default", description="what each budget that is null becomes; a number in its place wins"),
        ),
        operators=(
            Annotated[list[str], EachOnce],
            Field(default=[], description="files with operators of your own; each has a section named after it"),
        ),
        counters=(
            Annotated[
                Annotated[Literal["auto", "off", "required"], BeforeValidator(_counters)] | None,
                ByEffort("off", "auto", "auto"),
            ],
            Field(
                default=None,
                description="hardware counters of a few cells, read by Nsight Compute (ncu, or what NCU names); auto: "
                "where it is there and allowed to; required: an error where not; null: by effort",
            ),
        ),
        **fields,
        operations=(
            Annotated[list[Operation], AfterValidator(_named_once)],
            Field(default=[], description="operations of your own, by counts and a time that you measured"),
        ),
        plot=(PlotSettings, Field(default_factory=PlotSettings)),
        cost=(CostSettings, Field(default_factory=CostSettings)),
    )


def by_effort(section: BaseModel, effort: str) -> BaseModel:
    """The config, or a section of it, with what is null replaced by what the effort gives."""
    given = given_by_effort(type(section))
    values = {key: getattr(mark, effort) for key, mark in given if getattr(section, key) is None}
    for name in type(section).model_fields:
        if isinstance(inner := getattr(section, name), BaseModel):
            values[name] = by_effort(inner, effort)
    return section.model_copy(update=values)


def given_by_effort(section: type[BaseModel]) -> list[tuple[str, ByEffort]]:
    """The keys of a section whose null means a value by effort."""
    return [
        (key, mark)
        for key, field in section.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, ByEffort)
    ]
