"""make health ADD=ARCHIVE: add the runs of an archive or a results folder to reference/cards/."""

from typing import Any

from against_known import measured_energy, power_figures

import roofline.api as api


def add_run(source: str) -> list[str]:
    """Add the GPUs of a run to reference/cards/ and return a line for each; a run that is already there stays once.

    Raises api.UserError and OSError.
    """
    run, lines = api.open_run(source), []
    for device, record in run.devices.items():
        if record.device_kind != "gpu" or record.uuid == "unknown" or record.hardware.get("mig_slice"):
            continue
        stored, path = api.cards(record.name), api.cards_path(record.name)
        all_runs = [*(stored.runs if stored else []), make_card_run(run, device)]
        runs = {(card_run.card_id, card_run.queried_at): card_run for card_run in all_runs}.values()
        sorted_runs = sorted(runs, key=lambda card_run: card_run.queried_at)
        api.write_cards(api.Cards(name=record.name, runs=sorted_runs), path)
        cards = api.count_words(len({card_run.card_id for card_run in runs}), "card")
        lines.append(f"{record.name}: {api.count_words(len(runs), 'run')} of {cards} in {path}")
    if not lines:
        raise api.UserError(f"{source}: no GPU was measured there; a slice of a GPU is not added")
    return lines


def joules(roofline: api.Roofline, device: str) -> dict[str, float]:
    """Return the joules per FLOP and byte of the device's sustained loads, and the fitted ones, by their keys."""
    sources: dict[str, Any] = measured_energy(roofline, device)
    sources |= {f"energy_fit/{fit.dtype}": fit for fit in roofline.energy_fits if fit.device == device}
    fields = ("joules_per_flop", "joules_per_byte")
    joules = {f"{name}/{field}": getattr(source, field) for name, source in sources.items() for field in fields}
    return {key: value for key, value in joules.items() if value}


def drawn_errors(roofline: api.Roofline, device: str) -> api.DrawnErrors | None:
    """Return the errors of the predictions of drawn shapes on a device; None where none were measured."""
    undoubted = [cell for cell in roofline.drawn if cell.device == device and not cell.doubt and not cell.roof_doubt]
    if not undoubted:
        return None
    all_hashes = roofline.devices[device].constants_sha256
    constants_sha256 = {cell.operator: all_hashes[cell.operator] for cell in undoubted}
    by_implementation = api.group_by(undoubted, lambda cell: f"{cell.operator}/{cell.implementation}")
    errors: dict[str, dict[str, list[float]]] = {"gpu_time": {}, "cpu_time": {}}
    for name, cells in by_implementation.items():
        for time, by_name in errors.items():
            values = [getattr(cell, f"sealed_{time}_error") for cell in cells]
            if rounded := [float(f"{value:.3g}") for value in values if value is not None]:
                by_name[name] = rounded
    return api.DrawnErrors(constants_sha256=constants_sha256, **errors)


def make_card_run(run: api.Run, device: str) -> api.CardRun:
    """Return the undoubted figures of a GPU, without those between two GPUs, and the facts that they depend on."""
    record = run.devices[device]
    quantities = [quantity for quantity in run.quantities if quantity.device == device and not quantity.doubt]
    of_card = [quantity for quantity in quantities if not quantity.key.startswith(api.PAIR_KEY_PREFIXES)]
    values = {quantity.key: quantity.value for quantity in of_card}
    values |= {key: value for key, value, _ in power_figures(run.roofline, device)}
    values |= joules(run.roofline, device)
    return api.CardRun(
        queried_at=record.queried_at,
        commit=run.commit,
        method=record.method,
        card_id=api.card_id(record.uuid),
        effort=run.effort,
        driver=record.software.get("driver"),
        cublas_loaded=record.software.get("cublas_loaded"),
        power_limit_w=record.hardware.get("power_limit_w"),
        drawn=drawn_errors(run.roofline, device),
        values={key: float(f"{value:.6g}") for key, value in values.items()},
    )
