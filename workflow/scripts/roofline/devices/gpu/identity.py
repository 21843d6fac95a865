"""Which NVIDIA GPUs are here, by NVML and CUDA's driver, and whether CuPy can use them; nothing is opened."""

from importlib import metadata
from pathlib import Path

from roofline.core.dtypes import FIRST_CAPABILITY
from roofline.devices.base import Identity
from roofline.devices.datasheets import CEILINGS, CUDA_CORE, CUDA_CORE_FIGURE, TENSOR_CORE
from roofline.devices.gpu import cuda_driver, nvml

CUPY_OF_CUDA = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
OLDEST_DRIVER = {12: "525", 13: "580"}

# Assumed where CUDA does not tell a card's L2, as of a MIG slice beside the first; no card's is larger.
LARGEST_L2_BYTES = 192 << 20

# Where a ceiling begins; None: everywhere. tf32, bf16, fp8 and int8 begin with their tensor cores; fp16 was multiplied
# by CUDA cores before.
FIRST = dict.fromkeys(CEILINGS) | FIRST_CAPABILITY | {"fp16": "5.3", "fp16_fma": "5.3"}

# 8.6, 8.9, 12.0 and their like have a token path only.
FP64_TENSOR_CORES = ("8.0", "9.0", "10.0", "10.3")


def discover(capacities: bool = True) -> list[Identity]:
    """The visible GPUs in PCI order; none where no driver answers.

    Without `capacities` what CUDA's driver alone tells is left out, which takes it a third of a second; but not where
    NVML does not tell enough.

    NVML tells of them, and CUDA's driver what NVML does not; where NVML does not answer at all, as in a container with
    the compute libraries alone, CUDA's driver tells what it can.
    """
    has_nvml = nvml.start()
    cards = cuda_driver.cards() if capacities or not has_nvml else []
    if has_nvml:
        driver, cuda = nvml.driver_version(), nvml.cuda_version_of_driver()
        found = [_told_by_nvml(handle, cards) for handle in nvml.visible_gpus()]
    else:
        driver, cuda = None, cuda_driver.driver_cuda_version()
        found = [_told_by_cuda(card) for card in cards]
    if not capacities and has_nvml and any(_untold(told) for told in found):
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
            fault=no_cupy or _untold(told),
            **told,
        )
        for number, told in enumerate(found)
    ]


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why this card has no such compute ceiling, without opening it."""
    return identity.fault or lacks(ceiling, identity.compute_capability)


def lacks(ceiling: str, compute_capability: str) -> str | None:
    """Why there is no such ceiling on this compute capability, in one line; None if there is.

    Raises KeyError for a ceiling that is none.
    """
    needed = FIRST[ceiling]
    if needed is None or _numbers(compute_capability) >= _numbers(needed):
        return None
    return f"compute capability {compute_capability}, {ceiling} needs {needed}"


def compute_unit(ceiling: str, compute_capability: str) -> str:
    """The unit that runs a ceiling at the rate that the datasheets count: "tensor_core" or "cuda_core".

    Raises KeyError for a ceiling that is none.
    """
    if ceiling == "fp64":
        return TENSOR_CORE if compute_capability in FP64_TENSOR_CORES else CUDA_CORE
    if ceiling in CUDA_CORE_FIGURE:
        return CUDA_CORE
    first = FIRST_CAPABILITY[ceiling]
    return TENSOR_CORE if _numbers(compute_capability) >= _numbers(first) else CUDA_CORE


def _numbers(compute_capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in compute_capability.split("."))


def _told_by_nvml(handle, cards: list[cuda_driver.Card]) -> dict:
    """The fields of an Identity that are a card's own; CUDA's word where NVML refuses."""
    uuid = nvml.ask("DeviceGetUUID", handle)
    memory = nvml.ask("DeviceGetMemoryInfo", handle)
    by_cuda = _told_by_cuda(_same_card(uuid, cards))
    return by_cuda | {
        "name": nvml.ask("DeviceGetName", handle) or by_cuda["name"],
        "uuid": uuid or "unknown",
        "setting": nvml.setting(handle),
        "memory_total_bytes": memory.total if memory else by_cuda["memory_total_bytes"],
        "memory_free_bytes": memory.free if memory else by_cuda["memory_free_bytes"],
        "compute_capability": nvml.capability(handle) or by_cuda["compute_capability"],
    }


def _told_by_cuda(card: cuda_driver.Card | None) -> dict:
    """The same fields by CUDA alone, which tells the free memory only once a card is opened: all is taken for free."""
    return {
        "name": (card and card.name) or "unknown GPU",
        "uuid": (card and card.uuid) or "unknown",
        "setting": "",
        "memory_total_bytes": (card and card.memory_total_bytes) or 0,
        "memory_free_bytes": (card and card.memory_total_bytes) or 0,
        "compute_capability": card.compute_capability if card else None,
        "multiprocessors": card.multiprocessors if card else None,
        "last_level_cache_bytes": (card and card.l2_bytes) or LARGEST_L2_BYTES,
    }


def _same_card(uuid: str | None, cards: list[cuda_driver.Card]) -> cuda_driver.Card | None:
    """CUDA sees the first slice of a cut card alone, and old drivers write a slice's UUID in another way."""
    return next((card for card in cards if uuid and card.uuid and card.uuid[4:] == uuid[4:]), None)


def _untold(told: dict) -> str | None:
    if told["compute_capability"] and told["memory_total_bytes"] and told["uuid"] != "unknown":
        return None
    return (
        "neither NVML nor CUDA tells this card's UUID, compute capability or memory; set 'devices: [cpu]' in "
        "config/config.yaml"
    )


def cupy_fault(versions: dict[str, str | None], driver_cuda: int | None, driver: str | None) -> str | None:
    """Why CuPy cannot use this driver, and the remedy, in one line; None where it can."""
    driver_major = driver_cuda // 1000 if driver_cuda else None
    version = f" {driver}" if driver else ""
    if driver_major and driver_major < min(CUPY_OF_CUDA):
        return (
            f"the NVIDIA driver{version} runs CUDA {driver_major} at most and CuPy needs 12: install driver "
            f"{OLDEST_DRIVER[12]} or newer, or set 'devices: [cpu]' in config/config.yaml"
        )
    best = max(cuda for cuda in CUPY_OF_CUDA if not driver_major or cuda <= driver_major)
    if not versions["cupy"]:
        return (
            f"CuPy is not installed: pip install -r envs/cuda{min(CUPY_OF_CUDA)}.txt (or run make), or set "
            "'devices: [cpu]' in config/config.yaml"
        )
    built_for = next((cuda for cuda, name in CUPY_OF_CUDA.items() if name == versions["cupy_package"]), None)
    if built_for and driver_major and built_for > driver_major:
        return (
            f"{versions['cupy_package']} needs CUDA {built_for} (driver {OLDEST_DRIVER[built_for]} or newer) and the "
            f"driver{version} runs CUDA {driver_major}: pip uninstall {versions['cupy_package']}, then "
            f"pip install -r envs/cuda{best}.txt (or make CUDA={best})"
        )
    return None


NVRTC_OF_CUPY = {"cupy-cuda12x": "nvidia-cuda-nvrtc-cu12", "cupy-cuda13x": "nvidia-cuda-nvrtc"}


def _library_versions() -> dict[str, str | None]:
    package = next((name for name in (*CUPY_OF_CUDA.values(), "cupy") if _version(name)), None)
    return {
        "cupy": _version(package) if package else None,
        "cupy_package": package,
        "cublas": _cublas_version(package),
        "numpy": _version("numpy"),
        "nvmath": _version("nvmath-python"),
        "nvrtc_package": _version(NVRTC_OF_CUPY.get(package, "nvidia-cuda-nvrtc")),
        "ml_dtypes": _version("ml_dtypes"),
    }


def _cublas_version(cupy_package: str | None) -> str | None:
    """Of the wheel that goes with this CuPy; both may be installed."""
    wheels = {"cupy-cuda12x": ["nvidia-cublas-cu12"], "cupy-cuda13x": ["nvidia-cublas"]}
    found = [_version(wheel) for wheel in wheels.get(cupy_package, ["nvidia-cublas-cu12", "nvidia-cublas"])]
    return next((version for version in found if version), None) or _version_on_disk("cublas")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _version_on_disk(library: str) -> str | None:
    """The version in the file name of a library that no package manager of Python brought."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return Path(load_nvidia_dynamic_lib(library).abs_path).resolve().name.partition(".so.")[2] or None
    except Exception:
        return None
