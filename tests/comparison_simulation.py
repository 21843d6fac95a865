"""Runs simulated about the reference run of an H200, with the spread between runs that was measured there.

`python tests/comparison_simulation.py` prints the table of docs/comparing.md.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
sys.path.insert(0, str(CHECKOUT / "workflow" / "scripts"))

from roofline.analysis.comparison import compare  # noqa: E402
from roofline.analysis.known_variation import Stored, stored  # noqa: E402
from roofline.analysis.quantities import Run  # noqa: E402
from roofline.core.run_spread import Spread  # noqa: E402
from roofline.run.runs import read_run  # noqa: E402

REFERENCE = CHECKOUT / "reference" / "nvidia-h200"
CHANGED = ("SLOWER", "FASTER")


def measured_spreads(run: Run) -> dict[tuple[str, str], float]:
    """Between runs of one card, by device and quantity, as far as it is stored; else that of the same kind, pooled."""
    known = {}
    for device, record in run.devices.items():
        there = stored(record.name)
        for key in run.of_device(device):
            if key in there and there[key].runs:
                known[device, key] = there[key].runs.sd
    of_kind: dict[str, list[float]] = {}
    for one in run.quantities:
        if (one.device, one.key) in known:
            of_kind.setdefault(one.kind, []).append(known[one.device, one.key])
    pooled = {kind: math.sqrt(sum(sd**2 for sd in some) / len(some)) for kind, some in of_kind.items()}
    return {
        (one.device, one.key): known.get((one.device, one.key), pooled.get(one.kind, 0.01)) for one in run.quantities
    }


class Simulation:
    """Draws runs of one card; a factor may make some quantities slower."""

    def __init__(self, seed: int, tails: int | None = None):
        self.chance, self.tails, self.count = random.Random(seed), tails, 0
        whole = read_run(REFERENCE)
        figures = [one for one in whole.quantities if one.device == "gpu0"]
        self.run = dataclasses.replace(whole, devices={"gpu0": whole.devices["gpu0"]}, quantities=figures)
        self.spreads = measured_spreads(self.run)

    def error(self) -> float:
        """Of unit variance: normal, or Student's t of so many degrees of freedom, whose tails are heavier."""
        z = self.chance.gauss(0, 1)
        if not self.tails:
            return z
        scale = self.chance.gammavariate(self.tails / 2, 2) / self.tails
        return z / math.sqrt(scale) * math.sqrt((self.tails - 2) / self.tails)

    def draw(self, factors: Mapping[str, float] = {}, spreads: Mapping[str, float] = {}) -> Run:
        """Another run: every figure drawn about the reference's, times its factor."""
        self.count += 1
        figures = []
        for one in self.run.quantities:
            sd = spreads.get(one.key, self.spreads[one.device, one.key])
            value = one.value * math.exp(sd * self.error()) * factors.get(one.key, 1.0)
            figures.append(one._replace(value=value))
        return dataclasses.replace(self.run, quantities=figures, fingerprint=f"simulated {self.count}")

    def side(self, runs: int, **what) -> list[Run]:
        return [self.draw(**what) for _ in range(runs)]

    def known(self, df: int) -> dict[str, Stored]:
        """A stored spread by the keys of quantities, estimated from as many earlier runs of the same spread."""
        return {
            key: Stored(Spread(sd * math.sqrt(self.chance.gammavariate(df / 2, 2) / df), df), None, "distribution.json")
            for (_, key), sd in self.spreads.items()
        }

    def false_alarms(self, pairs: int, runs: int, df: int | None) -> float:
        """The share of pairs of sides without any change that show one; df of the stored spread, None without."""
        alarmed = 0
        for _ in range(pairs):
            known = self.known(df) if df else {}
            found = compare(self.side(runs), self.side(runs), known=lambda card, known=known: known)
            alarmed += any(one.verdict in CHANGED for one in found.quantities)
        return alarmed / pairs

    def found(self, pairs: int, key: str, drop: float, spread: float, runs: int) -> float:
        """The share of comparisons that find a drop of one quantity."""
        count = 0
        for _ in range(pairs):
            other = self.side(runs, factors={key: 1 - drop}, spreads={key: spread})
            verdicts = compare(self.side(runs, spreads={key: spread}), other, known=lambda card: {}).quantities
            count += next(one for one in verdicts if one.key == key).verdict == "SLOWER"
        return count / pairs


if __name__ == "__main__":
    for tails in (None, 3):
        for runs, df in ((1, 4), (1, 12), (2, None), (3, None), (5, None)):
            share = Simulation(7, tails).false_alarms(600, runs, df)
            print(f"tails {tails}, {runs} run(s) a side, stored spread of {df} degrees of freedom: {share:.1%}")
    for runs in (2, 3, 5):
        for drop in (0.025, 0.03, 0.05):
            found = Simulation(8).found(200, "hbm_read", drop, 0.002, runs)
            print(f"hbm_read, spread 0.2 %, {runs} runs a side, drop {drop:.1%}: found in {found:.0%}")
            found = Simulation(8).found(200, "fp16", drop, 0.002, runs)
            print(f"fp16, spread 0.2 %, {runs} runs a side, drop {drop:.1%}: found in {found:.0%}")
