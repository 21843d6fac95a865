"""Which NVIDIA GPUs the machine has, by NVML and CUDA's driver, and whether CuPy can use them; none is opened."""

import os
from importlib import metadata
from pathlib import Path

from roofline.core.architectures import ARCHITECTURES, parse_capability
from roofline.core.terms import make_printable
from roofline.core.units import MIB
from roofline.devices.base import Identity
from roofline.devices.datasheets import missing_ceiling_reason
from roofline.devices.gpu import cuda_driver, nvml

CUPY_PACKAGE_BY_CUDA = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
CPU_ONLY_REMEDY = "set 'devices: [cpu]' in config/config.yaml"
OLDEST_DRIVER = {12: "525", 13: "580"}
DRIVER = Path("/proc/driver/nvidia/version")
# By CUresult (cuda.h): CUDA_ERROR_NOT_INITIALIZED, _DEVICE_UNAVAILABLE, _SYSTEM_NOT_READY, _SYSTEM_DRIVER_MISMATCH,
# _COMPAT_NOT_SUPPORTED_ON_DEVICE and _UNKNOWN. CUDA 13's release notes name the first as an issue of some kernels.
CUDA_REMEDIES = {
    3: "see dmesg; with some Linux kernels, set 'options nvidia_uvm uvm_disable_hmm=1' in /etc/modprobe.d and reboot",
    46: "another process holds the card for itself; see nvidia-smi",
    802: "the fabric manager of the NVLink switches is not ready: systemctl start nvidia-fabricmanager, and wait",
    803: "the driver was updated since the system or the container started: restart it",
    804: "remove the cuda-compat package, which this card does not support, from LD_LIBRARY_PATH",
    999: "load the driver's module for memory (modprobe nvidia-uvm), then see dmesg",
}

# What is assumed of a card that CUDA does not list, such as any MIG slice but the first; no card has a larger L2.
UNLISTED_GPU = cuda_driver.VisibleGpu("unknown GPU", "unknown", 0, None, None, l2_bytes=192 * MIB)


def discover(capacities: bool = True) -> list[Identity]:
    """Return the visible GPUs in PCI order by NVML, or by CUDA's driver in a container without NVML; none without a
    driver.

    CUDA adds what NVML does not report. That takes a third of a second: without `capacities` it is done only if a card
    would be unusable otherwise.
    """
    has_nvml = nvml.initialise()
    cards, no_cuda = _ask_cuda() if capacities or not has_nvml else ([], None)
    if has_nvml:
        driver, cuda = nvml.query("SystemGetDriverVersion"), nvml.query("SystemGetCudaDriverVersion_v2")
        facts_by_gpu = [_facts_from_nvml(handle, cards) for handle in nvml.visible_gpus()]
    else:
        driver, cuda = None, cuda_driver.driver_cuda_version()
        facts_by_gpu = [_facts_from_cuda(card) for card in cards]
    if not capacities and has_nvml and any(_unusable_reason(facts) for facts in facts_by_gpu):
        return discover()
    versions = _library_versions()
    no_cupy = cupy_fault(versions, cuda, driver)
    return [
        Identity(
            device=f"gpu{number}",
            kind="gpu",
            driver=driver,
            software=versions,
            nvml=has_nvml,
            fault=no_cupy or no_cuda or _unusable_reason(facts),
            **facts,
        )
        for number, facts in enumerate(facts_by_gpu)
    ]


def no_gpu_reason() -> str | None:
    """Return why no GPU is visible although NVIDIA's driver is present.

    None without a driver, or if CUDA_VISIBLE_DEVICES hides all GPUs on purpose.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1") or not (DRIVER.exists() or cuda_driver.driver_cuda_version()):
        return None
    if not nvml.initialise():
        return _ask_cuda()[1] or "NVIDIA's driver does not answer; see nvidia-smi"
    return f"CUDA_VISIBLE_DEVICES={visible} names none" if visible else "NVIDIA's driver lists none"


def list_lost_gpus() -> list[str]:
    """Return a line for each card that NVML counts and that no longer answers, with what to do."""
    return nvml.list_cards()[1] if nvml.initialise() else []


def _ask_cuda() -> tuple[list[cuda_driver.VisibleGpu], str | None]:
    """Return the cards that CUDA sees, and why it does not start, with the remedy; None if it does."""
    try:
        return cuda_driver.query_visible_gpus(), None
    except cuda_driver.DriverError as error:
        remedy = CUDA_REMEDIES.get(error.status, "see nvidia-smi and dmesg")
        return [], f"CUDA does not start on this machine (CUresult {error.status}): {remedy}"


def unsupported_reason(identity: Identity, ceiling: str) -> str | None:
    """Return why this card cannot be measured for a compute ceiling, without opening it; None where it can."""
    return identity.fault or missing_ceiling_reason(ceiling, identity.require_capability())


def _facts_from_nvml(handle: nvml.NvmlHandle, cards: list[cuda_driver.VisibleGpu]) -> dict:
    """Return the fields of an Identity that differ from card to card, by CUDA where NVML refuses."""
    uuid = nvml.query("DeviceGetUUID", handle)
    memory = nvml.query("DeviceGetMemoryInfo", handle)
    capability = nvml.query("DeviceGetCudaComputeCapability", handle)
    by_cuda = _facts_from_cuda(_match_by_uuid(uuid, cards))
    return by_cuda | {
        "name": nvml.query("DeviceGetName", handle) or by_cuda["name"],
        "uuid": uuid or by_cuda["uuid"],
        "setting": nvml.settings_text(handle),
        "memory_total_bytes": memory.total if memory else by_cuda["memory_total_bytes"],
        "memory_free_bytes": memory.free if memory else by_cuda["memory_free_bytes"],
        "compute_capability": "{}.{}".format(*capability) if capability else by_cuda["compute_capability"],
    }


def _facts_from_cuda(card: cuda_driver.VisibleGpu) -> dict:
    """Return the same fields by CUDA alone. All memory counts as free, since CUDA reports that of an open card only."""
    return {
        "name": make_printable(card.name),
        "uuid": card.uuid,
        "setting": "",
        "memory_total_bytes": card.memory_total_bytes,
        "memory_free_bytes": card.memory_total_bytes,
        "compute_capability": card.compute_capability,
        "multiprocessors": card.multiprocessors,
        "last_level_cache_bytes": card.l2_bytes,
    }


def _match_by_uuid(uuid: str | None, cards: list[cuda_driver.VisibleGpu]) -> cuda_driver.VisibleGpu:
    """Return the card with this UUID, or UNLISTED_GPU. The kind that it begins with is not compared: old drivers write
    that of MIG slices in another way."""
    return next((card for card in cards if uuid and card.uuid[4:] == uuid[4:]), UNLISTED_GPU)


def _unusable_reason(facts: dict) -> str | None:
    """Return why a card with these fields of an Identity cannot be measured; None where it can."""
    capability = facts["compute_capability"]
    if not capability or not facts["memory_total_bytes"] or facts["uuid"] == "unknown":
        return f"neither NVML nor CUDA reports this card's UUID, compute capability or memory; {CPU_ONLY_REMEDY}"
    if parse_capability(capability) < ARCHITECTURES[0].since:
        needed = "{}.{} is needed; leave it out of 'devices'".format(*ARCHITECTURES[0].since)
        return f"{facts['name']} has compute capability {capability}, and {needed}"
    return None


def cupy_fault(versions: dict[str, str | None], driver_cuda: int | None, driver: str | None) -> str | None:
    """Return why CuPy cannot use this driver, and the remedy, in one line; None where it can.

    `driver_cuda` is the newest CUDA that the driver runs, as 1000 x major + 10 x minor.
    """
    driver_major = driver_cuda // 1000 if driver_cuda else None
    version = f" {driver}" if driver else ""
    if driver_major and driver_major < min(CUPY_PACKAGE_BY_CUDA):
        remedy = f"install driver {OLDEST_DRIVER[12]} or newer, or {CPU_ONLY_REMEDY}"
        return f"the NVIDIA driver{version} runs CUDA {driver_major} at most and CuPy needs 12: {remedy}"
    best = max(cuda for cuda in CUPY_PACKAGE_BY_CUDA if not driver_major or cuda <= driver_major)
    if not versions["cupy"]:
        remedy = f"pip install -r envs/cuda{min(CUPY_PACKAGE_BY_CUDA)}.txt (or run make), or {CPU_ONLY_REMEDY}"
        return f"CuPy is not installed: {remedy}"
    package = versions["cupy_package"]
    built_for = next((cuda for cuda, name in CUPY_PACKAGE_BY_CUDA.items() if name == package), None)
    if built_for and driver_major and built_for > driver_major:
        required = f"{package} needs CUDA {built_for} (driver {OLDEST_DRIVER[built_for]} or newer)"
        remedy = f"pip uninstall {package}, then pip install -r envs/cuda{best}.txt (or make CUDA={best})"
        return f"{required} and the driver{version} runs CUDA {driver_major}: {remedy}"
    return None


def _library_versions() -> dict[str, str | None]:
    package = next((name for name in (*CUPY_PACKAGE_BY_CUDA.values(), "cupy") if _package_version(name)), None)
    suffix = "-cu12" if package == CUPY_PACKAGE_BY_CUDA[12] else ""  # the wheels that go with this CuPy
    return {
        "cupy": _package_version(package) if package else None,
        "cupy_package": package,
        "cublas": _package_version(f"nvidia-cublas{suffix}"),
        "numpy": _package_version("numpy"),
        "nvmath": _package_version("nvmath-python"),
        "nvrtc_package": _package_version(f"nvidia-cuda-nvrtc{suffix}"),
        "ml_dtypes": _package_version("ml_dtypes"),
    }


def _package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
