"""Fit the constants of a model's decode step on steps of Llama-3.2-1B alone, and score them on the others.

    .venv/bin/python reference/experiments/predictions/fit_model.py

steps.json is a list of {model, dtype, batch, context, seconds}: a model's name in docs/decoding.md, and the GPU's time
of one step on an H200. Prints the fitted constants beside those of the code, and the errors by model.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fit import HERE, fitted, scored, words

from roofline.devices import datasheets
from roofline.models import config_file
from roofline.models.floor import of_datasheet
from roofline.operators.base import Case
from roofline.operators.model_decode import ModelDecode
from roofline.operators.model_decode.costs import FITTED, GPU, chain_costs
from roofline.operators.model_decode.dense import dense
from roofline.operators.rmsnorm_matmul.hopper import rows_of

FITTED_ON = "llama-3.2-1b"
CARD = "NVIDIA H200"


def cell(step: dict, sheet: dict) -> dict:
    """As fit.py takes it, of one step."""
    found = config_file.find(step["model"])
    model, shape = dense(found), {"batch": step["batch"], "context": step["context"]}
    case = Case(shape, step["dtype"], found["name"], {"model": model.as_dict(), "config": found})
    operator, promised = ModelDecode(), of_datasheet(sheet)
    return {
        "model": found["name"],
        "flops": operator.flops(case),
        "bytes": operator.bytes(case),
        "costs": chain_costs(model, rows_of(step["batch"])).model_dump(),
        "promised_tflops": promised.tflops[step["dtype"]],
        "promised_gb_per_s": promised.read_gb_per_s,
        "device_latency_s": step["seconds"],
    }


def cells() -> list[dict]:
    cards = datasheets.load(HERE.parents[2] / "config/datasheets.yaml")["cards"].values()
    sheet = next(one for one in cards if CARD in one["device_names"])
    return [cell(step, sheet) for step in json.loads((HERE / "steps.json").read_text(encoding="utf-8"))]


def free_constants() -> list[str]:
    return [name for name, one in GPU.items() if one.source == FITTED]


def main() -> None:
    steps = cells()
    declared = {name: one.value for name, one in GPU.items()}
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
