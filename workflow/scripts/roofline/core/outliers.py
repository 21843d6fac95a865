"""Which of many like cards are low in a figure: robust centre and spread over the cards, one-sided p values, control of
false discoveries, and what a repeat says.

Arrays have the shape (cards, figures), or (runs, cards, figures), and hold natural logarithms of performances: more is
better. NaN stands where a card or run lacks a figure.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from roofline.core import student_t
from roofline.core.run_spread import Spread, pooled

DISCOVERIES = 0.05  # of the flagged cards, that are expected to be flagged by chance
AGAIN = 0.05  # the p value that a repeat has to reach, of itself: it tests what was flagged and nothing else
FEWEST_CARDS = 8  # whose own spread says anything
OWN_SPREAD = 32  # cards whose own spread is better known than a stored one
CUTOFF = 3.0  # scaled MADs from the median, beyond which a card does not count for the spread
MAD_OF_NORMAL = 0.6744897501960817  # of a standard deviation
# The variance of a normal variable that is cut off there, over the whole one's.
KEPT = 1 - 2 * CUTOFF * math.exp(-(CUTOFF**2) / 2) / math.sqrt(2 * math.pi) / math.erf(CUTOFF / math.sqrt(2))
LEAST_Z = 1.5  # below which no p value is needed
# Tails: how many times as far as its median the fast half of all cards and figures reaches with its last 2 %.
HALF, FAR = 0.25, 0.01  # of a whole distribution beyond these places
FEWEST_FAST = 200
RATIO_ERROR = 1.5  # relative standard error of the ratio, times the square root of their number; simulated
HEAVIER = 2.5  # standard errors above the normal ratio, from which tails are taken for heavier

Basis = Literal["fleet", "stored", "both"]
Status = Literal["flagged", "confirmed", "not confirmed"]


class Tails(NamedTuple):
    """Of Student's t: its degrees of freedom, and its scale over that of normal errors of the same quartiles."""

    df: float
    scale: float


NORMAL = Tails(math.inf, 1.0)


class Screen(NamedTuple):
    """Of each figure what cards are held to: arrays over figures, NaN where nothing can be concluded."""

    middle: np.ndarray
    sd: np.ndarray
    df: np.ndarray
    basis: list[Basis | None]
    margins: np.ndarray
    critical: np.ndarray  # the p value up to which figures of a card are flagged, of shape (cards, 1)
    tails: Tails = NORMAL

    def z(self, logs: np.ndarray) -> np.ndarray:
        """Standard deviations from the median; negative where a card is slower."""
        return (logs - self.middle) / self.sd

    def p_values(self, logs: np.ndarray) -> np.ndarray:
        """Of being so far below the median by chance. 1 for what is not far below it, or not known."""
        return _upper_tails(-self.z(logs) * self.tails.scale, np.minimum(self.df, self.tails.df))

    def short(self, logs: np.ndarray) -> np.ndarray:
        """How far below the median, as a share of it."""
        return -np.expm1(logs - self.middle)

    def low(self, logs: np.ndarray, p_value: float | np.ndarray) -> np.ndarray:
        """Below the median beyond chance and beyond the margin."""
        with np.errstate(invalid="ignore"):
            return (self.p_values(logs) <= p_value) & (self.short(logs) > self.margins)


def screen(logs: np.ndarray, margins: Sequence[float], stored: Sequence[Spread | None]) -> Screen:
    """What the first runs of all cards, of shape (cards, figures), say of each figure.

    `stored` has what is known of the model's spread, of cards and runs together. The fleet's own spread is used from
    OWN_SPREAD cards on; from FEWEST_CARDS on both together, but never less than the fleet's own; of fewer the stored
    one alone; without either nothing is concluded.
    """
    counts = np.sum(~np.isnan(logs), axis=0)
    middle = np.nanmedian(logs, axis=0)
    own_sd, own_df = robust_spread(logs)
    found = [
        _basis(int(count), Spread(float(sd), float(df)), one)
        for count, sd, df, one in zip(counts, own_sd, own_df, stored, strict=True)
    ]
    # A card's distance from a median that it is part of: of normal cards, 1 - 2 / n and the median's own variance.
    factor = np.sqrt(1 + (math.pi / 2 - 2) / np.maximum(counts, 2))
    sd = np.array([spread.sd if spread else math.nan for spread, _ in found]) * factor
    df = np.array([spread.df if spread else math.nan for spread, _ in found])
    made = Screen(middle, sd, df, [basis for _, basis in found], np.asarray(margins), np.zeros(0))
    z = made.z(logs)
    made = made._replace(tails=tails(z[z > 0]))
    return made._replace(critical=critical(np.where(np.isnan(z), np.nan, made.p_values(logs))))


def tails(fast: np.ndarray) -> Tails:
    """What the cards that are faster than the median say of chance, over all figures: no fault made them fast.

    Of normal errors the 98th percentile of that half is 3.45 times its median; where it is more, beyond chance, p
    values are of the t distribution that has the same ratio and median.
    """
    if len(fast) < FEWEST_FAST:
        return NORMAL
    near, far = np.quantile(fast, [1 - 2 * HALF, 1 - 2 * FAR])
    normal = _ratio(1e6)
    if far / near < normal * (1 + HEAVIER * RATIO_ERROR / math.sqrt(len(fast))):
        return NORMAL
    low, high = 1.0, 200.0
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _ratio(middle) > far / near else (low, middle)
    df = round(low, 1)
    return Tails(df, float(student_t.quantile(HALF, df) / near))


def _ratio(df: float) -> float:
    return student_t.quantile(FAR, df) / student_t.quantile(HALF, df)


def robust_spread(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations over the cards and their degrees of freedom, by figure.

    One step from the MAD: what lies more than CUTOFF scaled MADs from the median is set aside, and the standard
    deviation of the rest, corrected for what was cut off, is the spread (Rousseeuw and Leroy, Robust Regression and
    Outlier Detection, chapter 4, section 2). The MAD alone wastes most of what 64 cards tell: its tails are those of
    Student's t with 25 degrees of freedom, and this one's with 38, which flags 4.5 standard deviations in place of
    4.8. The degrees of freedom are fitted to simulated tails of 1e-4 of normal cards: 4, 6.3, 17, 38 and 150 of 12,
    16, 32, 64 and 256 cards.
    """
    counts = np.sum(~np.isnan(logs), axis=0)
    off = np.abs(logs - np.nanmedian(logs, axis=0))
    mad = np.nanmedian(off, axis=0) / MAD_OF_NORMAL
    with np.errstate(invalid="ignore"):
        kept = np.where(off <= CUTOFF * mad, logs, np.nan)
    number = np.maximum(np.sum(~np.isnan(kept), axis=0), 2)
    squares = np.nansum((kept - np.nansum(kept, axis=0) / number) ** 2, axis=0)
    return np.sqrt(squares / (number - 1) / KEPT), np.maximum(0.6 * counts - 3, 0)


def critical(p_values: np.ndarray) -> np.ndarray:
    """The p values up to which figures are flagged, of shape (cards, 1): of cards with a flagged figure DISCOVERIES are
    sound. p values have the shape (cards, figures), NaN where there is no test.

    Of a single family of all cards and figures, one card that is slow in ten figures would make room for sound ones. So
    each card is a family: those are selected whose Simes p values Benjamini and Hochberg's procedure (Journal of the
    Royal Statistical Society B 57, 1995) rejects, and within them the same procedure at a level times the share of
    selected ones (Benjamini and Bogomolov, same journal, 76, 2014). Both hold for figures that a common cause moves
    alike (Benjamini and Yekutieli, Annals of Statistics 29, 2001).
    """
    tests = np.sum(~np.isnan(p_values), axis=1, keepdims=True)
    ordered = np.sort(p_values, axis=1)  # NaN last
    ranks = np.arange(1, p_values.shape[1] + 1)
    simes = np.min(np.where(np.isnan(ordered), np.inf, ordered * tests / ranks), axis=1)
    families = int(np.sum(tests > 0))
    selected = _rejected(np.sort(simes), DISCOVERIES * np.arange(1, len(simes) + 1) / max(families, 1))
    level = DISCOVERIES * max(selected, 1) / max(families, 1)
    steps = level * ranks / np.maximum(tests, 1)
    count = np.max(np.where(ordered <= steps, ranks, 1), axis=1, keepdims=True)
    return level * count / np.maximum(tests, 1)


def _rejected(ordered: np.ndarray, bounds: np.ndarray) -> int:
    below = np.flatnonzero(ordered <= bounds)
    return int(below[-1]) + 1 if len(below) else 0


def verdicts(found: Screen, runs: np.ndarray) -> dict[tuple[int, int], Status]:
    """By card and figure, where one run or more is far below the median; runs of shape (runs, cards, figures).

    Of one run alone it is flagged. Of several it is confirmed where the others' median is low as well.
    """
    far = found.low(runs, found.critical)
    told: dict[tuple[int, int], Status] = {}
    for card, figure in np.argwhere(far.any(axis=0)):
        values = runs[:, card, figure]
        known = ~np.isnan(values)
        if known.sum() == 1:
            told[int(card), int(figure)] = "flagged"
            continue
        again = np.full((1, runs.shape[2]), np.nan)
        confirmed = False
        for run in np.flatnonzero(far[:, card, figure]):
            others = known.copy()
            others[run] = False
            again[0, figure] = np.median(values[others])
            confirmed |= bool(found.low(again, AGAIN)[0, figure])
        told[int(card), int(figure)] = "confirmed" if confirmed else "not confirmed"
    return told


def _basis(count: int, own: Spread, stored: Spread | None) -> tuple[Spread | None, Basis | None]:
    if count < 2:
        return None, None
    if count < FEWEST_CARDS:
        return stored, "stored" if stored else None
    if not stored or count >= OWN_SPREAD:
        return own, "fleet"
    both = pooled([own, stored])
    return both._replace(sd=max(both.sd, own.sd)), "both"


def _upper_tails(z: np.ndarray, df: np.ndarray) -> np.ndarray:
    found = np.ones(z.shape)
    for one in set(df[~np.isnan(df)]):
        mine = (df == one) & (z > LEAST_Z)
        found[mine] = np.exp(np.interp(np.log(z[mine]), *_table(float(one))))
    return found


@cache
def _table(df: float) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of z and of the probabilities beyond it, close enough to be interpolated to 0.1 %."""
    log_z = np.linspace(math.log(LEAST_Z), math.log(1e4), 600)
    return log_z, np.log([max(student_t.upper_tail(math.exp(one), df), 1e-300) for one in log_z])
