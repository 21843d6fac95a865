"""Fit the constants of a GPU's predictions on cells drawn at random; for once in a while, and needs SciPy.

    python reference/experiments/predictions/fit.py            # from cells.json: the constants and how they score
    python reference/experiments/predictions/fit.py DRAWN...   # make cells.json from these drawn.json first

Least squares of ln(predicted / measured) of the device's time, with outliers beyond 10 % damped, of each operator by
itself. The host's costs are not fitted: every run measures them. Scored on each draw with the constants of the others.
"""

# /// script
# dependencies = ["scipy==1.16.3", "pydantic==2.13.4"]
# ///

import json
import math
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[2] / "workflow/scripts"
sys.path.insert(0, str(SCRIPTS))

import numpy
from scipy.optimize import least_squares

from roofline.analysis.baselines import FITTED, fitted_name
from roofline.core.prediction import CLOSE_TIMES, predict_cell, within
from roofline.operators.constants import H200_HOSTS
from roofline.operators.registry import builtin
from roofline.records.prediction import CostTerms

CELLS = HERE / "cells.json"
KEPT = ("operator", "implementation", "scope", "preset", "dtype", "shape", "flops", "bytes", "costs")
KEPT += ("promised_tflops", "promised_gb_per_s", "latency_s", "device_latency_s")
DAMPED = 0.1  # beyond which an error counts less than by its square
HELD = 0.03  # weight of each constant's own logarithm: what no cell tells stays as it was
# Shares of a ceiling are held to what large cells show: of memory by long streams, of tensor cores at 4096 and 8192.
SHARES = {"stream_share": (0.7, 0.96), "product_stream_share": (0.7, 0.96), "tensor_pipe_share": (0.7, 0.86)}
LIBRARY_CALL = "library_call_s"  # of the host, and not measured by runs


def kept(paths: list[str]) -> list[dict]:
    draws = {Path(path).parent.name: json.loads(Path(path).read_text()) for path in paths}
    if len(draws) < len(paths):
        raise SystemExit("two draws lie in folders of one name, and each is known by its folder's name")
    return [{"draw": name, **{key: cell[key] for key in KEPT}} for name, one in draws.items() for cell in one["cells"]]


def device_s(cell: dict, constants: dict[str, float]) -> float:
    found = predict_cell(
        flops=cell["flops"],
        traffic_bytes=cell["bytes"],
        peak_tflops=cell["promised_tflops"],
        bandwidth_gb_per_s=cell["promised_gb_per_s"],
        costs=CostTerms(**cell["costs"]).costs(constants),
    )
    return found.device_latency_s


def fitted(cells: list[dict], constants: dict[str, float], free: list[str]) -> dict[str, float]:
    start = numpy.log([constants[name] for name in free])
    limits = [SHARES.get(name, (1e-15, 10)) for name in free]
    lower, upper = (numpy.log([one[place] for one in limits]) for place in (0, 1))

    def errors(logarithms):
        tried = constants | dict(zip(free, numpy.exp(logarithms), strict=True))
        of_cells = [math.log(device_s(cell, tried) / cell["device_latency_s"]) for cell in cells]
        return numpy.array([*of_cells, *(HELD * (logarithms - start))])

    inside = numpy.clip(start, lower + 1e-3, upper - 1e-3)
    found = least_squares(errors, inside, loss="soft_l1", f_scale=DAMPED, bounds=(lower, upper))
    return constants | dict(zip(free, map(float, numpy.exp(found.x)), strict=True))


def scored(cells: list[dict], constants: dict[str, float]) -> list[tuple[float, bool]]:
    pairs = [(device_s(cell, constants), cell["device_latency_s"]) for cell in cells]
    return [(abs(made - found) / found, within(made, found, CLOSE_TIMES)) for made, found in pairs]


def words(scores: list[tuple[float, bool]]) -> str:
    errors, close = zip(*scores, strict=True)
    return f"median error {100 * numpy.median(errors):.1f} %, {100 * numpy.mean(close):.0f} % within {CLOSE_TIMES} x"


def main() -> None:
    if sys.argv[1:]:
        lines = ",\n".join(json.dumps(cell) for cell in kept(sys.argv[1:]))
        CELLS.write_text(f"[\n{lines}\n]\n")
        names = {fitted_name(c["operator"], c["dtype"], c["shape"]) for c in json.loads(CELLS.read_text())}
        FITTED.write_text(json.dumps(sorted(names)) + "\n")
    cells = [cell for cell in json.loads(CELLS.read_text()) if cell["device_latency_s"]]
    for operator in builtin():
        mine = [cell for cell in cells if cell["operator"] == operator.name]
        if not mine:  # a model's decode step: fit_model.py
            continue
        declared = operator.constants["gpu"]
        constants = {name: one.value for name, one in declared.items()}
        free = [name for name, one in declared.items() if one.source != H200_HOSTS and name != LIBRARY_CALL]
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
