"""A card by its datasheet alone, on which cells are planned on a machine without it."""

from pathlib import Path

from roofline.core.architectures import architecture_of, parse_capability
from roofline.core.terms import UserError
from roofline.core.units import KIB, MIB
from roofline.devices import datasheets
from roofline.devices.base import Identity
from roofline.devices.gpu.gpu_device import OVERLAP_DRIVER_CUDA, PlannedGpu
from roofline.records.device_record import DatasheetFigures
from roofline.records.seal_records import PredictionRecord

DATASHEETS = Path(__file__).resolve().parents[5] / "config/datasheets.yaml"
NAME = "gpu0"


class DatasheetGpu(PlannedGpu):
    """A card of config/datasheets.yaml: what its driver would report, and as `seal` what its vendor promises.

    Raises UserError for a name that is not there, in one line.
    """

    def __init__(self, name: str):
        sheets = datasheets.read_datasheets(DATASHEETS)
        _, card = datasheets.find_card_model(sheets, name)
        if card is None:
            names = [device_name for card in sheets["cards"].values() for device_name in card["device_names"]]
            similar = [device_name for device_name in names if name in device_name]
            raise UserError(f"{name!r} is not a card of config/datasheets.yaml; allowed: {', '.join(similar or names)}")
        architecture = architecture_of(parse_capability(card["compute_capability"]))
        memory_bytes = datasheets.nominal_memory_bytes(card)
        identity = Identity(
            device=NAME,
            kind=self.kind,
            name=name,
            uuid="",
            driver=None,
            memory_total_bytes=memory_bytes,
            memory_free_bytes=memory_bytes,
            compute_capability=card["compute_capability"],
            multiprocessors=card["multiprocessors"],
        )
        properties = {
            "MultiProcessorCount": card["multiprocessors"],
            "MaxThreadsPerMultiProcessor": architecture.threads,
            "L2CacheSize": int(card["l2_mib"] * MIB),
            "MaxSharedMemoryPerMultiprocessor": architecture.shared_kib * KIB,
            "MaxSharedMemoryPerBlockOptin": architecture.shared_per_block_kib * KIB,
        }
        self.set_facts(identity, properties, OVERLAP_DRIVER_CUDA)
        unknown = dict.fromkeys(
            ("mig_slice", "nvlinks_active", "sm_clock_max_mhz", "memory_clock_max_mhz", "memory_bus_width_bits")
        )
        hardware = {**unknown, "multiprocessors": card["multiprocessors"]}
        self.figures = DatasheetFigures(**datasheets.datasheet_figures(sheets, identity, hardware))
        self.seal = PredictionRecord(
            device=self.name,
            device_kind=self.kind,
            sealed_at="",
            ceilings=datasheets.promise_gpu_ceilings(self.figures),
        )
