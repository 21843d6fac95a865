"""Which NVIDIA GPUs are here, by NVML and CUDA's driver, and whether CuPy can use them; nothing is opened."""

import os
from importlib import metadata
from pathlib import Path

from roofline.core.terms import make_printable
from roofline.devices.base import Identity
from roofline.devices.datasheets import CUDA_CORE, CUDA_CORE_FIGURE, TENSOR_CORE, missing_tensor_core_reason
from roofline.devices.gpu import cuda_driver, nvml

CUPY_PACKAGE_BY_CUDA = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
OLDEST_DRIVER = {12: "525", 13: "580"}
OLDEST_CAPABILITY = 7.0  # its compute capability
DRIVER = Path("/proc/driver/nvidia/version")

# What is assumed of a card that CUDA does not list, such as any MIG slice but the first; no card has a larger L2.
UNLISTED_GPU = cuda_driver.VisibleGpu("unknown GPU", "unknown", 0, None, None, l2_bytes=192 << 20)

# 8.6, 8.9, 12.0 and their like have a token path only.
FP64_TENSOR_CORES = ("8.0", "9.0", "10.0", "10.3")


def discover(capacities: bool = True) -> list[Identity]:
    """The visible GPUs in PCI order by NVML, or by CUDA's driver in a container without NVML; none without a driver.

    CUDA adds what NVML does not report. That takes a third of a second: without `capacities` only if it is needed.
    """
    has_nvml = nvml.initialise()
    cards = cuda_driver.query_visible_gpus() if capacities or not has_nvml else []
    if has_nvml:
        driver, cuda = nvml.query("SystemGetDriverVersion"), nvml.query("SystemGetCudaDriverVersion_v2")
        found = [_facts_from_nvml(handle, cards) for handle in nvml.visible_gpus()]
    else:
        driver, cuda = None, cuda_driver.driver_cuda_version()
        found = [_facts_from_cuda(card) for card in cards]
    if not capacities and has_nvml and any(_unusable_reason(lines) for lines in found):
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
            fault=no_cupy or _unusable_reason(lines),
            **lines,
        )
        for number, lines in enumerate(found)
    ]


def no_gpu_reason() -> str | None:
    """Why no GPU is visible where NVIDIA's driver is; None without one, or if all are hidden on purpose."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted in ("", "-1") or not (DRIVER.exists() or cuda_driver.driver_cuda_version()):
        return None
    if not nvml.initialise():
        return "NVIDIA's driver does not answer; see nvidia-smi"
    return f"CUDA_VISIBLE_DEVICES={wanted} names none" if wanted else "NVIDIA's driver lists none"


def unsupported_reason(identity: Identity, ceiling: str) -> str | None:
    """Why this card has no such compute ceiling, without opening it."""
    return identity.fault or missing_tensor_core_reason(ceiling, identity.compute_capability)


def compute_unit(ceiling: str, compute_capability: str) -> str:
    """The unit that runs a ceiling at the rate that the datasheets count: "tensor_core" or "cuda_core"."""
    if ceiling == "fp64":
        return TENSOR_CORE if compute_capability in FP64_TENSOR_CORES else CUDA_CORE
    return CUDA_CORE if ceiling in CUDA_CORE_FIGURE else TENSOR_CORE


def _facts_from_nvml(handle, cards: list[cuda_driver.VisibleGpu]) -> dict:
    """The fields of an Identity that are a card's own; CUDA's word where NVML refuses."""
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
    """The same fields by CUDA alone, which reports free memory only once a card is opened: all counts as free."""
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
    """By the UUID without its kind: old drivers write MIG slices in another way."""
    return next((card for card in cards if uuid and card.uuid[4:] == uuid[4:]), UNLISTED_GPU)


def _unusable_reason(lines: dict) -> str | None:
    if lines["compute_capability"] and lines["memory_total_bytes"] and lines["uuid"] != "unknown":
        fault = (
            f"{lines['name']} has compute capability {lines['compute_capability']}, and {OLDEST_CAPABILITY} is needed"
        )
        return f"{fault}; leave it out of 'devices'" if float(lines["compute_capability"]) < OLDEST_CAPABILITY else None
    return (
        "neither NVML nor CUDA reports this card's UUID, compute capability or memory; set 'devices: [cpu]' in "
        "config/config.yaml"
    )


def cupy_fault(versions: dict[str, str | None], driver_cuda: int | None, driver: str | None) -> str | None:
    """Why CuPy cannot use this driver, and the remedy, in one line; None where it can."""
    driver_major = driver_cuda // 1000 if driver_cuda else None
    version = f" {driver}" if driver else ""
    if driver_major and driver_major < min(CUPY_PACKAGE_BY_CUDA):
        return (
            f"the NVIDIA driver{version} runs CUDA {driver_major} at most and CuPy needs 12: install driver "
            f"{OLDEST_DRIVER[12]} or newer, or set 'devices: [cpu]' in config/config.yaml"
        )
    best = max(cuda for cuda in CUPY_PACKAGE_BY_CUDA if not driver_major or cuda <= driver_major)
    if not versions["cupy"]:
        return (
            f"CuPy is not installed: pip install -r envs/cuda{min(CUPY_PACKAGE_BY_CUDA)}.txt (or run make), or set "
            "'devices: [cpu]' in config/config.yaml"
        )
    built_for = next((cuda for cuda, name in CUPY_PACKAGE_BY_CUDA.items() if name == versions["cupy_package"]), None)
    if built_for and driver_major and built_for > driver_major:
        return (
            f"{versions['cupy_package']} needs CUDA {built_for} (driver {OLDEST_DRIVER[built_for]} or newer) and the "
            f"driver{version} runs CUDA {driver_major}: pip uninstall {versions['cupy_package']}, then "
            f"pip install -r envs/cuda{best}.txt (or make CUDA={best})"
        )
    return None


def _library_versions() -> dict[str, str | None]:
    package = next((name for name in (*CUPY_PACKAGE_BY_CUDA.values(), "cupy") if _package_version(name)), None)
    suffix = "-cu12" if package == CUPY_PACKAGE_BY_CUDA[12] else ""  # of the wheels that go with this CuPy
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
