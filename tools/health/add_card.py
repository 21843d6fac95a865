"""make health ADD=ARCHIVE: add the runs of an archive or a results folder to reference/cards/."""

import roofline.api as api

BETWEEN_CARDS = "p2p_"  # begins the keys of figures that are not of one card


def add(source: str) -> list[str]:
    """What was added, in a line for each GPU. Raises api.Refused, CorruptRecord and OSError."""
    run, lines = api.open_run(source), []
    gpus = {name: one for name, one in run.devices.items() if one.device_kind == "gpu" and one.uuid != "unknown"}
    whole = [name for name, one in gpus.items() if not one.hardware.get("mig_slice")]
    if not whole:
        raise api.Refused(f"{source}: no GPU was measured there; a slice of a GPU is not added")
    for device in whole:
        name, new = run.devices[device].name, card_run(run, device)
        known = api.cards(name) or api.Cards(card=name, runs=[])
        if (new.card_id, new.date) in {(one.card_id, one.date) for one in known.runs}:
            raise api.Refused(f"{source}: its run of {device} is already in {api.cards_path(name).name}")
        runs = sorted([*known.runs, new], key=lambda one: one.date)
        api.write_cards(api.Cards(card=name, runs=runs), api.cards_path(name))
        distinct = api.counted(len({one.card_id for one in runs}), "card")
        lines.append(f"{name}: {api.counted(len(runs), 'run')} of {distinct} in {api.cards_path(name)}")
    return lines


def card_run(run: api.Run, device: str) -> api.CardRun:
    record, figures = run.devices[device], api.sound(run.quantities, run.roofline, device)
    return api.CardRun(
        date=record.queried_at,
        commit=run.commit,
        method=api.METHOD,
        card_id=api.card_id(record.uuid),
        effort=run.effort,
        driver=record.software.get("driver"),
        cublas=record.software.get("cublas_loaded"),
        power_limit_w=record.hardware.get("power_limit_w"),
        values={one.key: float(f"{one.value:.6g}") for one in figures if not one.key.startswith(BETWEEN_CARDS)},
    )
