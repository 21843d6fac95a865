"""What README.md and the reference's own page say of the committed run, from that run's own files."""

import json
from pathlib import Path
from statistics import mean, stdev

from roofline.analysis.distribution import known
from roofline.analysis.results import read_table
from roofline.analysis.score import ROOF, ROOF_AND_START, score
from roofline.analysis.trial import Trial
from roofline.core.formatting import duration, flops_unit, number, percent
from roofline.records.base import read
from roofline.records.distribution import Distribution
from roofline.records.manifest import Manifest
from roofline.report.markdown import table

FOLDER = Path(__file__).parents[4] / "reference" / "nvidia-h200"
CARD, OTHERS = "NVIDIA H200", ("all runs of such cards", "between runs of one card")
PRODUCTS, REGISTERS, MEMORY = ("fp16", "fp8_e4m3"), "fp32_fma", ("hbm_read", "l2")


def figures() -> str:
    """A row for each figure, with its share of the datasheet's; the run's time. Raises CorruptRecord and OSError."""
    found, manifest = read_table(FOLDER / "roofline.json"), read(Manifest, FOLDER / "manifest.json")
    ceilings = {one.name: one for one in found.ceilings if one.device == "gpu0"}
    rows = []
    for name in PRODUCTS:
        one = ceilings[name]
        rates = one.burst_tflops, one.sustained_tflops
        rows.append(
            [
                f"{name} GEMM, burst / sustained",
                f"{' / '.join(map(number, rates))} {flops_unit(name)}",
                " / ".join(percent(rate / one.vendor_tflops).removesuffix(" %") for rate in rates) + " %",
            ]
        )
    one = ceilings[REGISTERS]
    rows.append(["fp32, register-only multiply-adds", f"{number(one.tflops)} TFLOPS", percent(one.fraction_of_vendor)])
    for name, words in zip(MEMORY, ("HBM, reads", "L2, reads"), strict=True):
        one = ceilings[name]
        share = percent(one.fraction_of_vendor) if one.fraction_of_vendor else ""
        rows.append([words, f"{number(one.gb_per_s)} GB/s", share])
    best = max((one for one in found.entries if one.device == "gpu0"), key=lambda one: one.fraction_of_roof or 0)
    cell = f"the best cell: {best.title}, {best.implementation}, {best.dtype}, {best.label}"
    rows.append([cell, f"{percent(best.fraction_of_roof)} of its roof", ""])
    rows.append(["the run that measured all of it, and the CPU", f"{number(manifest.times.span_s)} s", ""])
    return table([f"an {found.devices['gpu0'].name}", "measured", "of the datasheet"], rows)


def compute_ceilings() -> str:
    """A row for each compute ceiling of the GPU, beside all runs of such cards. Raises CorruptRecord and OSError."""
    columns = ["ceiling", "this run", "vendor", "share", "sustained", "reference GEMM", *OTHERS]
    found, others = read_table(FOLDER / "roofline.json"), known(CARD)
    rows = []
    for one in found.ceilings:
        if one.device == "gpu0" and one.kind == "compute":
            rate = one.burst_tflops or one.tflops
            share = percent(rate / one.vendor_tflops) if one.vendor_tflops else "-"
            beside = [number(value) if value else "-" for value in (one.sustained_tflops, one.reference_tflops)]
            vendor = number(one.vendor_tflops) if one.vendor_tflops else "-"
            rows.append([one.name, number(rate), vendor, share, *beside, *_others(one.name, others)])
    return table(columns, rows)


def memory_ceilings() -> str:
    """The same of its memory, in GB/s."""
    found, others = read_table(FOLDER / "roofline.json"), known(CARD)
    mine = [one for one in found.ceilings if one.device == "gpu0" and one.kind == "memory"]
    return table(
        ["memory", "this run, GB/s", *OTHERS], [[o.name, number(o.gb_per_s), *_others(o.name, others)] for o in mine]
    )


def predictions() -> str:
    """How the sealed predictions of this run and of the drawn cells came out, beside predictors without a model."""
    found, drawn = read_table(FOLDER / "roofline.json"), read(Trial, FOLDER / "drawn" / "drawn.json")
    rows = []
    for words, told in (
        ("this run, GPU", score(one for one in found.operators if one.device == "gpu0")),
        ("this run, CPU", score(one for one in found.operators if one.device == "cpu")),
        ("[drawn at random](drawn/drawn.md), by the hash of the commit that froze the model", drawn.score),
    ):
        alone, started = (told.baselines[name] for name in (ROOF, ROOF_AND_START))
        rows.append(
            [
                words,
                percent(told.median_error),
                f"{told.times_close} of {told.cells}",
                f"{told.both_right} of {told.cells}",
                *(f"{one.times_right}, {one.regimes_right}" for one in (alone, started)),
                str(told.textbook_regimes_right),
            ]
        )
    columns = ["cells", "median error", "within 1.25 x", "right: regime, and time within 2 x"]
    columns += ["the roof alone: times, regimes", "with a start-up time", "the textbook: regimes"]
    return table(columns, rows)


def steps() -> str:
    """The steps of models that this run measured, beside floor and prediction. Raises CorruptRecord and OSError."""
    rows = [
        [
            model.model,
            str(step.batch),
            str(step.context),
            duration(step.floor_s),
            duration(step.predicted_s) if step.predicted_s else "-",
            duration(step.measured_s),
            percent(step.floor_s / step.measured_s),
        ]
        for model in read_table(FOLDER / "roofline.json").models
        for step in model.steps
        if step.measured_s
    ]
    return table(["model", "batch", "context", "floor", "predicted", "measured", "floor / measured"], rows)


def sustained_repeats() -> str:
    """Sustained loads of one card again and again: their mean and standard deviation, by chunks queued ahead."""
    text = (FOLDER.parent / "experiments" / "sustained" / "loads.json").read_text(encoding="utf-8")
    cards = json.loads(text)["cards"]
    columns = ["dtype"] + [f"{one['queued_chunks']} chunks ahead: {part}" for one in cards for part in ("mean", "sd")]
    rows = []
    for dtype in cards[0]["tflops"]:
        told = []
        for one in cards:
            rates = one["tflops"].get(dtype)
            told += (
                [f"{number(mean(rates))} ({len(rates)})", percent(stdev(rates) / mean(rates))] if rates else ["-"] * 2
            )
        rows.append([dtype, *told])
    return table(columns, rows)


def _others(name: str, others: Distribution) -> list[str]:
    values = [run.values[name] for run in others.runs if name in run.values]
    spread = next((one.run_spread for one in others.quantities if one.key == name), None)
    every = f"{number(min(values))} to {number(max(values))} ({len(values)})" if values else "-"
    return [every, percent(spread) if spread is not None else "-"]
