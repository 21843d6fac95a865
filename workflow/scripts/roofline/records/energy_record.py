"""Energy of loads, by the energy counter of a GPU."""

from pydantic import Field

from roofline.records.base import AtLeastOne, NotNegative, Positive, Rate, Record


class LoadEnergy(Record):
    """Joules of a settled load, idle power included, between two ticks of the energy counter."""

    joules: Positive | None = None
    seconds: Positive | None = Field(default=None, description="between the two ticks, and so are the other figures")
    ticks: AtLeastOne | None = None
    work: Positive | None = Field(default=None, description="FLOPs, or bytes")
    power_w: Positive | None = Field(default=None, description="joules over seconds")
    readings_w: Positive | None = Field(default=None, description="the mean of NVML's power readings, another method")
    why: str | None = Field(default=None, description="why there is no figure, or why it is not relied on")

    @property
    def each(self) -> float | None:
        """Joules per FLOP or byte."""
        return self.joules / self.work if self.joules and not self.why else None


class Idle(Record):
    """A GPU with a context and an empty queue."""

    power_w: Positive
    seconds: Positive
    sm_clock_mhz: NotNegative | None
    temperature_c: float | None


class MemoryLoad(Record):
    """A memory ceiling's stream without a pause, and what it gave once it had settled."""

    seconds: Positive
    settled_after_s: NotNegative | None
    gb_per_s: Rate
    sm_clock_mhz: Positive | None
    temperature_c: float | None
    limited_by: list[str]
    energy: LoadEnergy | None


class EnergyPoint(Record):
    """A kernel that reads numbers and makes multiply-adds on each."""

    dtype: str
    multiplies: AtLeastOne = Field(description="multiply-adds on each number")
    blocks: AtLeastOne = Field(description="of 256 threads, resident on each multiprocessor")
    flops_per_byte: Positive
    load: MemoryLoad

    @property
    def free(self) -> bool:
        """Whether there is a figure, at a known clock that no power limit held."""
        held = {*self.load.limited_by} & {"sw_power_cap", "hw_power_brake_slowdown"}
        return bool(self.load.energy and not self.load.energy.why and self.load.sm_clock_mhz and not held)

    @property
    def rates(self) -> tuple[float, float, float]:
        """Bytes/s, FLOPs/s and watts between the ticks, of a point with a figure."""
        energy = self.load.energy
        bytes_per_s = energy.work / energy.seconds
        return bytes_per_s, self.flops_per_byte * bytes_per_s, energy.power_w
