"""Fit the constants of a GPU's predictions on cells drawn at random.

    .venv/bin/python reference/experiments/predictions/fit.py    # the constants and how they score

From cells.json, and for GEMM from the products of products.json that are there to fit. Least squares of
ln(predicted / measured) of the device's time, with outliers beyond 10 % damped, of each operator by itself. The host's
costs are not fitted: every run measures them. Scored on each draw with the constants of the others.
"""

import json
import math
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[2] / "workflow/scripts"
sys.path.insert(0, str(SCRIPTS))

import numpy

from roofline.core.cell_prediction import CLOSE_WITHIN_FACTOR, is_within_factor, predict_cell
from roofline.devices.gpu.datasheet_gpu import DatasheetGpu
from roofline.operators.base import Case
from roofline.operators.card_prediction import plan_cell
from roofline.operators.constants import H200_HOSTS_SOURCE
from roofline.operators.gemm.operator import Gemm
from roofline.operators.registry import builtin_operators

CELLS, PRODUCTS = HERE / "cells.json", HERE / "products.json"
GRAPH_PRODUCT = "cuBLASLt_graph"
DAMPED = 0.1  # beyond which an error counts less than by its square
HELD = 0.03  # weight of each constant's own logarithm: what no cell tells stays as it was
# Shares of the memory ceiling are held to what long streams show.
SHARES = {"stream_share": (0.7, 0.96), "product_stream_share": (0.7, 0.96), "fma_stream_share": (0.7, 0.7)}
LIBRARY_CALL = "library_call_s"  # of the host, and not measured by runs
H200 = DatasheetGpu("NVIDIA H200")
TURNS, SMALLEST_STEP = 30, 1e-4  # of the fit, in logarithms
NUDGE = 1e-4  # of a logarithm, for its slope


def device_s(cell: dict, constants: dict[str, float]) -> float:
    if host_s := cell.get("empty_kernel_s"):  # measured there
        constants = constants | {"empty_kernel_s": host_s}
    found = predict_cell(
        flops=cell["flops"],
        traffic_bytes=cell["bytes"],
        tflops=cell["promised_tflops"],
        gb_per_s=cell["promised_gb_per_s"],
        costs=cell["costs"].costs(constants),
    )
    return found.gpu_time_s


def fitted(cells: list[dict], constants: dict[str, float], free: list[str]) -> dict[str, float]:
    """By Gauss and Newton's steps, each error weighted by how far it is; a share at its limit stays there."""
    start = numpy.log([constants[name] for name in free])
    limits = [SHARES.get(name, (1e-15, 10)) for name in free]
    lower, upper = (numpy.log([one[place] for one in limits]) for place in (0, 1))

    def errors(logarithms):
        tried = constants | dict(zip(free, numpy.exp(logarithms), strict=True))
        of_cells = [math.log(device_s(cell, tried) / cell["device_latency_s"]) for cell in cells]
        return numpy.array([*of_cells, *(HELD * (logarithms - start))])

    at = numpy.clip(start, lower, upper)
    for _ in range(TURNS):
        found = errors(at)
        slopes = numpy.stack([(errors(at + NUDGE * one) - found) / NUDGE for one in numpy.eye(len(free))], axis=1)
        weights = (1 + (found / DAMPED) ** 2) ** -0.25
        downhill = -slopes.T @ (weights**2 * found)
        moving = ~((at <= lower) & (downhill < 0) | (at >= upper) & (downhill > 0))
        weighted = weights[:, None] * slopes[:, moving]
        steps = numpy.linalg.lstsq(weighted, -weights * found, rcond=None)[0]
        at[moving] += steps
        at = numpy.clip(at, lower, upper)
        if numpy.max(numpy.abs(steps), initial=0) < SMALLEST_STEP:
            break
    return constants | dict(zip(free, map(float, numpy.exp(at)), strict=True))


def scored(cells: list[dict], constants: dict[str, float]) -> list[tuple[float, bool]]:
    pairs = [(device_s(cell, constants), cell["device_latency_s"]) for cell in cells]
    return [(abs(made - found) / found, is_within_factor(made, found, CLOSE_WITHIN_FACTOR)) for made, found in pairs]


def words(scores: list[tuple[float, bool]]) -> str:
    errors, close = zip(*scores, strict=True)
    near = f"{100 * numpy.mean(close):.0f} % within {CLOSE_WITHIN_FACTOR} x"
    return f"median error {100 * numpy.median(errors):.1f} %, {near}"


def cells_of(operator) -> list[dict]:
    """The cells of an operator, each with what determines its prediction, as the code has it now."""
    cells = [cell for cell in json.loads(CELLS.read_text(encoding="utf-8")) if cell["operator"] == operator.name]
    if operator.name == Gemm.name:
        cells += products("fit")
    return [cell | planned(operator, cell) for cell in cells if cell["device_latency_s"]]


def products(use: str) -> list[dict]:
    """The products of products.json that are there to "fit" or to "test", cold and as they were rotated."""
    cells = []
    for measured in json.loads(PRODUCTS.read_text(encoding="utf-8")):
        for dtype, *sides, cold_s, sets, rotated_s in measured["rows"] if measured["use"] == use else []:
            product = {"draw": f"{measured['seed']} {dtype}", "implementation": GRAPH_PRODUCT, "dtype": dtype}
            product["shape"] = dict(zip("mnk", sides, strict=True))
            cells += [product | {"copies": None, "device_latency_s": cold_s}]
            cells += [product | {"copies": sets, "device_latency_s": rotated_s}]
    return cells


def planned(operator, cell: dict) -> dict:
    """What determines the prediction of a cell on an H200."""
    case = Case(cell["shape"], cell["dtype"])
    entry = plan_cell(operator, cell["implementation"], case, H200, cell.get("copies"), cell.get("scope"))
    tflops, gb_per_s = H200.seal.rates(entry.compute_ceiling, entry.memory_ceilings)
    found = {"flops": entry.flops, "bytes": entry.bytes, "costs": entry.costs}
    return found | {"promised_tflops": tflops, "promised_gb_per_s": gb_per_s}


def free_constants(operator) -> list[str]:
    return [n for n, one in operator.constants["gpu"].items() if one.source != H200_HOSTS_SOURCE and n != LIBRARY_CALL]


def main() -> None:
    for operator in builtin_operators():
        mine = cells_of(operator)
        if not mine:  # a model's decode step: fit_model.py
            continue
        constants, free = {name: one.value for name, one in operator.constants["gpu"].items()}, free_constants(operator)
        found = fitted(mine, constants, free)
        apart = [
            one
            for draw in sorted({cell["draw"] for cell in mine})
            for one in scored(
                [cell for cell in mine if cell["draw"] == draw],
                fitted([cell for cell in mine if cell["draw"] != draw], constants, free),
            )
        ]
        print(f"\n{operator.name}: {len(mine)} cells")
        print(f"    as declared    {words(scored(mine, constants))}")
        print(f"    fitted         {words(scored(mine, found))}")
        print(f"    on other draws {words(apart)}")
        for name in free:
            print(f"    {name:<40} {constants[name]:.3g} -> {found[name]:.3g}")


if __name__ == "__main__":
    main()
