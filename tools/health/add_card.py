"""make health ADD=ARCHIVE: add the runs of an archive or a results folder to reference/cards/."""

from against_known import watts

import roofline.api as api


def add(source: str) -> list[str]:
    """A line for each GPU; a run that is already there stays once. Raises api.UserError and OSError."""
    run, lines = api.open_run(source), []
    for device, record in run.devices.items():
        if record.device_kind != "gpu" or record.uuid == "unknown" or record.hardware.get("mig_slice"):
            continue
        new, path = card_run(run, device), api.cards_path(record.name)
        known = api.cards(record.name) or api.Cards(name=record.name, runs=[])
        runs = {(one.card_id, one.queried_at): one for one in (*known.runs, new)}.values()
        api.write_cards(api.Cards(name=record.name, runs=sorted(runs, key=lambda one: one.queried_at)), path)
        cards = api.count_words(len({one.card_id for one in runs}), "card")
        lines.append(f"{record.name}: {api.count_words(len(runs), 'run')} of {cards} in {path}")
    if not lines:
        raise api.UserError(f"{source}: no GPU was measured there; a slice of a GPU is not added")
    return lines


def card_run(run: api.Run, device: str) -> api.CardRun:
    record, figures = run.devices[device], [one for one in run.quantities if one.device == device and not one.doubt]
    values = {one.key: one.value for one in figures if not one.key.startswith(api.PEER_KEY_PREFIX)}
    values |= {key: value for key, value, _ in watts(run.roofline, device)}
    return api.CardRun(
        queried_at=record.queried_at,
        commit=run.commit,
        method=record.method,
        card_id=api.card_id(record.uuid),
        effort=run.effort,
        driver=record.software.get("driver"),
        cublas_loaded=record.software.get("cublas_loaded"),
        power_limit_w=record.hardware.get("power_limit_w"),
        values={key: float(f"{value:.6g}") for key, value in values.items()},
    )
