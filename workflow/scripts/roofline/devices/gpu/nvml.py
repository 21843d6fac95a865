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
    "pcie_generation_now",
    "pcie_generation_max",
    "pcie_width_now",
    "pcie_width_max",
    "power_limit_w",
    "ecc_uncorrected_errors",
    "ecc_uncorrected_errors_ever",
    "row_remap_pending",
    "row_remap_failed",
    "page_retirement_pending",
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
    """Clocks, ECC, MIG, PCIe, power limit and memory errors, for the device record; null where refused."""
    if handle is None:
        return dict.fromkeys(FACTS)
    import pynvml

    ecc = ask(pynvml.nvmlDeviceGetEccMode, handle)
    mig = ask(pynvml.nvmlDeviceGetMigMode, handle)
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return {
        "sm_clock_max_mhz": ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "sm_clock_now_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "memory_clock_now_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "memory_bus_width_bits": ask(pynvml.nvmlDeviceGetMemoryBusWidth, handle),
        "ecc_enabled": None if ecc is None else bool(ecc[0]),
        "mig_enabled": None if mig is None else bool(mig[0]),
        "mig_slice": is_mig_slice(handle),
        "pcie_generation_now": ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_generation_max": ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width_now": ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "power_limit_w": None if limit is None else limit / 1000,
        **_memory_errors(handle),
    }


def _memory_errors(handle) -> dict:
    """Uncorrected errors since the driver was loaded and ever; what waits for a reset to be taken out of use.

    Rows are remapped from Ampere on, pages retired before; each card refuses the other's question.
    """
    import pynvml

    def uncorrected(since: int) -> int | None:
        return ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, since)

    # (corrected, uncorrected, pending, failed)
    remapped = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    retirement = ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    return {
        "ecc_uncorrected_errors": uncorrected(pynvml.NVML_VOLATILE_ECC),
        "ecc_uncorrected_errors_ever": uncorrected(pynvml.NVML_AGGREGATE_ECC),
        "row_remap_pending": None if remapped is None else bool(remapped[2]),
        "row_remap_failed": None if remapped is None else bool(remapped[3]),
        "page_retirement_pending": None if retirement is None else bool(retirement),
    }


def link(handle) -> dict:
    """Generation and width of the host link, now: an idle card lowers both."""
    if handle is None:
        return {}
    import pynvml

    return {
        "pcie_generation": ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_width": ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
    }


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
