"""Settings: one pydantic model per section of the config, from which its checks, schema and documentation come."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

EFFORTS = ("quick", "default", "thorough")
LONGEST_BUDGET_S = 1e5


class ByEffort(NamedTuple):
    """What a setting that is null becomes, by the config's effort."""

    quick: Any
    default: Any
    thorough: Any


def _each_once(values: list) -> list:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{value!r} is listed twice; allowed: each once")
    return values


Whole = Annotated[int, Field(ge=1)]
Budget = Annotated[float, Field(ge=1e-9, le=LONGEST_BUDGET_S)] | None
EachOnce = AfterValidator(_each_once)


class Settings(BaseModel):
    """A section of the config. Unknown keys, and values of another type, are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class OperatorSettings(Settings):
    """What every operator can be told; an operator adds its sizes and dtypes."""

    enabled: bool = Field(default=True, description="false: the operator is left out of the run")
    implementations: Annotated[list[str], Field(min_length=1), EachOnce] | None = Field(
        default=None, description="names of implementations; null: all that a device has"
    )
    cache: Literal["cold", "warm"] = Field(
        default="cold",
        description="cold: inputs rotate through several times the last-level cache; warm: the same again",
    )
    warmup: Whole = Field(default=10, description="steps before the timed ones")
    iterations: Whole = Field(default=1000, description="timed steps")
    time_budget_s: Annotated[Budget, ByEffort(0.03, 0.06, 2)] = Field(
        default=None, description="seconds for each case, implementation and scope; null: by effort"
    )
