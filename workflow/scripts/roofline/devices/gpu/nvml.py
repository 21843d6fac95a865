"""What NVML reports of a GPU; None where it refuses, and for a handle of None: a card that NVML does not know."""

import os
from typing import Any

NvmlHandle = Any  # pynvml's handle of a card or MIG slice, an opaque pointer; None for a card that NVML does not know

THROTTLE_REASON_BITS = {
    0x0000000000000001: "gpu_idle",
    0x0000000000000002: "applications_clocks_setting",
    0x0000000000000004: "sw_power_cap",
    0x0000000000000008: "hw_slowdown",
    0x0000000000000010: "sync_boost",
    0x0000000000000020: "sw_thermal_slowdown",
    0x0000000000000040: "hw_thermal_slowdown",
    0x0000000000000080: "hw_power_brake_slowdown",
    0x0000000000000100: "display_clock_setting",
}

# NVML_ERROR_TIMEOUT, _IRQ_ISSUE, _GPU_IS_LOST, _RESET_REQUIRED, _GPU_NOT_FOUND and _UNKNOWN: of a card that has fallen
# off the bus or waits for a reset, and not of one that this user or container may not see.
LOST = {10, 11, 15, 16, 28, 999}
LOST_REMEDY = "it is left out, and cards after it have other numbers; see dmesg, then reset it or reboot"

# Names of the same query: older drivers know the second alone, which newer ones may drop.
THROTTLE_REASON_QUERIES = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
# Values of nvml.h: NVML_FI_DEV_POWER_INSTANT, NVML_SUCCESS, NVML_NVLINK_MAX_LINKS, NVML_FEATURE_ENABLED,
# NVML_NVLINK_DEVICE_TYPE_GPU, NVML_P2P_STATUS_OK, NVML_TOPOLOGY_ and NVML_NVLINK_VERSION_.
POWER_INSTANT, SUCCESS, MOST_NVLINKS, ENABLED, LINKED_TO_GPU, P2P_OK = 186, 0, 36, 1, 0, 0
ANCESTORS = {0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system"}
NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}


def query(query_name: str, *arguments: Any) -> Any:
    """Return the answer of the function nvml{query_name}, or None if this driver, card, container or version of pynvml
    has none.

    Strings among the arguments are names of NVML's constants. The answer for an argument of None is None.
    """
    if any(argument is None for argument in arguments):
        return None
    try:
        import pynvml

        values = [getattr(pynvml, argument) if isinstance(argument, str) else argument for argument in arguments]
        answer = getattr(pynvml, f"nvml{query_name}")(*values)
    except (ImportError, AttributeError, UnicodeDecodeError):  # some drivers under WSL name cards in no encoding
        return None
    except pynvml.NVMLError:
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def initialise() -> bool:
    """Start NVML for this process and return whether it answers."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return False
    return True


def list_cards() -> tuple[list[NvmlHandle], list[str]]:
    """Return the handles of the cards that answer, in PCI order, and a line for each that no longer does."""
    cards, lost = [], []
    for index in range(query("DeviceGetCount") or 0):
        error = _find_error(index)
        if error is not None and error.value in LOST:
            lost.append(f"GPU {index} of NVML does not answer ({error}): {LOST_REMEDY}")
        elif card := query("DeviceGetHandleByIndex", index):
            cards.append(card)
    return sorted(cards, key=_pci_address), lost


def _find_error(index: int) -> Any:
    """Return the NVMLError of a card that does not tell its UUID; None if it does."""
    import pynvml

    try:
        pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError as error:
        return error
    return None


def visible_gpus() -> list[NvmlHandle]:
    """Return the handles of the GPUs (or MIG slices) that CUDA_VISIBLE_DEVICES leaves visible, in PCI order."""
    cards, _ = list_cards()
    gpus = [(index, card, gpu) for index, card in enumerate(cards) for gpu in (_mig_slices(card) or [card])]
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is None:
        return [gpu for _, _, gpu in gpus]
    visible = []
    for entry in visible_devices.split(","):
        matches = [gpu for index, card, gpu in gpus if _entry_matches(entry.strip(), index, card, gpu)]
        if not matches:
            break  # as CUDA does: an entry that names nothing ends the list
        visible += matches
    return [gpu for _, _, gpu in gpus if gpu in visible]


def settings_text(handle: NvmlHandle) -> str:
    """Return the settings of an administrator that change what a card reaches, its power limit and ECC, as a text."""
    limit = query("DeviceGetEnforcedPowerLimit", handle)
    ecc = query("DeviceGetEccMode", handle)
    return f"power limit {limit / 1000 if limit else None} W, ECC {bool(ecc[0]) if ecc else None}"


def read_facts(handle: NvmlHandle) -> dict:
    """Return clocks, ECC, MIG, VBIOS, PCIe, power limit and memory errors, by their keys in the device record."""
    ecc = query("DeviceGetEccMode", handle)
    mig = query("DeviceGetMigMode", handle)
    limit = query("DeviceGetEnforcedPowerLimit", handle)
    persistence = query("DeviceGetPersistenceMode", handle)
    return {
        "sm_clock_max_mhz": query("DeviceGetMaxClockInfo", handle, "NVML_CLOCK_SM"),
        "sm_clock_now_mhz": query("DeviceGetClockInfo", handle, "NVML_CLOCK_SM"),
        "memory_clock_max_mhz": query("DeviceGetMaxClockInfo", handle, "NVML_CLOCK_MEM"),
        "memory_clock_now_mhz": query("DeviceGetClockInfo", handle, "NVML_CLOCK_MEM"),
        "memory_bus_width_bits": query("DeviceGetMemoryBusWidth", handle),
        "ecc_enabled": None if ecc is None else bool(ecc[0]),
        "mig_enabled": None if mig is None else bool(mig[0]),
        "mig_slice": handle and bool(query("DeviceIsMigDeviceHandle", handle)),
        "persistence_mode": None if persistence is None else bool(persistence),
        "vbios": query("DeviceGetVbiosVersion", handle),
        "pcie_generation_now": query("DeviceGetCurrPcieLinkGeneration", handle),
        "pcie_generation_max": query("DeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width_now": query("DeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": query("DeviceGetMaxPcieLinkWidth", handle),
        "power_limit_w": None if limit is None else limit / 1000,
        "slowdown_temperature_c": query("DeviceGetTemperatureThreshold", handle, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
        **read_memory_errors(handle),
        "nvlinks_active": None if handle is None else len(_active_links(handle)),
    }


def read_memory_errors(handle: NvmlHandle) -> dict:
    """Return memory errors since the driver was loaded, uncorrected ones since the card was made, the rows and pages
    taken out of use, and whether any waits for a reset.

    Rows are remapped from Ampere on, pages retired before; each card refuses the other query.
    """

    def errors(kind: str, since: str) -> int | None:
        return query("DeviceGetTotalEccErrors", handle, kind, since)

    # (for corrected errors, for uncorrected ones, pending, failed)
    remapped = query("DeviceGetRemappedRows", handle)
    retirement = query("DeviceGetRetiredPagesPendingStatus", handle)
    causes = ("MULTIPLE_SINGLE_BIT_ECC_ERRORS", "DOUBLE_BIT_ECC_ERROR")
    retired = [query("DeviceGetRetiredPages", handle, f"NVML_PAGE_RETIREMENT_CAUSE_{cause}") for cause in causes]
    return {
        "ecc_uncorrected_errors": errors("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
        "ecc_uncorrected_errors_ever": errors("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC"),
        "ecc_corrected_errors": errors("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
        "row_remap_pending": None if remapped is None else bool(remapped[2]),
        "row_remap_failed": None if remapped is None else bool(remapped[3]),
        "page_retirement_pending": None if retirement is None else bool(retirement),
        "remapped_rows": None if remapped is None else remapped[0] + remapped[1],
        "retired_pages": None if None in retired else sum(map(len, retired)),
    }


def read_host_link(handle: NvmlHandle) -> dict:
    """Return generation and width of the host link now; an idle card lowers both."""
    generation = query("DeviceGetCurrPcieLinkGeneration", handle)
    return {"pcie_generation": generation, "pcie_width": query("DeviceGetCurrPcieLinkWidth", handle)}


def _nvlink_states(handle: NvmlHandle) -> dict[int, bool]:
    """Return by their numbers which of the card's NVLinks are active."""
    states = {number: query("DeviceGetNvLinkState", handle, number) for number in range(MOST_NVLINKS)}
    return {number: state == ENABLED for number, state in states.items() if state is not None}


def _active_links(handle: NvmlHandle) -> list[int]:
    return [number for number, active in _nvlink_states(handle).items() if active]


def describe_path(handle: NvmlHandle, peer: NvmlHandle) -> dict:
    """Return how two GPUs are connected, by the fields of the record Peer: NVLink or PCIe, the number and version of
    active links, those that are down, and the nearest common part of the PCIe tree."""
    status = query("DeviceGetP2PStatus", handle, peer, "NVML_P2P_CAPS_INDEX_NVLINK")
    if status is None:
        link = None
    else:
        link = "nvlink" if status == P2P_OK else "pcie"
    ancestor = ANCESTORS.get(query("DeviceGetTopologyCommonAncestor", handle, peer))
    path: dict[str, Any] = {"link": link, "active_nvlinks": None, "nvlink_version": None, "pcie_ancestor": ancestor}
    if link == "nvlink":
        links = [number for number in _active_links(handle) if _link_reaches(handle, number, peer)]
        versions = [NVLINK_VERSIONS.get(query("DeviceGetNvLinkVersion", handle, number)) for number in links]
        path |= {"active_nvlinks": len(links), "nvlink_version": versions[0] if versions else None}
        path["inactive_nvlinks"] = [number for number, active in _nvlink_states(handle).items() if not active]
    return path


def _link_reaches(handle: NvmlHandle, number: int, peer: NvmlHandle) -> bool:
    """Return whether a link ends at the peer, or at a switch, which leads to all GPUs."""
    if query("DeviceGetNvLinkRemoteDeviceType", handle, number) != LINKED_TO_GPU:
        return True
    remote, peers = query("DeviceGetNvLinkRemotePciInfo", handle, number), query("DeviceGetPciInfo", peer)
    return bool(remote and peers) and remote.busId == peers.busId


def count_other_processes(handle: NvmlHandle) -> int | None:
    """Return the number of processes other than this one with a CUDA context on the card.

    None if NVML does not list them, or lists them by the numbers of another namespace, as in a container.
    """
    processes = query("DeviceGetComputeRunningProcesses", handle)
    if processes is None:
        return None
    pids = {process.pid for process in processes}
    if pids and os.getpid() not in pids:
        return None
    return len(pids - {os.getpid()})


def read_state(handle: NvmlHandle) -> dict:
    """Return clocks, power, temperature, throttle reasons and other processes now, by the fields of DeviceState."""
    reasons = (query(query_name, handle) for query_name in THROTTLE_REASON_QUERIES)
    return {
        "sm_clock_mhz": query("DeviceGetClockInfo", handle, "NVML_CLOCK_SM"),
        "memory_clock_mhz": query("DeviceGetClockInfo", handle, "NVML_CLOCK_MEM"),
        **read_power(handle),
        "temperature_c": query("DeviceGetTemperature", handle, "NVML_TEMPERATURE_GPU"),
        "throttle_reasons": decode_throttle_reasons(next((bits for bits in reasons if bits is not None), None)),
        "other_processes": count_other_processes(handle),
    }


def read_energy_j(handle: NvmlHandle) -> float | None:
    """Return the joules since the driver was loaded; None without a counter (before Volta)."""
    millijoules = query("DeviceGetTotalEnergyConsumption", handle)
    return None if millijoules is None else millijoules / 1000


def read_power(handle: NvmlHandle) -> dict:
    """Return the watts now, or where the driver has no such reading their average, which is of a second on an H200; and
    which of the two it is."""
    values = query("DeviceGetFieldValues", handle, [POWER_INSTANT])
    if values and values[0].nvmlReturn == SUCCESS:
        return {"power_w": values[0].value.uiVal / 1000, "power_reading": "instant"}
    usage = query("DeviceGetPowerUsage", handle)
    return {"power_w": usage / 1000, "power_reading": "average"} if usage else {"power_w": None, "power_reading": None}


def decode_throttle_reasons(bits: int | None) -> list[str] | None:
    """Return the names of the bits that are set; an empty list where nothing holds the clock back, None where
    unknown."""
    if bits is None:
        return None
    names = [name for bit, name in THROTTLE_REASON_BITS.items() if bits & bit]
    unnamed_bits = bits & ~sum(THROTTLE_REASON_BITS)
    if unnamed_bits:
        names.append(f"unnamed_{unnamed_bits:#x}")
    return names


def _mig_slices(card: NvmlHandle) -> list[NvmlHandle]:
    mode = query("DeviceGetMigMode", card)
    if not mode or not mode[0]:
        return []
    count = query("DeviceGetMaxMigDeviceCount", card) or 0
    slices = (query("DeviceGetMigDeviceHandleByIndex", card, index) for index in range(count))
    return [mig for mig in slices if mig]


def _pci_address(card: NvmlHandle) -> tuple:
    """Return what cards are sorted by: those without an address come last."""
    info = query("DeviceGetPciInfo", card)
    return (False, info.busId) if info else (True,)


def _entry_matches(entry: str, index: int, card: NvmlHandle, gpu: NvmlHandle) -> bool:
    """Return whether an entry of CUDA_VISIBLE_DEVICES is the card's number, or the beginning of the UUID of the card or
    its slice."""
    if entry == str(index):
        return True
    uuids = (query("DeviceGetUUID", handle) or "" for handle in (card, gpu))
    return entry.startswith(("GPU-", "MIG-")) and any(uuid.startswith(entry) for uuid in uuids)
