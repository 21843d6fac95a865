"""The cards of one model on a host beside one another: alike, or which is slow. No stored distribution is needed."""

import itertools
from collections.abc import Mapping, Sequence

from roofline.analysis.distribution import distribution, measured, sound
from roofline.analysis.quantities import quantities
from roofline.analysis.results import Results
from roofline.analysis.standing import Standing, below, near, standing
from roofline.analysis.table import Roofline
from roofline.core.device_kinds import accelerators
from roofline.core.formatting import counted, listed
from roofline.records.device import DeviceRecord
from roofline.records.distribution import Distribution

Groups = list[dict[str, Standing]]  # of each model with several cards, by device


def groups(found: Results, roofline: Roofline) -> Groups:
    """Where each card stands among the host's others; spreads are those of the stored distribution where there is one,
    else of the other cards."""
    records, figures = found.device_records(), quantities(roofline)
    own = {name: sound(figures, roofline, name) for name in records}
    gpus = sorted(accelerators(records.values(), lambda one: one.device_kind), key=lambda one: one.name)
    made = []
    for model, several in itertools.groupby(gpus, key=lambda one: one.name):
        cards = list(several)
        runs = [measured(card, own[card.device]) for card in cards]
        told = {one.key: one for card in cards for one in own[card.device]}
        here, known = distribution(model, runs, told), _known(found, cards)
        if len(cards) > 1:
            made.append({card.device: standing(here, card, own[card.device], known=known) for card in cards})
    return made


def _known(found: Results, cards: Sequence[DeviceRecord]) -> Distribution | None:
    return next((found.distributions[card.device] for card in cards if card.device in found.distributions), None)


def sentences(several: Groups) -> list[str]:
    """One for each group that is alike; else one for each card that is low in something."""
    return [words for group in several for words in _sentences(group)]


def _sentences(group: Mapping[str, Standing]) -> list[str]:
    judged = {name: one for name, one in group.items() if not one.why}
    low = [words for name, one in judged.items() if (words := below(name, _others(name, group), one))]
    if low and len(group) == 2:
        low[-1] += "; of two cards, only other cards of the model tell which is the unusual one"
    if low or not judged:
        return [f"{words}." for words in low]
    every = [figure for one in judged.values() for figure in one.graded]
    return [f"{near(f'{listed(judged)} are', 'one another', Standing(len(judged) - 1, every))}."]


def _others(name: str, group: Mapping[str, Standing]) -> str:
    others = [other for other in group if other != name]
    return others[0] if len(others) == 1 else f"this host's {counted(len(others), 'other')}"


def among(device: str, several: Groups) -> tuple[str, Standing] | None:
    """Who the host's other cards of its model are, and where the device stands among them."""
    return next(((_others(device, group), group[device]) for group in several if device in group), None)
