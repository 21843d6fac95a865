"""Comparisons of simulated runs, drawn about the committed run with the spread between runs that is stored: how often
one is wrong, and what it finds."""

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from roofline.analysis.comparison import MARGINS, compare
from roofline.analysis.distribution import known
from roofline.analysis.known_variation import Stored, stored
from roofline.analysis.quantities import Run
from roofline.core.formatting import listed, percent
from roofline.core.run_spread import Spread, pooled
from roofline.core.statistics import median
from roofline.core.terms import QuantityKind
from roofline.report.comparison_page import found_shares
from roofline.report.markdown import table
from roofline.run.runs import read_run

ROOT = Path(__file__).parents[4]
REFERENCE = ROOT / "reference" / "nvidia-h200"
CHANGED = ("SLOWER", "FASTER")
PAIRS, STORED_DF, TAILS = 60, 8, 5
COMMON, SLOWING = 0.003, 0.02  # of all figures of a run alike; of all cells of an operator
SLOWINGS = (0.03, 0.05)  # of a single figure
SHARED = 100  # figures of two runs whose verdicts are counted
WHAT: dict[QuantityKind, str] = {
    "burst": "compute ceilings",
    "sustained": "the same under load for seconds",
    "issue": "instruction issue",
    "memory": "HBM, DRAM",
    "cache": "L2, L1, shared memory",
    "link": "pinned host copies, copies between GPUs",
    "pageable": "pageable host copies",
    "device_time": "cells of operators, the device's part",
    "caller_time": "cells of operators, as a caller gets them",
    "operator_time": "an operator's geometric mean over its cells",
}


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

    def draw(self, factors: Mapping[str, float] = {}, spreads: Mapping[str, float] = {}, common: float = 0.0) -> Run:
        """Another run: every figure drawn about the reference's, times its factor, and all of them times one of the
        run's."""
        self.count += 1
        figures, of_run = [], math.exp(common * self.error())
        for one in self.run.quantities:
            sd = spreads.get(one.key, self.spreads[one.device, one.key])
            value = one.value * math.exp(sd * self.error()) * factors.get(one.key, 1.0) * of_run
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

    def false_alarms(self, pairs: int, runs: int, df: int | None, common: float = 0.0) -> float:
        """The share of pairs of sides without any change that show one; df of the stored spread, None without."""
        alarmed = 0
        for _ in range(pairs):
            before = self.known(df) if df else {}
            sides = (self.side(runs, common=common) for _ in "AB")
            found = compare(*sides, known=lambda card, before=before: before)
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


def margins() -> str:
    """Of each kind of figure its margin, and how far runs and cards lie apart. Raises CorruptRecord."""
    of_kind: dict[str, dict[str, list[Spread]]] = {"run": {}, "card": {}}
    for one in known("NVIDIA H200").quantities:
        for what, sd, df in (("run", one.run_spread, one.run_spread_df), ("card", one.card_spread, one.card_spread_df)):
            if sd is not None and df:
                of_kind[what].setdefault(one.kind, []).append(Spread(sd, df))
    rows = [
        [f"`{kind}`", WHAT[kind], percent(margin)]
        + [percent(pooled(of_kind[what][kind]).sd) if kind in of_kind[what] else "not known" for what in of_kind]
        for kind, margin in MARGINS.items()
    ]
    return table(["kind", "what", "margin", "between runs", "between cards"], rows, left=2)


def alarms() -> str:
    """The share of PAIRS comparisons without any change that show one, by runs a side."""
    ways = [
        ("1", "a stored spread", 1, STORED_DF, 0.0),
        ("3", "these runs", 3, None, 0.0),
        ("3", f"these runs, with {percent(COMMON)} common to all figures of a run", 3, None, COMMON),
    ]
    rows = []
    for count, words, runs, df, common in ways:
        rows.append([count, words, percent(Simulation(7, TAILS).false_alarms(PAIRS, runs, df, common))])
    return (
        f"{table(['runs a side', 'error from', 'pairs that show a change'], rows, left=2)}\n\n"
        f"Of {PAIRS} pairs each, with heavy tails (Student's t of {TAILS} degrees of freedom): 0 % of so many means at "
        f"most {percent(3 / PAIRS)}."
    )


@cache
def _one_pair(runs: int):
    simulated = Simulation(8)
    before = stored(next(iter(simulated.run.devices.values())).name) if runs == 1 else {}
    return compare(simulated.side(runs), simulated.side(runs), known=lambda card: before).quantities


def power() -> str:
    """In how many figures of a run a slowing is found in nine of ten comparisons."""
    rows = []
    for runs in (1, 3, 5):
        for slowing in SLOWINGS:
            shares = found_shares(_one_pair(runs), slowing)
            rows.append([str(runs), percent(slowing), *shares.values()])
    return table(["runs a side", "slowing", *found_shares(_one_pair(1))], rows, left=0)


def operator_power() -> str:
    """How often a slowing of all cells of an operator is found by its mean, at three runs a side."""
    simulated = Simulation(9)
    keys = [one.key for one in simulated.run.quantities if one.kind == "device_time" and one.operator == "row_norm"]
    slower = dict.fromkeys(keys, 1 + SLOWING)
    found = 0
    for _ in range(PAIRS):
        sides = simulated.side(3, common=COMMON), simulated.side(3, factors=slower, common=COMMON)
        quantities = compare(*sides, known=lambda card: {}).quantities
        found += next(one for one in quantities if one.key == "row_norm/operator_time").verdict == "SLOWER"
    return (
        f"All cells of row normalisation {percent(SLOWING)} slower, with {percent(COMMON)} common to all figures of a "
        f"run, three runs a side: its mean is called SLOWER in {found} of {PAIRS} comparisons."
    )


def real_runs() -> str:
    """What comparisons of two committed runs say, each of one H200: of one card, and of one beside another."""
    paths = [REFERENCE, *sorted((ROOT / "reference" / "runs").glob("nvidia-h200-*"))]
    runs = [run for run in map(read_run, paths) if [one for one in run.devices if one != "cpu"] == ["gpu0"]]
    shares, figures, changed, furthest = [], 0, 0, 0.0
    for a, b in itertools.combinations(runs, 2):
        same = a.devices["gpu0"].uuid == b.devices["gpu0"].uuid
        if same and a.commit != b.commit:
            continue
        card = a.devices["gpu0"].name
        mine = [one for one in compare([a], [b]).quantities if one.subject == card and one.kind != "caller_time"]
        if same:
            figures += len(mine)
            changed += sum(one.verdict in CHANGED for one in mine)
            apart = [abs(math.log(one.ratio)) / (one.spread * math.sqrt(2)) for one in mine if one.spread]
            furthest = max([furthest, *apart])
        elif len(mine) >= SHARED:
            shares.append(sum(one.verdict != "UNCLEAR" for one in mine) / len(mine))
    return (
        f"Of real runs ([reference/runs](../reference/runs)): of {figures} ceilings and GPU times of two runs of one"
        f" card and commit, {changed} are called changed, and none lies further apart than {furthest:.2g} standard"
        f" deviations of such a difference. Of {len(shares)} pairs of one H200 and another that share {SHARED} ceilings"
        f" and GPU times or more, {percent(min(shares))} to {percent(max(shares))} of these get a verdict, in the"
        f" median {percent(median(shares))}."
    )


def sentence() -> str:
    """What a comparison finds, for those who read one sentence."""
    words = []
    for runs, name in ((1, "with one run per side"), (3, "with three")):
        shares = found_shares(_one_pair(runs), SLOWINGS[1])
        some = [f"{share} {what}" for what, share in shares.items() if share != "none"]
        words.append(f"{name} in {listed(some)}")
    found = "; ".join(words)
    return f"On an H200 a slowdown of {percent(SLOWINGS[1])} is detected with 90 % probability {found}."
