"""Settings: one pydantic model per section of the config, which checks it. config/config.yaml documents them."""

from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from roofline.records.base import AtLeastOne

Effort = Literal["quick", "default", "thorough"]
LONGEST_BUDGET_S = 1e5
ItemT = TypeVar("ItemT")
# The checked config, with a section for each operator: plan/settings.py makes it, which operators may not import.
CompletedConfig = Any


class ByEffort(NamedTuple):
    """The values that a setting of null takes, by the config's effort."""

    quick: Any
    default: Any
    thorough: Any


def require_distinct(values: list) -> list:
    """Return the list unchanged. Raises ValueError for a value that it holds twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value!r} is listed twice")
    return values


Whole = AtLeastOne  # the name by which users' operators import it
Budget = Annotated[float, Field(ge=1e-9, le=LONGEST_BUDGET_S)] | None
EachOnce = AfterValidator(require_distinct)
Listed = Annotated[list[ItemT], Field(min_length=1), EachOnce]  # Listed[Whole]: one or more, each once


class Settings(BaseModel):
    """A section of the config. Unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class OperatorSettings(Settings):
    """The settings that every operator has. An operator adds its sizes and dtypes."""

    enabled: bool = True
    implementations: Listed[str] | None = None
    cache: Literal["cold", "warm"] = "cold"
    warmup: Whole = 10
    iterations: Annotated[Whole | None, ByEffort(300, 1000, 1000)] = None
    time_budget_s: Annotated[Budget, ByEffort(0.03, 0.06, 2)] = None
