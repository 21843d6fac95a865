"""Fit the constants of a model's decode step on steps of Llama-3.2-1B alone, and score them on the others.

    .venv/bin/python reference/experiments/predictions/fit_model.py

steps.json is a list of {model, dtype, batch, context, seconds}: a name of tools/decoding/README.md, and the GPU time of
one step on an H200. Prints the fitted constants next to those of the code, and the errors by model.
"""

import json
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(Path(__file__).parent), str(CHECKOUT / "workflow/scripts"), str(CHECKOUT / "tools/decoding")]

import config_file
from bound import datasheet_ceilings
from chain import FITTED_SOURCE, GPU_CONSTANTS, step_costs
from decode_step import DecodeStep, make_case
from dense import read_dense
from fit import HERE, fitted, scored, words

from roofline.api import datasheets
from roofline.api import product_kernel as products

FITTED_ON = "llama-3.2-1b"
CARD = "NVIDIA H200"


def cell(step: dict, sheet: dict) -> dict:
    """As fit.py takes it, of one step."""
    found = config_file.find_model(step["model"])
    case, operator, promised = make_case(found, step["batch"], step["context"]), DecodeStep(), datasheet_ceilings(sheet)
    return {
        "model": found["name"],
        "flops": operator.flops(case),
        "bytes": operator.bytes(case),
        "costs": step_costs(read_dense(found), products.padded_rows(step["batch"])),
        "promised_tflops": promised.tflops[step["dtype"]],
        "promised_gb_per_s": promised.read_gb_per_s,
        "device_latency_s": step["seconds"],
    }


def cells() -> list[dict]:
    cards = datasheets.read_datasheets(HERE.parents[2] / "config/datasheets.yaml")["cards"].values()
    sheet = next(one for one in cards if CARD in one["device_names"])
    return [cell(step, sheet) for step in json.loads((HERE / "steps.json").read_text(encoding="utf-8"))]


def free_constants() -> list[str]:
    return [name for name, one in GPU_CONSTANTS.items() if one.source == FITTED_SOURCE]


def main() -> None:
    steps = cells()
    declared = {name: one.value for name, one in GPU_CONSTANTS.items()}
    free = free_constants()
    found = fitted([one for one in steps if one["model"] == FITTED_ON], declared, free)
    for name in free:
        print(f"{name:<20} {declared[name]:.3g} -> {found[name]:.3g}")
    for model in dict.fromkeys(one["model"] for one in steps):
        mine = [one for one in steps if one["model"] == model]
        print(f"{model}: {len(mine)} steps")
        print(f"    as declared    {words(scored(mine, declared))}")
        print(f"    fitted         {words(scored(mine, found))}")


if __name__ == "__main__":
    main()
