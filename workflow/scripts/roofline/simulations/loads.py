"""What the sustained rule gives of loads whose true rate is known: with clock dips, a slow fall, neither."""

import random
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from roofline.core.formatting import percent
from roofline.measure.sustained import CHUNK_S, SETTLING_S, mean_rate, summarise
from roofline.records.compute import LoadPoint
from roofline.records.product import Product
from roofline.report.markdown import table

PRODUCT = Product(
    library="simulated", layout=None, shape={"m": 1, "n": 1, "k": 1}, algorithm=None, accumulation="fp32", output="fp32"
)
HIGH, LOW, OPENING = 670.0, 580.0, 770.0  # TFLOPS, as an H200's fp16
DIP = 3  # chunks
SECONDS, TRIALS, NOISE = (3, 10, 30), 60, 0.002
FALL = 0.01  # in every 3 s: a card that is still getting warmer


def curve(rates: Sequence[float]) -> list[LoadPoint]:
    return [LoadPoint(at_s=round(CHUNK_S * (place + 1), 4), tflops=rate) for place, rate in enumerate(rates)]


def dipping(seconds: float, cycles: Iterable[int], phase: int = 0) -> list[float]:
    """The rate of each chunk: an opening burst, then a clock that is low for DIP chunks at the end of each cycle, of so
    many chunks. It begins so many chunks into the first."""
    rates = [LOW if place >= cycle - DIP else HIGH for cycle in cycles for place in range(cycle)]
    return [OPENING] * 2 + rates[phase + 2 : phase + round(seconds / CHUNK_S)]


def falling(seconds: float) -> list[float]:
    return [HIGH * (1 - FALL * i * CHUNK_S / 3) for i in range(round(seconds / CHUNK_S))]


def error_table() -> str:
    """Of each kind of load and each length: the rule's mean error and its standard deviation."""
    dips = {"dips every 0.6 s": (12, 12), "dips every 0.9 s": (18, 18), "dips every 0.8 to 1 s": (16, 20)}
    kinds: dict[str, tuple[int, int] | None] = {**dips, "steady": (0, 0), "falls by 1 % in 3 s": None}
    rows = [[kind, *(_errors(cycle, seconds) for seconds in SECONDS)] for kind, cycle in kinds.items()]
    return table(["load", *(f"{seconds} s" for seconds in SECONDS)], rows)


def _errors(cycle: tuple[int, int] | None, seconds: int) -> str:
    chance = random.Random(f"{cycle} {seconds}")
    errors = []
    for _ in range(TRIALS):
        rates, true = _load(cycle, seconds, chance)
        noisy = [rate * (1 + chance.gauss(0, NOISE)) for rate in rates]
        errors.append(summarise(curve(noisy), PRODUCT, seconds).tflops / true - 1)
    return f"{100 * fmean(errors):+.2f} %, {percent(stdev(errors))}"


def _load(cycle: tuple[int, int] | None, seconds: int, chance: random.Random) -> tuple[list[float], float]:
    """The rates without noise, and the true one: over a long time, or of a fall over what can count."""
    if cycle is None:
        rates = falling(seconds)
        return rates, mean_rate(curve(rates[round(SETTLING_S / CHUNK_S) :]))
    shortest, longest = cycle
    if not longest:
        return [HIGH] * round(seconds / CHUNK_S), HIGH
    cycles = [chance.randint(shortest, longest) for _ in range(round(seconds / CHUNK_S) // shortest + 2)]
    middle = (shortest + longest) / 2
    return dipping(seconds, cycles, chance.randrange(cycles[0])), middle / ((middle - DIP) / HIGH + DIP / LOW)
