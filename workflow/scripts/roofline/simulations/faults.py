"""How often a card that is too slow in one figure is found beside others of its model, by the bounds of standing.py."""

import math
import random

from roofline.analysis.distribution import OF_CARD, known
from roofline.analysis.quantities import Quantity
from roofline.analysis.standing import FEWEST, grade
from roofline.core.formatting import percent
from roofline.records.distribution import QuantityDistribution
from roofline.report.markdown import table

CARD, FAULTS = "NVIDIA H200", (0.0, 0.01, 0.02, 0.05, 0.10)
TRIALS, OTHERS, SEED = 300, 7, 5


def found_table() -> str:
    """For each figure of the card how often a fault is a note or more, and a failure. Raises CorruptRecord."""
    figures = [one for one in known(CARD).quantities if one.kind in OF_CARD and one.cards >= FEWEST]
    columns = ["figure", "run to run", "card to card", *("no fault" if not f else percent(f) for f in FAULTS)]
    rows = [
        [f"`{one.key}`", percent(one.run_spread or 0), percent(one.card_spread or 0), *(_found(one, f) for f in FAULTS)]
        for one in figures
    ]
    return table(columns, rows)


def alarms() -> str:
    """How often a card without fault gets a note or more in any figure. Raises CorruptRecord."""
    chance, sound = random.Random(SEED), TRIALS
    figures = [one for one in known(CARD).quantities if one.kind in OF_CARD and one.cards >= FEWEST]
    for _ in range(TRIALS):
        sound -= any(_result(one, 0.0, chance) != "pass" for one in figures)
    share = percent(1 - sound / TRIALS)
    return f"A card without fault got a note or more in some figure of {len(figures)} in {share} of trials."


def _found(figure: QuantityDistribution, fault: float) -> str:
    chance = random.Random(f"{SEED} {figure.key} {fault}")
    results = [_result(figure, fault, chance) for _ in range(TRIALS)]
    noted, failed = sum(one != "pass" for one in results), results.count("fail")
    return f"{percent(noted / TRIALS)}, {percent(failed / TRIALS)}"


def _result(figure: QuantityDistribution, fault: float, chance: random.Random) -> str:
    """Of one run of a card beside runs of others: normal errors of the logarithms, of card and run."""

    def card(runs: int, slower: float = 0.0) -> list[float]:
        middle = figure.median * (1 - slower) * math.exp(chance.gauss(0, figure.card_spread or 0))
        return [middle * math.exp(chance.gauss(0, figure.run_spread or 0)) for _ in range(runs)]

    others = [card(3), *(card(1) for _ in range(OTHERS - 1))]
    value = card(1, fault)[0]
    mine = Quantity("", figure.key, figure.name, figure.kind, value, figure.unit, True, None, None, None, None)
    return grade(mine, others, others).result
