"""The CPU of this machine; nothing is opened, and NumPy is not loaded."""

import platform
from importlib import metadata

from roofline.core.dtypes import REGISTER_ONLY
from roofline.devices import host
from roofline.devices.base import Identity
from roofline.devices.cpu.topology import last_level_cache_bytes

NATIVE_DTYPES = ("fp64", "fp32")
NATIVE_CEILINGS = (*NATIVE_DTYPES, *(name for name, dtype in REGISTER_ONLY.items() if dtype in NATIVE_DTYPES))


def discover(capacities: bool = True) -> list[Identity]:
    import psutil

    return [
        Identity(
            device="cpu",
            kind="cpu",
            name=host.cpu_name(),
            uuid=f"{host.usable_cores()}-cores-{platform.machine()}",
            driver=None,
            memory_total_bytes=psutil.virtual_memory().total,
            memory_free_bytes=host.memory_available_bytes(),
            last_level_cache_bytes=last_level_cache_bytes(),
            software={name: metadata.version(name) for name in ("numpy", "ml_dtypes", "llvmlite")},
        )
    ]


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why this machine has no such compute ceiling; None where it has. Loads no NumPy."""
    if ceiling in NATIVE_CEILINGS:
        return None
    if ceiling in REGISTER_ONLY:
        return "register-only loops on the CPU compute in fp64 and fp32"
    return f"NumPy has no {ceiling} arithmetic of its own on the CPU, it converts; a ceiling would mislead"
