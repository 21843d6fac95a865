"""Every kernel compiles for every generation of cards that is supported: NVRTC needs no GPU for that."""

import re
from pathlib import Path

import nvidia
import pytest
from cuda.bindings import nvrtc

from roofline.devices import gpu, gpu_fma

SOURCES = sorted(gpu.KERNELS.glob("*.cu"))
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
HEADERS = [str(folder) for path in nvidia.__path__ for folder in Path(path).glob("*/include")]
ENTRY = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+(?:##DEPTH)?)\(')
DEPTHS = re.compile(r"^AT_DEPTH\((\d+)\)$", re.MULTILINE)
CALLED = re.compile(r'\.kernel\(\s*"([\w.]+)",\s*"(\w+)"')


def entries_of(source: str) -> list[str]:
    """The names of the kernels of a source, those of its macro AT_DEPTH written out."""
    depths = DEPTHS.findall(source)
    return [
        name.replace("##DEPTH", depth) for name in ENTRY.findall(source) for depth in (depths if "##" in name else [""])
    ]


def done(result, *values):
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, result
    return values[0] if values else None


def compiled(source: str, name: str, architecture: int, defines: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """The machine code and the compiler's remarks. Raises AssertionError with them where it fails."""
    program = done(*nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    options = [*gpu.COMPILE_OPTIONS, *defines, f"--gpu-architecture=sm_{architecture}"]
    options += [f"--include-path={folder}" for folder in HEADERS]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    remarks = b" " * done(*nvrtc.nvrtcGetProgramLogSize(program))
    done(*nvrtc.nvrtcGetProgramLog(program, remarks))
    remarks = remarks.decode().strip(" \0\n")
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, remarks
    code = b" " * done(*nvrtc.nvrtcGetCUBINSize(program))
    done(*nvrtc.nvrtcGetCUBIN(program, code))
    return code, remarks


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_compiles_without_a_remark(source, architecture):
    text = gpu.kernel_source(source.name)
    code, remarks = compiled(text, source.name, architecture)
    assert remarks == ""
    assert code.startswith(b"\x7fELF")
    entries = entries_of(text)
    assert entries and all(f".text.{entry}\0".encode() in code for entry in entries)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("variant", gpu_fma.VARIANTS, ids=str)
def test_every_variant_of_the_multiply_adds_compiles(variant, architecture):
    defines = (f"-DNUMBERS={variant[0]}", f"-DSTEPS_A_ROUND={variant[1]}")
    _, remarks = compiled(gpu.kernel_source("fma.cu"), "fma.cu", architecture, defines)
    assert remarks == ""


def test_what_does_not_compile_is_found():
    with pytest.raises(AssertionError, match=r"wrong.cu\(1\).*undefined"):
        compiled('extern "C" __global__ void f() { *undefined = 1; }', "wrong.cu", 90)


def test_every_kernel_that_is_asked_for_is_there():
    scripts = Path(gpu.__file__).parents[2]
    asked = {pair for path in scripts.rglob("*.py") for pair in CALLED.findall(path.read_text(encoding="utf-8"))}
    there = {(path.name, entry) for path in SOURCES for entry in entries_of(path.read_text(encoding="utf-8"))}
    assert asked and asked <= there
