"""The cards of a command: their ceilings, memory and price, from runs and from config/datasheets.yaml."""

from dataclasses import replace
from pathlib import Path

from bound import CardCeilings, CardLimits, datasheet_ceilings
from split import CardLink

import roofline.api as api

DATASHEETS = Path(__file__).resolve().parents[2] / "config" / "datasheets.yaml"
PAIR = 2  # cards of a measured link
MOST_SUGGESTIONS = 5  # names that an unknown one is answered with


def set_prices(cards: list[CardLimits], prices: list[float] | None) -> list[CardLimits]:
    """Return the cards with one price for all, or with one each; without prices, as they are. Raises UserError."""
    if not prices:
        return cards
    if len(prices) not in (1, len(cards)):
        count = api.count_words(len(cards), "card")
        raise api.UserError(f"PRICE: {len(prices)} for {count}; allowed: one, or one for each")
    # Repeated often enough that one price is that of every card.
    return [replace(card, usd_per_hour=price) for card, price in zip(cards, prices * len(cards), strict=False)]


def load_card(name: str) -> CardLimits:
    """Return the first device of a run that has the ceilings, or a card of the datasheets. Raises UserError."""
    if not Path(name).exists():
        if name == str(api.RESULTS):
            raise api.UserError("no results here yet: run make first, or name a card: CARD=reference/nvidia-h200")
        return load_datasheet_card(name)
    run = api.open_run(name)
    for device, record in sorted(run.devices.items(), key=lambda item: item[1].device_kind != "gpu"):
        ceilings = {ceiling.name: ceiling for ceiling in run.roofline.ceilings if ceiling.device == device}
        read_names = [level for level in api.memory_ceilings(record.device_kind, "read") if level in ceilings]
        products = {name: ceiling for name, ceiling in ceilings.items() if name in api.datasheets.PRODUCT_DTYPES}
        if not read_names or not products:
            continue
        read = ceilings[read_names[0]]
        burst = {dtype: product.burst_tflops or product.tflops for dtype, product in products.items()}
        loads = {dtype: product.sustained_tflops for dtype, product in products.items() if product.sustained_tflops}
        sustained = {dtype: min(rate, burst[dtype]) for dtype, rate in loads.items()}  # above the burst is noise
        by_vendor = run.roofline.devices[device].peaks_by == "datasheet"
        vendor_peaks = {name: product.datasheet_tflops for name, product in products.items() if by_vendor}
        doubted = api.join_words(ceiling.name for ceiling in (read, *products.values()) if ceiling.doubt)
        gpus = sum(device_record.device_kind == "gpu" for device_record in run.devices.values()) or 1
        return CardLimits(
            name=record.name,
            origin=f"measured, {name}{f'; do not rely on {doubted}' if doubted else ''}",
            memory_bytes=record.memory_total_bytes,
            memory_ceiling=read.name,
            burst=CardCeilings(read.gb_per_s, burst),
            sustained=CardCeilings(min(read.sustained_gb_per_s or read.gb_per_s, read.gb_per_s), sustained),
            datasheet_tflops=vendor_peaks,
            usd_per_hour=(run.manifest.times.usd_per_hour or 0) / gpus or None,  # the manifest's is of the machine
            read_power_w=read.energy.power_w if read.energy and not read.energy.reason else None,
            link=_find_link(run, device),
        )
    raise api.UserError(f"{name}: no device there has both memory and GEMM ceilings")


def _find_link(run: api.Run, device: str) -> CardLink | None:
    """Return the link of a device to the others of its run, as measured, or by its datasheet; None if it has none."""
    rows = [row for row in run.roofline.ceilings if row.device == device and row.kind == "memory" and row.both_ways]
    both_gb_per_s = [row.gb_per_s for row in rows if row.peer and not row.doubt]
    reduced = [size for row in run.roofline.all_reduces if device in (row.device, row.peer) for size in row.sizes]
    # Of a size, the fastest pair comes last and stays.
    seconds = dict(sorted(((size.size_bytes, size.time_s) for size in reduced if not size.doubt), reverse=True))
    if both_gb_per_s:
        all_reduces = {PAIR: seconds} if seconds else {}
        return CardLink(max(both_gb_per_s) / 2, "as measured between two cards", all_reduces)
    nvlink = run.devices[device].datasheet.nvlink
    return CardLink(nvlink.gb_per_s, "the datasheet's NVLinks") if nvlink else None


def load_datasheet_card(name: str) -> CardLimits:
    """Return a card by its datasheet; a part of its name will do. Raises UserError for an unknown name."""
    sheets = api.datasheets.read_datasheets(DATASHEETS)
    names = [device_name for card in sheets["cards"].values() for device_name in card["device_names"]]
    similar = [name] if name in names else [known for known in names if name.lower() in known.lower()]
    if len(similar) != 1:
        hint = f"did you mean {' or '.join(similar)}? " if 0 < len(similar) <= MOST_SUGGESTIONS else ""
        raise api.UserError(
            f"{name}: neither a run nor a card of config/datasheets.yaml; {hint}"
            "allowed: a folder or archive of a run, or a card named there"
        )
    card_id, card = api.datasheets.find_card_model(sheets, similar[0])
    origin, memory_ceiling = "by its datasheet, not measured", "the bandwidth of the datasheet"
    memory_bytes, ceilings, link = api.datasheets.nominal_memory_bytes(card), datasheet_ceilings(card), None
    if links := sheets["nvlinks"].get(card_id):
        gb_per_s = links * sheets["nvlink"][card["compute_capability"]]["gb_per_s"]
        link = CardLink(gb_per_s, "the datasheet's NVLinks")
    limits = similar[0], origin, memory_bytes, memory_ceiling, ceilings
    return CardLimits(*limits, datasheet_tflops=ceilings.tflops, link=link)
