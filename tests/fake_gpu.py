"""A GPU without one: the real device on the stand-ins for CuPy, cuBLASLt and CUDA's driver in tests/fakes; and kernels
that go wrong.

Tests that use the fixture `gpu` run on the fake GPU, and with `pytest -m gpu` on a real one.
"""

import sys
from dataclasses import replace
from functools import cache
from importlib import util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from roofline.devices.base import Identity
from roofline.devices.discovery import open_device, unsupported_reason
from roofline.devices.gpu.gpu_device import GpuDevice

FAKES = Path(__file__).parent / "fakes"


def open_gpu(
    monkeypatch,
    capability: str = "9.0",
    free_bytes: int = 1 << 30,
    name: str = "A fake GPU",
    nvml: bool = False,
    peer: bool = False,
    **properties,
) -> GpuDevice:
    """Return a device with these properties in place of the stand-in's, until the test is over, with a peer where
    `peer` is set; its `cublaslt` is the stand-in for cuBLASLt."""
    cupy = _load(monkeypatch, "cupy", "cupy/__init__.py")
    cupy.PROPERTIES.update(properties)
    driver = _load(monkeypatch, "driver", "cuda/bindings/driver.py")
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    _load(monkeypatch, "cuda.pathfinder", "cuda/pathfinder.py")
    cublaslt = _load(monkeypatch, "nvmath.bindings.cublasLt", "nvmath/bindings/cublasLt.py")
    monkeypatch.setitem(sys.modules, "nvmath.bindings", SimpleNamespace(cublasLt=cublaslt))
    for variable in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):  # which a device sets for its process
        monkeypatch.setenv(variable, "GPU-1" if nvml else "")
    identity = Identity(
        device="gpu0",
        kind="gpu",
        name=name,
        uuid="GPU-1",
        driver=None,
        memory_total_bytes=150_754_820_096 if nvml else free_bytes,
        memory_free_bytes=free_bytes,
        compute_capability=capability,
        nvml=nvml,
    )
    device = GpuDevice(identity, replace(identity, device="gpu1", uuid="GPU-2") if peer else None)
    device.cublaslt = cublaslt
    return device


@cache
def _opened() -> GpuDevice:
    return open_device("gpu0")


def real_gpu() -> GpuDevice:
    """Return the machine's GPU with its stream as the current one: jobs in other tests open it anew."""
    _opened().stream.use()
    return _opened()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def gpu(request, monkeypatch) -> GpuDevice:
    if request.param == "fake":
        return open_gpu(monkeypatch, MultiProcessorCount=2)
    return real_gpu()


def skip_unless_supported(device, ceiling: str) -> None:
    if reason := unsupported_reason(device.identity, ceiling):
        pytest.skip(reason)


def nvml_card(uuid: str, bus: str | None, *slices):
    return SimpleNamespace(uuid=uuid, bus=bus, name="NVIDIA H200", slices=slices)


def use_nvml(monkeypatch, *cards, refused=(), visible: str | None = None) -> ModuleType:
    """Give the process of the test an NVML of these cards, which refuses some functions, and CUDA_VISIBLE_DEVICES."""
    nvml = _load(monkeypatch, "pynvml", "pynvml/__init__.py")
    nvml.CARDS, nvml.REFUSED = list(cards), set(refused)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    return nvml


def random_numbers(monkeypatch) -> ModuleType:
    """Return the stand-in's random numbers, which are those of kernels/random.cu."""
    return _load(monkeypatch, "random_numbers", "cupy/random_numbers.py")


def _load(monkeypatch, name: str, path: str) -> ModuleType:
    spec = util.spec_from_file_location(name, FAKES / path)
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


class Recorder:
    """A kernel that notes what it is launched with before it does it."""

    def __init__(self, kernel, launches: list | None = None):
        self.__dict__.update(_kernel=kernel, _launches=launches)

    def __getattr__(self, name):
        return getattr(self._kernel, name)

    def __setattr__(self, name, value):
        setattr(self._kernel, name, value)

    def __call__(self, grid, block, arguments, **options):
        self._launches.append((self._kernel.name, grid[0], block[0], arguments))
        self._kernel(grid, block, arguments, **options)


def record_launches(monkeypatch, device) -> list:
    """Return a list to which every launch of a kernel loaded from now on adds (name, blocks, threads, arguments)."""
    launches, load_kernel = [], device.load_kernel
    monkeypatch.setattr(device, "load_kernel", lambda *spec: Recorder(load_kernel(*spec), launches))
    return launches


class Idle(Recorder):
    """A kernel that does nothing."""

    def __call__(self, grid, block, arguments, **options):
        pass


def replace_kernels(monkeypatch, device, names, wrap) -> None:
    """Wrap the kernels of these names that are loaded from now on."""
    load_kernel = device.load_kernel

    def load_replaced(source, name, *defines):
        kernel = load_kernel(source, name, *defines)
        return wrap(kernel) if name in names else kernel

    monkeypatch.setattr(device, "load_kernel", load_replaced)
