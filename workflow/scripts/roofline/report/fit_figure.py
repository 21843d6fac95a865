"""The energy roofline: joules per FLOP over intensity, fitted and measured, with the balance points."""

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.core.formatting import number, percent, picojoules
from roofline.core.levels import main_memory_ceiling
from roofline.core.roofline_model import ridge_point
from roofline.report import figure_style as style
from roofline.report.palette import SERIES_COLOURS
from roofline.table.rows import ComputeCeiling, EnergyFit, MemoryCeiling, Roofline

FIT_PANELS = style.PanelRows(head=92.0, panel=300.0, row=358.0, foot=58.0)
FIT_CAPTION = "Curve: the fit at the roofs, within the power limit. Dots: measured, above it if few blocks ran. "
FIT_CAPTION += "Dashed: energy balance point, where bytes and FLOPs cost the same. Dotted: ridge point."
INTENSITIES = numpy.geomspace(1 / 16, 1024, 200)


def draw_energy_fits(roofline: Roofline) -> Figure:
    """Return the picture of energy per FLOP over intensity, a panel for each fit."""
    fits = roofline.energy_fits
    columns = min(2, len(fits))
    figure, grid = FIT_PANELS.lay_out("Energy per FLOP over intensity, CUDA cores", FIT_CAPTION, len(fits), columns)
    for place, fit in enumerate(fits):
        _paint(figure.add_subplot(grid[place]), fit, roofline, SERIES_COLOURS[place % columns])
    return figure


def _paint(axes: Axes, fit: EnergyFit, roofline: Roofline, colour: str) -> None:
    axes.set(title=f"{fit.device}: {fit.dtype}", xlabel="FLOP/byte", ylabel="pJ/FLOP")
    style.set_log_axis(axes.xaxis, "{:g}".format, base=2, numticks=8)
    style.set_log_axis(axes.yaxis, "{:g}".format, subs=(1, 2, 5))
    memory = roofline.ceiling(fit.device, main_memory_ceiling("gpu", "read"))
    compute = roofline.ceiling(fit.device, f"{fit.dtype}_fma")
    if isinstance(memory, MemoryCeiling) and isinstance(compute, ComputeCeiling):
        rates = numpy.minimum(1e12 * compute.tflops, 1e9 * memory.gb_per_s * INTENSITIES)
        marginal = fit.joules_per_flop + fit.joules_per_byte / INTENSITIES
        if limit_w := roofline.devices[fit.device].hardware.get("power_limit_w"):
            rates = numpy.minimum(rates, max(0.0, limit_w - fit.base_power_w) / marginal)
        joules = fit.base_power_w / rates + marginal
        axes.plot(INTENSITIES, 1e12 * joules, color=colour, lw=1.6)
        axes.axvline(ridge_point(1e12 * compute.tflops, 1e9 * memory.gb_per_s), color=colour, lw=1.2, ls=":")
    axes.axvline(fit.joules_per_byte / fit.joules_per_flop, color=colour, lw=1.2, ls="--")
    intensities = [point.flops_per_s / point.bytes_per_s for point in fit.points]
    picojoules_per_flop = [1e12 * point.power_w / point.flops_per_s for point in fit.points]
    axes.plot(intensities, picojoules_per_flop, ls="", marker="o", ms=4, color=colour)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.text(0.02, 0.03, _describe(fit), va="bottom", transform=axes.transAxes, size=style.SMALL_SIZE, bbox=box)


def _describe(fit: EnergyFit) -> str:
    per_byte, per_flop = picojoules(fit.joules_per_byte), picojoules(fit.joules_per_flop)
    formula = f"{number(fit.base_power_w)} W + {per_byte} pJ/B + {per_flop} pJ/FLOP"
    miss = fit.residual_standard_error or fit.rms_relative_error
    return f"{formula}\n{len(fit.points)} points, misses by {percent(miss)}"
