"""Our own CUDA kernels, compiled for the card at hand by NVRTC, which needs no context on it."""

import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from roofline.devices import host
from roofline.records.files import write_bytes

CEILING_KERNEL_FOLDER = Path(__file__).parent / "kernels"
# Each kernel of a source on its own core; denormal numbers are zeros, as in CuPy's.
COMPILE_OPTIONS = ("-std=c++17", "--split-compile=0", "-ftz=true")
HOPPER_CAPABILITY, HOPPER_OPTIONS = (9, 0), ("-arch=sm_90a",)  # what only Hopper has
INCLUDE_LINE = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


@cache
def read_kernel_source(path: Path) -> str:
    """A source with its own headers put in."""
    text = path.read_text(encoding="utf-8")
    return INCLUDE_LINE.sub(lambda header: read_kernel_source(path.parent / header[1]), text)


def list_kernel_files(path: Path) -> set[Path]:
    """A source and every header of ours that it includes."""
    headers = INCLUDE_LINE.findall(path.read_text(encoding="utf-8"))
    return {path}.union(*(list_kernel_files(Path(os.path.normpath(path.parent / name))) for name in headers))


class KernelCompiler:
    """Part of the GPU device."""

    @property
    def is_hopper(self) -> bool:
        """Whether it runs what is compiled with HOPPER_OPTIONS."""
        return self.capability == HOPPER_CAPABILITY

    def load_kernel(self, source: Path | str, name: str, defines: tuple[str, ...] = ()):
        """A kernel of a .cu file (a bare name: one for ceilings), compiled for this card with macros."""
        return self.compiled(read_kernel_source(CEILING_KERNEL_FOLDER / source), name, defines)

    def compile_ahead(self, kernels: Iterable[tuple]) -> None:
        """Compile kernels, given as to `kernel`, and those of ceilings. Errors are left to `kernel`."""
        every = (*kernels, *self.ceiling_kernels)
        different = {(read_kernel_source(CEILING_KERNEL_FOLDER / source), *defines) for source, _, *defines in every}
        with ThreadPoolExecutor(len(host.usable_cpus())) as pool:
            pool.map(lambda one: self._compile_cubin(*one), different)

    def compiled(self, code: str, name: str, defines: tuple[str, ...] = ()):
        """A kernel of CUDA C++ code, compiled for this card."""
        if (code, defines) not in self._modules:
            self._modules[code, defines] = self.xp.RawModule(path=str(self._compile_cubin(code, defines)))
        return self._modules[code, defines].get_function(name)

    def _compile_cubin(self, code: str, defines: tuple[str, ...] = ()) -> Path:
        """The code, compiled or from the cache. Raises RuntimeError with NVRTC's remarks."""
        from cuda.pathfinder import find_nvidia_header_directory

        nvrtc, options = self.xp.cuda.nvrtc, (*COMPILE_OPTIONS, *defines)
        if HOPPER_OPTIONS[0] not in defines:
            options += ("-arch=sm_{}{}".format(*self.capability),)
        key = repr((code, options, nvrtc.getVersion(), self.identity.software))
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
