"""What NVML tells of a GPU: who it is and how it is doing. Every reading may be refused; then it is null.

A handle of None is a card that NVML does not know, or NVML is not there: all of its readings are null.
"""

import os
from collections.abc import Callable

THROTTLE_REASONS = {
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

# Names of one question: older drivers know the second alone, which newer ones may drop.
REASONS_QUESTIONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")

FACTS = (
    "sm_clock_max_mhz",
    "sm_clock_now_mhz",
    "memory_clock_max_mhz",
    "memory_clock_now_mhz",
    "memory_bus_width_bits",
    "ecc_enabled",
    "mig_enabled",
    "mig_slice",
    "persistence_mode",
    "vbios",
    "pcie_generation_now",
    "pcie_generation_max",
    "pcie_width_now",
    "pcie_width_max",
    "power_limit_w",
    "slowdown_temperature_c",
    "ecc_uncorrected_errors",
    "ecc_uncorrected_errors_ever",
    "ecc_corrected_errors",
    "row_remap_pending",
    "row_remap_failed",
    "page_retirement_pending",
    "nvlinks_active",
    "remapped_rows",
    "retired_pages",
)
STATE = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "power_w",
    "power_reading",
    "temperature_c",
    "throttle_reasons",
    "other_processes",
)


def ask(question: Callable, *arguments):
    """The answer of one NVML call, or None where this driver, card or container does not tell."""
    import pynvml

    try:
        answer = question(*arguments)
    except pynvml.NVMLError:
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def start() -> bool:
    """Whether NVML answers at all."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return False
    return True


def visible_gpus() -> list:
    """Handles of the GPUs (or MIG slices) that CUDA_VISIBLE_DEVICES leaves visible, in PCI order."""
    import pynvml

    cards = [ask(pynvml.nvmlDeviceGetHandleByIndex, i) for i in range(ask(pynvml.nvmlDeviceGetCount) or 0)]
    cards = sorted((card for card in cards if card), key=_pci_address)
    gpus = [(index, card, gpu) for index, card in enumerate(cards) for gpu in (_mig_slices(card) or [card])]
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return [gpu for _, _, gpu in gpus]
    visible = []
    for token in (part.strip() for part in wanted.split(",")):
        named = [gpu for index, card, gpu in gpus if _is_named(token, index, card, gpu)]
        if not named:
            break  # as CUDA does: an entry that names nothing ends the list
        visible += named
    return [gpu for _, _, gpu in gpus if gpu in visible]


def is_mig_slice(handle) -> bool:
    if handle is None:
        return False
    import pynvml

    return bool(ask(pynvml.nvmlDeviceIsMigDeviceHandle, handle))


def capability(handle) -> str | None:
    if handle is None:
        return None
    import pynvml

    answer = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return f"{answer[0]}.{answer[1]}" if answer else None


def driver_version() -> str | None:
    import pynvml

    return ask(pynvml.nvmlSystemGetDriverVersion)


def setting(handle) -> str:
    """What an administrator may have set that changes what a card reaches: its power limit and ECC."""
    if handle is None:
        return ""
    import pynvml

    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    ecc = ask(pynvml.nvmlDeviceGetEccMode, handle)
    return f"power limit {limit / 1000 if limit else None} W, ECC {bool(ecc[0]) if ecc else None}"


def cuda_version_of_driver() -> int | None:
    """The newest CUDA that the driver runs, as 1000 x major + 10 x minor."""
    import pynvml

    return ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)


def facts(handle) -> dict:
    """Clocks, ECC, MIG, VBIOS, PCIe, power limit and memory errors, for the device record; null where refused."""
    if handle is None:
        return dict.fromkeys(FACTS)
    import pynvml

    ecc = ask(pynvml.nvmlDeviceGetEccMode, handle)
    mig = ask(pynvml.nvmlDeviceGetMigMode, handle)
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    persistence = ask(pynvml.nvmlDeviceGetPersistenceMode, handle)
    return {
        "sm_clock_max_mhz": ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "sm_clock_now_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "memory_clock_now_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "memory_bus_width_bits": ask(pynvml.nvmlDeviceGetMemoryBusWidth, handle),
        "ecc_enabled": None if ecc is None else bool(ecc[0]),
        "mig_enabled": None if mig is None else bool(mig[0]),
        "mig_slice": is_mig_slice(handle),
        "persistence_mode": None if persistence is None else bool(persistence),
        "vbios": ask(pynvml.nvmlDeviceGetVbiosVersion, handle),
        "pcie_generation_now": ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_generation_max": ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width_now": ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "power_limit_w": None if limit is None else limit / 1000,
        "slowdown_temperature_c": ask(
            pynvml.nvmlDeviceGetTemperatureThreshold, handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        ),
        **memory_errors(handle),
        "nvlinks_active": len(_active_links(handle)),
    }


def memory_errors(handle) -> dict:
    """Errors since the driver was loaded, uncorrected ones ever; what was taken out of use, and what waits for a reset.

    Rows are remapped from Ampere on, pages retired before; each card refuses the other's question.
    """
    if handle is None:
        return {}
    import pynvml

    def errors(kind: int, since: int) -> int | None:
        return ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, since)

    # (for corrected errors, for uncorrected ones, pending, failed)
    remapped = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    retirement = ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    causes = (
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    retired = [ask(pynvml.nvmlDeviceGetRetiredPages, handle, cause) for cause in causes]
    return {
        "ecc_uncorrected_errors": errors(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
        "ecc_uncorrected_errors_ever": errors(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
        "ecc_corrected_errors": errors(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
        "row_remap_pending": None if remapped is None else bool(remapped[2]),
        "row_remap_failed": None if remapped is None else bool(remapped[3]),
        "page_retirement_pending": None if retirement is None else bool(retirement),
        "remapped_rows": None if remapped is None else remapped[0] + remapped[1],
        "retired_pages": None if None in retired else sum(map(len, retired)),
    }


def uuid(handle) -> str | None:
    if handle is None:
        return None
    import pynvml

    return ask(pynvml.nvmlDeviceGetUUID, handle)


def link(handle) -> dict:
    """Generation and width of the host link, now: an idle card lowers both."""
    if handle is None:
        return {}
    import pynvml

    return {
        "pcie_generation": ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_width": ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
    }


def _links(handle) -> dict[int, bool]:
    """Whether each NVLink that the card has is active."""
    import pynvml

    states = {
        number: ask(pynvml.nvmlDeviceGetNvLinkState, handle, number) for number in range(pynvml.NVML_NVLINK_MAX_LINKS)
    }
    return {number: state == pynvml.NVML_FEATURE_ENABLED for number, state in states.items() if state is not None}


def _active_links(handle) -> list[int]:
    return [number for number, active in _links(handle).items() if active]


ANCESTORS = ("INTERNAL", "SINGLE", "MULTIPLE", "HOSTBRIDGE", "NODE", "SYSTEM")  # of NVML_TOPOLOGY_, nearest first


def path_between(handle, peer) -> dict:
    """How two GPUs reach one another: over NVLink or PCIe, by how many active links to the peer or to a switch, and the
    nearest part of the PCIe tree that both hang on. Null where not told."""
    known = dict.fromkeys(("path", "nvlinks", "nvlink_version", "pcie_ancestor"))
    if handle is None or peer is None:
        return known
    import pynvml

    status = ask(pynvml.nvmlDeviceGetP2PStatus, handle, peer, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, handle, peer)
    levels = {getattr(pynvml, f"NVML_TOPOLOGY_{name}"): name.lower() for name in ANCESTORS}
    known["pcie_ancestor"] = levels.get(level)
    if status is not None:
        known["path"] = "nvlink" if status == pynvml.NVML_P2P_STATUS_OK else "pcie"
    if known["path"] == "nvlink":
        links = [number for number in _active_links(handle) if _leads_to(handle, number, peer)]
        versions = {ask(pynvml.nvmlDeviceGetNvLinkVersion, handle, number) for number in links}
        known |= {"nvlinks": len(links), "nvlink_version": _link_version(next(iter(versions), None))}
        known["nvlinks_down"] = [number for number, active in _links(handle).items() if not active]
    return known


def _leads_to(handle, number: int, peer) -> bool:
    """Whether a link ends at the peer, or at a switch, which leads to all GPUs. A machine may not be told."""
    import pynvml

    if ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number) != pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
        return True
    remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
    mine = ask(pynvml.nvmlDeviceGetPciInfo, peer)
    return bool(remote and mine) and remote.busId == mine.busId


def _link_version(code: int | None) -> str | None:
    """4.0 of NVML_NVLINK_VERSION_4_0."""
    import pynvml

    prefix = "NVML_NVLINK_VERSION_"
    names = (name for name in dir(pynvml) if name.startswith(prefix) and getattr(pynvml, name) == code)
    return next((name.removeprefix(prefix).replace("_", ".") for name in names if code), None)


def other_processes(handle) -> int | None:
    """Processes other than this one with a CUDA context on the card; None where their numbers cannot be read."""
    if handle is None:
        return None
    import pynvml

    return _others(ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle))


def state(handle) -> dict:
    """Clocks, power, temperature, throttle reasons and other processes, now."""
    if handle is None:
        return dict.fromkeys(STATE)
    import pynvml

    return {
        "sm_clock_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        **_power(handle),
        "temperature_c": ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": throttle_reasons(_reason_bits(handle)),
        "other_processes": other_processes(handle),
    }


def _power(handle) -> dict:
    """Watts now; where the driver has no such reading its average, of a second on an H200."""
    import pynvml

    field = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", None)
    values = ask(pynvml.nvmlDeviceGetFieldValues, handle, [field]) if field else None
    if values and values[0].nvmlReturn == pynvml.NVML_SUCCESS:
        return {"power_w": values[0].value.uiVal / 1000, "power_reading": "instant"}
    usage = ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    return {"power_w": usage / 1000, "power_reading": "average"} if usage else {"power_w": None, "power_reading": None}


def _others(processes: list | None) -> int | None:
    """How many beside this one; None in a container, whose process numbers are not the ones that NVML tells."""
    if processes is None:
        return None
    numbers = {process.pid for process in processes}
    return None if numbers and os.getpid() not in numbers else len(numbers - {os.getpid()})


def _reason_bits(handle) -> int | None:
    import pynvml

    questions = (getattr(pynvml, name, None) for name in REASONS_QUESTIONS)
    answers = (ask(question, handle) for question in questions if question)
    return next((bits for bits in answers if bits is not None), None)


def throttle_reasons(bits: int | None) -> list[str] | None:
    """The names of the set bits; an empty list where nothing holds the clock back, None where unknown."""
    if bits is None:
        return None
    others = bits & ~sum(THROTTLE_REASONS)
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit] + ([f"unnamed_{others:#x}"] if others else [])


def _mig_slices(card) -> list:
    import pynvml

    mode = ask(pynvml.nvmlDeviceGetMigMode, card)
    if not mode or not mode[0]:
        return []
    count = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0
    slices = (ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index) for index in range(count))
    return [mig for mig in slices if mig]


def _pci_address(card) -> tuple:
    import pynvml

    info = ask(pynvml.nvmlDeviceGetPciInfo, card)
    return (False, info.busId) if info else (True,)


def _is_named(token: str, index: int, card, gpu) -> bool:
    """Whether an entry of CUDA_VISIBLE_DEVICES is the card's number, or the beginning of its or its slice's UUID."""
    import pynvml

    if token == str(index):
        return True
    uuids = (ask(pynvml.nvmlDeviceGetUUID, handle) or "" for handle in (card, gpu))
    return token.startswith(("GPU-", "MIG-")) and any(uuid.startswith(token) for uuid in uuids)
