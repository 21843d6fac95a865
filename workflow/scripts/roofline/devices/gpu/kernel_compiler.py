"""Our own CUDA kernels: their sources, compiled for the card at hand."""

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from roofline.devices import host

CEILING_KERNELS = Path(__file__).parent / "kernels"
COMPILE_OPTIONS = ("-std=c++17", "--split-compile=0")  # each kernel of a source on its own core
# What only Hopper has. CuPy asks for the plain architecture too; NVRTC from 12.9 on takes the more special one.
HOPPER, HOPPER_OPTIONS = (9, 0), ("-arch=sm_90a",)
INCLUDED = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


@cache
def kernel_source(path: Path) -> str:
    """A source with its own headers put in: CuPy's cache of compiled kernels would not see them change."""
    text = path.read_text(encoding="utf-8")
    return INCLUDED.sub(lambda header: kernel_source(path.parent / header[1]), text)


def with_headers(path: Path) -> set[Path]:
    """A source and every header of ours that it includes, directly or through others."""
    headers = INCLUDED.findall(path.read_text(encoding="utf-8"))
    return {path}.union(*(with_headers(Path(os.path.normpath(path.parent / name))) for name in headers))


def in_source(code: str, defines: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The code with its macros, and the other options: for each new set CuPy compiles an empty source first."""
    macros = [option.removeprefix("-D").partition("=") for option in defines if option.startswith("-D")]
    lines = [*(f"#define {name} {value if given else 1}" for name, given, value in macros), "#line 1", code]
    return "\n".join(lines), tuple(option for option in defines if not option.startswith("-D"))


class KernelCompiler:
    """Part of the GPU device: compiled modules by their source and macros."""

    @property
    def is_hopper(self) -> bool:
        """Whether it runs what is compiled with HOPPER_OPTIONS."""
        return self.capability == HOPPER

    def kernel(self, source: Path | str, name: str, defines: tuple[str, ...] = ()):
        """A kernel of a .cu file (a bare name is one of ours for ceilings), compiled for this card with macros."""
        path = source if isinstance(source, Path) else CEILING_KERNELS / source
        return self.compiled(kernel_source(path), name, defines)

    def compile_at_once(self, kernels: Iterable[tuple]) -> None:
        """Compile kernels in parallel, each by the arguments of `kernel`. Errors are left to `kernel`."""
        with ThreadPoolExecutor(len(host.usable_cpus())) as pool:
            pool.map(lambda one: self.kernel(*one).compile(), kernels)

    def compiled(self, code: str, name: str, defines: tuple[str, ...] = ()):
        """A kernel of CUDA C++ code, compiled for this card."""
        if (code, defines) not in self._modules:
            source, options = in_source(code, defines)
            self._modules[code, defines] = self.xp.RawModule(code=source, options=COMPILE_OPTIONS + options)
        return self._modules[code, defines].get_function(name)
