"""The known runs of reference/cards that a run is compared with."""

from roofline.core.dtypes import COMPUTE_CEILINGS
from roofline.devices.datasheets import CUDA_CORE_FIGURE, find_card_model, read_datasheets
from roofline.records.cards import CARDS, Cards, KnownCards, OtherModel, keep_values, read_all_cards
from roofline.table.quantities import cell_key
from roofline.table.rows import TIMES
from roofline.table.run_records import Results

DATASHEETS = CARDS.parents[1] / "config" / "datasheets.yaml"


def find_known_cards(results: Results) -> KnownCards:
    """Return the known runs of each GPU's model, and of the other model that has most of its cells, by device.

    Raises UserError if reference/cards or the datasheets are not readable as such.
    """
    known = KnownCards(devices={}, other_models={})
    for name, device in results.devices.items():
        if device.device_kind != "gpu":
            continue
        jobs = [job for _, job in results.measured if job.device == name]
        times = {f"{cell_key(cell)}/{time}" for job in jobs for cell in job.measurements for time in TIMES}
        models = {cards.name: keep_values(cards, times, device.method) for cards in read_all_cards()}
        if own := models.pop(device.name, None):
            known.devices[name] = own
        others = [other for other in map(_add_promise, models.values()) if other]
        if others:
            known.other_models[name] = max(others, key=lambda other: len(times & other.keys))
    return known


def _add_promise(cards: Cards) -> OtherModel | None:
    """The runs of a model with the rates that its datasheet prints; None if it is in none."""
    _, card = find_card_model(read_datasheets(DATASHEETS), cards.name)
    if card is None:
        return None
    peaks = card["peaks_tflops"]
    tflops = {name: peaks.get(name) or peaks.get(CUDA_CORE_FIGURE.get(name)) for name in COMPUTE_CEILINGS}
    return OtherModel(
        name=cards.name,
        runs=cards.runs,
        promised_tflops={name: peak for name, peak in tflops.items() if peak},
        promised_gb_per_s=card["bandwidth_gb_per_s"],
    )
