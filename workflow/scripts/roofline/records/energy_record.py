"""Loads without a pause: their moments, and their energy by the energy counter of a GPU."""

from pydantic import Field

from roofline.records.base import AtLeastOne, Interval, NotNegative, Positive, Rate, Record


class LoadEnergy(Record):
    """Joules of a settled load, idle power included, between two ticks of the energy counter."""

    joules: Positive | None = None
    duration_s: Positive | None = Field(default=None, description="between the two ticks, and so are the other figures")
    ticks: AtLeastOne | None = None
    work: Positive | None = Field(default=None, description="FLOPs, or bytes")
    power_w: Positive | None = Field(default=None, description="joules over seconds")
    nvml_power_w: Positive | None = Field(default=None, description="the mean of NVML's power readings, another method")
    reason: str | None = Field(default=None, description="why there is no figure, or why it is not relied on")

    @property
    def joules_per_work(self) -> float | None:
        """Joules per FLOP or byte; None if the figure is not relied on."""
        return self.joules / self.work if self.joules and self.work and not self.reason else None


class Idle(Record):
    """The power and clock of a GPU with a context and an empty queue."""

    power_w: Positive
    duration_s: Positive
    sm_clock_mhz: NotNegative | None
    temperature_c: float | None


class LoadMoment(Record):
    """A moment under sustained load; null where NVML reports nothing."""

    at_s: NotNegative
    sm_clock_mhz: NotNegative | None = Field(default=None, description="counted, over the products up to this moment")
    power_w: NotNegative | None = Field(default=None, description="null where NVML has not refreshed it since")
    temperature_c: float | None = None
    throttle_reasons: list[str] | None = None


class LoadFigures(Record):
    """What a device did under load without a pause."""

    duration_s: Positive = Field(description="as set, or longer where the mean was uncertain by more than 1 %")
    cycle_s: Positive | None = Field(default=None, description="from dip to dip of the clock; null where it has none")
    drift: float | None = Field(default=None, description="the last cycle over the first, or quarter, less 1")
    settled_after_s: NotNegative | None = Field(
        description="what counts begins here; of a shorter load the last half counts"
    )
    sm_clock_mhz: Positive | None = Field(description="median of what counts")
    temperature_c: float | None = Field(default=None, description="the highest of what counts")
    throttle_reasons: list[str] = Field(description="those that NVML reported under this load")
    energy: LoadEnergy | None = None


class MemoryLoadPoint(LoadMoment):
    """A moment of a bandwidth benchmark without a pause."""

    gb_per_s: Rate


class MemoryLoad(LoadFigures):
    """A bandwidth benchmark without a pause, and its rate over whole cycles of power control once it had settled."""

    gb_per_s: Rate
    ci95_gb_per_s: Interval | None = None
    curve: list[MemoryLoadPoint] = Field(default=[], description="empty in runs before 2026-11-29")


class PowerPoint(Record):
    """The rates of a kernel under load, and the power that it draws at them."""

    bytes_per_s: Positive
    flops_per_s: Positive
    power_w: Positive


class EnergyPoint(Record):
    """The load of a kernel that reads numbers and makes multiply-adds on each of them."""

    dtype: str
    multiply_adds_per_number: AtLeastOne = Field(description="multiply-adds on each number")
    blocks_per_multiprocessor: AtLeastOne = Field(description="of 256 threads, resident on each multiprocessor")
    intensity_flops_per_byte: Positive
    sustained: MemoryLoad

    @property
    def usable(self) -> bool:
        """True if the energy is known and reliable, at a known clock that no power limit held back."""
        power_limits = {*self.sustained.throttle_reasons} & {"sw_power_cap", "hw_power_brake_slowdown"}
        energy = self.sustained.energy
        return bool(energy and not energy.reason and self.sustained.sm_clock_mhz and not power_limits)

    @property
    def power_point(self) -> PowerPoint:
        """The rates and the power between the ticks; the energy of the point must be known."""
        energy = self.sustained.energy
        assert energy and energy.work and energy.duration_s and energy.power_w  # else there would be a reason
        bytes_per_s = energy.work / energy.duration_s
        return PowerPoint(
            bytes_per_s=bytes_per_s, flops_per_s=self.intensity_flops_per_byte * bytes_per_s, power_w=energy.power_w
        )
