"""Fleets of simulated nodes, each with copies of the committed run's GPU, drawn about it with small spreads."""

import dataclasses
import math
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from roofline.analysis.distribution import OF_CARD
from roofline.analysis.fleet import Measured
from roofline.analysis.quantities import Run
from roofline.core.statistics import FEWEST_SAMPLES
from roofline.records.fleet import FleetNode, Load
from roofline.run.runs import read_run

REFERENCE = Path(__file__).parents[1] / "reference" / "nvidia-h200"
SPREAD = 0.004  # of every figure
USUAL = Load(power_w=690.0, temperature_c=62.0)


@cache
def whole() -> Run:
    run = read_run(REFERENCE)
    figures = [one for one in run.quantities if one.device == "gpu0" and one.kind in OF_CARD]
    return dataclasses.replace(run, quantities=figures)


def measured(
    name: str,
    number: int = 0,
    cards: int = 1,
    slow: Mapping[str, float] = {},
    clock: float = 1.0,
    load: Load = USUAL,
    software: Mapping[str, str] = {},
    at: str = "10",
    asked: str = "auto",
    **hardware,
) -> Measured:
    """A run of a node; figures of its first card are slower by a factor, by kind or key, and its clock by another.
    `asked`: the devices that its settings name."""
    chance, run = random.Random(f"{name} {number}"), whole()
    card, devices, figures = run.devices["gpu0"], {}, []
    for place in range(cards):
        device, first = f"gpu{place}", not place
        changes = {"device": device, "uuid": f"GPU-{name}-{place}", "queried_at": f"2026-11-25T{at}:00:00+00:00"}
        changes |= {"software": card.software | software, "hardware": card.hardware | (hardware if first else {})}
        devices[device] = card.model_copy(update=changes)
        for one in run.quantities:
            factor = slow.get(one.key, slow.get(one.kind, 1.0)) if first else 1.0
            value = one.value * factor * math.exp(SPREAD * chance.gauss(0, 1))
            mhz = one.clock_mhz and one.clock_mhz * (clock if first and factor != 1 else 1.0)
            samples = one.samples and max(one.samples, FEWEST_SAMPLES)
            figures.append(one._replace(device=device, value=value, clock_mhz=mhz, samples=samples))
    print_of = f"{name} {number}"
    manifest = run.manifest.model_copy(update={"config": run.manifest.config | {"devices": asked}})
    run = dataclasses.replace(run, devices=devices, quantities=figures, manifest=manifest, fingerprint=print_of)
    loads = {device: {"fp16": load if device == "gpu0" else USUAL} for device in devices}
    return Measured(name, run, loads)


def nodes(runs: list[Measured]) -> list[FleetNode]:
    names = dict.fromkeys(one.node for one in runs)
    return [FleetNode(node=name, status="measured", reason=None, archives=[f"{name}.tar.gz"]) for name in names]
