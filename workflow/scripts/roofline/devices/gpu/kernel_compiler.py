"""Our own CUDA kernels, compiled for the device's card by NVRTC, which needs no context on it."""

import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from roofline.core.architectures import parse_capability
from roofline.devices import host
from roofline.devices.base import Identity
from roofline.records.files import write_bytes

if TYPE_CHECKING:
    import cupy

CEILING_KERNEL_FOLDER = Path(__file__).parent / "kernels"
# --split-compile: each kernel of a source on another core; -ftz: denormal numbers are zeros, as in CuPy's kernels.
COMPILE_OPTIONS = ("-std=c++17", "--split-compile=0", "-ftz=true")
HOPPER_OPTIONS = ("-arch=sm_90a",)  # for instructions that only Hopper has
INCLUDE_LINE = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


@cache
def read_kernel_source(path: Path) -> str:
    """Return the text of a source in which each header of ours stands in place of its #include line."""
    text = path.read_text(encoding="utf-8")
    return INCLUDE_LINE.sub(lambda header: read_kernel_source(path.parent / header[1]), text)


class KernelCompiler:
    """Compiles kernels for one card, and keeps the modules that it loaded."""

    def __init__(self, cupy: ModuleType, identity: Identity, ceiling_kernels: Iterable[tuple]):
        """Compile for the card of an identity; `ceiling_kernels` are compiled ahead with those of operators."""
        self._cupy, self._ceiling_kernels = cupy, ceiling_kernels
        self._software, self._capability = identity.software, parse_capability(identity.require_capability())
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}  # by code and macros

    def load_kernel(self, source: Path | str, name: str, defines: tuple[str, ...] = ()) -> "cupy.RawKernel":
        """Return a kernel of a .cu file, compiled for this card with macros. A bare file name is one for ceilings."""
        return self.compiled(read_kernel_source(CEILING_KERNEL_FOLDER / source), name, defines)

    def compile_ahead(self, kernels: Iterable[tuple]) -> None:
        """Compile kernels, given as arguments of `load_kernel`, and those of ceilings. `load_kernel` raises errors."""
        codes_and_defines = set()
        for source, _, *defines in (*kernels, *self._ceiling_kernels):
            codes_and_defines.add((read_kernel_source(CEILING_KERNEL_FOLDER / source), *defines))
        with ThreadPoolExecutor(len(host.usable_cpus())) as pool:
            pool.map(lambda code_and_defines: self._compile_cubin(*code_and_defines), codes_and_defines)

    def compiled(self, code: str, name: str, defines: tuple[str, ...] = ()) -> "cupy.RawKernel":
        """Return a kernel of CUDA C++ code, compiled for this card. Raises RuntimeError with NVRTC's messages."""
        if (code, defines) not in self._modules:
            self._modules[code, defines] = self._cupy.RawModule(path=str(self._compile_cubin(code, defines)))
        return self._modules[code, defines].get_function(name)

    def _compile_cubin(self, code: str, defines: tuple[str, ...] = ()) -> Path:
        """Return the path of the code's cubin, compiled or cached. Raises RuntimeError with NVRTC's messages."""
        from cuda.pathfinder import find_nvidia_header_directory

        nvrtc, options = self._cupy.cuda.nvrtc, (*COMPILE_OPTIONS, *defines)
        if HOPPER_OPTIONS[0] not in defines:
            options += ("-arch=sm_{}{}".format(*self._capability),)
        key = repr((code, options, nvrtc.getVersion(), self._software))
        folder = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")
        path = Path(folder, f"roofline-{hashlib.sha256(key.encode()).hexdigest()}.cubin")
        if not path.exists():
            program = nvrtc.createProgram(code, "kernel.cu", (), ())
            try:
                nvrtc.compileProgram(program, (*options, f"-I{find_nvidia_header_directory('cudart')}"))
            except nvrtc.NVRTCError:
                raise RuntimeError(nvrtc.getProgramLog(program)) from None
            write_bytes(nvrtc.getCUBIN(program), path)
        return path
