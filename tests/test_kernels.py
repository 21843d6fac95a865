"""Every kernel compiles for every generation of cards that is supported: NVRTC needs no GPU for that."""

import re
from functools import cache
from pathlib import Path

import nvidia
import pytest
from cuda.bindings import nvrtc

import roofline
from roofline.core.architectures import architecture_of
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.devices.base import RESERVED_SHARED_BYTES, GpuLimits
from roofline.devices.gpu import cache_benchmarks, gpu_fma
from roofline.devices.gpu.kernel_compiler import CEILING_KERNEL_FOLDER, COMPILE_OPTIONS, read_kernel_source
from roofline.operators.decode_attention import fused_attention
from roofline.operators.decode_attention.attention_arithmetic import AttentionShape, query_dtype
from roofline.operators.decode_attention.fused_attention import KernelVariant
from roofline.operators.rmsnorm_matmul import hopper_gemm
from roofline.operators.rmsnorm_matmul import mma_plan as fused_product
from roofline.operators.row_norm import cuda_row_norm as row_norm

pytestmark = pytest.mark.slow
LIBRARY = Path(roofline.__file__).parent
SOURCES = sorted([*CEILING_KERNEL_FOLDER.glob("*.cu"), *LIBRARY.glob("operators/*/kernels/*.cu")])
EVERYWHERE = [path for path in SOURCES if path not in hopper_gemm.KERNELS.values()]  # those are Hopper's alone
ARCHITECTURES = (75, 80, 89, 90, 100, 120)  # 8.6 is 8.9 without fp8
HEADERS = [str(folder) for path in nvidia.__path__ for folder in Path(path).glob("*/include")]
ENTRY = re.compile(r'extern "C" __global__ void\s+(?:__\w+__\([^)]*\)\s+)*(\w+(?:##(?:DEPTH|BLOCKS))?)\(')
DEPTHS = re.compile(r"^(?:AT_DEPTH|READ_CLUSTER)\((\d+)\)$", re.MULTILINE)
USAGE = re.compile(r"ptxas  +\.|ptxas info +: (\d+ bytes|Compil(ing|e time)|Function properties|Used) ")


def entries_of(source: str) -> list[str]:
    """The names of the kernels of a source, those of its macros AT_DEPTH and READ_CLUSTER written out."""
    depths = DEPTHS.findall(source)
    names = ENTRY.findall(source.replace("\\\n", "\n"))
    return [name.partition("##")[0] + depth for name in names for depth in (depths if "##" in name else [""])]


def done(result, *values):
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, result
    return values[0] if values else None


class Code(bytes):
    """Machine code, with the registers of a thread of each kernel (in the granules of 8 in which they are allocated),
    the largest stack, which our kernels use only for spilled registers, and the largest static shared memory."""

    def __new__(cls, code: bytes, report: str):
        made = super().__new__(cls, code)
        entries = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack.*?(Used .*?)$", report, re.S | re.M)
        made.registers = {name: -(-int(re.search(r"Used (\d+)", used)[1]) // 8) * 8 for name, _, used in entries}
        made.stack_bytes = max((int(stack) for _, stack, _ in entries), default=0)
        made.shared_bytes = max((int(size) for size in re.findall(r"(\d+) bytes smem", report)), default=0)
        return made


@cache
def compiled(source: str, name: str, target: int | str, defines: tuple[str, ...] = ()) -> tuple[Code, str]:
    """The machine code for an architecture (90) or the PTX for a virtual one ("compute_90"), and the remarks of the
    compiler. Raises AssertionError with them if it fails."""
    program = done(*nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    kind = "PTX" if str(target).startswith("compute") else "CUBIN"
    options = [*COMPILE_OPTIONS, *defines, f"--gpu-architecture={target if kind == 'PTX' else f'sm_{target}'}"]
    options += ["--ptxas-options=-v", *(f"--include-path={folder}" for folder in HEADERS)]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    # NVRTC writes into the object. Python has one b" " for all, and an empty log would turn that into a NUL.
    log = b" " * (1 + done(*nvrtc.nvrtcGetProgramLogSize(program)))
    done(*nvrtc.nvrtcGetProgramLog(program, log))
    report = log.decode().strip(" \0\n")
    remarks = "\n".join(line for line in report.splitlines() if not USAGE.match(line))
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, remarks
    code = b" " * done(*getattr(nvrtc, f"nvrtcGet{kind}Size")(program))
    done(*getattr(nvrtc, f"nvrtcGet{kind}")(program, code))
    return Code(code, report), remarks


def clean(*source_name_target_defines) -> Code:
    """What compiles without a remark."""
    code, remarks = compiled(*source_name_target_defines)
    assert remarks == "", source_name_target_defines[1:]
    return code


REGISTERS = 64 * 1024  # of a block, in every generation
# Threads of the largest block. In memory.cu the need of the kernel decides their number, which must not be tiny.
THREADS = {"caches.cu": max(cache_benchmarks.GRIDS)[0], "energy.cu": 256, "memory.cu": 512}
MACROS = {"energy.cu": ("-DDOUBLE=1", "-DMULTIPLIES=16")}


# 8.9 has what 8.0 has, and fp8.
@pytest.mark.parametrize(
    ("source", "architecture"),
    [(path, one) for path in EVERYWHERE for one in ARCHITECTURES if one != 89 or ">= 890" in read_kernel_source(path)],
    ids=lambda one: getattr(one, "name", one),
)
def test_compiles_without_a_remark_and_fits_the_registers(source, architecture):
    text = read_kernel_source(source)
    text = text if architecture >= 90 else text.partition("#if __CUDA_ARCH__ >= 900\n// Distributed")[0]
    code, entries = clean(text, source.name, architecture, MACROS.get(source.name, ())), entries_of(text)
    assert code.startswith(b"\x7fELF")
    assert entries and all(f".text.{entry}\0".encode() in code for entry in entries)
    if threads := THREADS.get(source.name):
        assert set(code.registers) == set(entries)
        assert min(code.registers.values()) >= 8 and max(code.registers.values()) * threads <= REGISTERS


# Few and many numbers; the longest needs the most registers.
@pytest.mark.parametrize(
    ("variant", "architecture"),
    [(min(gpu_fma.NUMBERS_AND_STEPS), 90), *((max(gpu_fma.NUMBERS_AND_STEPS), one) for one in (75, 90, 120))],
    ids=str,
)
def test_every_variant_of_the_multiply_adds_compiles_and_fits_the_registers(variant, architecture):
    defines = (f"-DNUMBERS={variant[0]}", f"-DSTEPS_PER_ROUND={variant[1]}")
    code = clean(read_kernel_source(CEILING_KERNEL_FOLDER / "fma.cu"), "fma.cu", architecture, defines)
    assert max(code.registers.values()) * max(threads for threads, _ in gpu_fma.GRIDS) <= REGISTERS


HOPPER = "90a"  # with what only Hopper has
PRODUCT = LIBRARY / "operators/gemm/kernels/tensor_matmul.cu"
FUSED_PRODUCT = LIBRARY / "operators/rmsnorm_matmul/kernels/rmsnorm_matmul.cu"


def fits(source: Path, target: int | str, defines: tuple[str, ...], threads: int, blocks=1, shared="0", room=0) -> Code:
    """The machine code, with nothing spilled, registers for the threads that are launched and shared memory of what the
    kernel says within the room that Python gives it."""
    agreed = f'static_assert(THREADS == {threads}, "THREADS");\nstatic_assert({shared} <= {room}, "room");\n'
    code = clean(f"{read_kernel_source(source)}\n{agreed}", source.name, target, defines)
    (needed,) = code.registers.values()
    assert not code.stack_bytes, defines
    assert needed * threads * blocks <= REGISTERS, defines
    return code


@pytest.mark.parametrize(
    ("architecture", "threads", "blocks", "bf16"), [(HOPPER, 384, 1, 1), (80, 256, 2, 1), (90, 256, 2, 0)]
)
def test_the_product_keeps_its_sums_in_registers(architecture, threads, blocks, bf16):
    fits(PRODUCT, architecture, (f"-DBF16={bf16}",), threads, blocks)


OF_FEW = "STAGES * STAGE_BYTES + 2 * {hidden} + 1024"
OF_MANY = "(SPLITS > 1 && sizeof(Inbox) > STAGES * STAGE_BYTES ? sizeof(Inbox) : STAGES * STAGE_BYTES) + 1024"


@pytest.mark.parametrize(
    ("batch", "hidden", "dtype"),
    [(1, 2048, "bf16"), (8, 8192, "bf16"), (32, 2048, "fp16"), (64, 4096, "bf16"), (128, 8192, "bf16")],
)
def test_the_fused_product_keeps_its_sums_in_registers_on_hopper(batch, hidden, dtype):
    task = hopper_gemm.GemmTask(batch, hidden, hidden, hopper_gemm.kernel_takes_norm(batch), splits_rows=True)
    limits = gpu_limits(90)
    plan = hopper_gemm.plan_gemm(task, limits)
    shared = {"few_rows": OF_FEW.format(hidden=hidden), "many_rows": OF_MANY}[plan.kernel]
    source, _, options = plan.kernel_spec(dtype, hopper_gemm.PLAIN)
    defines = tuple(option for option in options if option.startswith("-D"))
    code = fits(source, HOPPER, defines, plan.threads, shared=shared, room=plan.shared_bytes)
    assert plan.shared_bytes + code.shared_bytes <= limits.shared_per_block


@pytest.mark.parametrize("columns", [64, 128])
@pytest.mark.parametrize(("architecture", "bf16", "batch"), [(75, 0, 32), (80, 1, 8), (80, 1, 128), (90, 0, 128)])
def test_the_fused_product_keeps_its_sums_in_registers_elsewhere(columns, architecture, bf16, batch):
    blocks = 2 if batch <= 32 else 1
    numbers = {"BF16": bf16, "BATCH": batch, "COLUMNS": columns, "SPLITS": 256 // columns, "BLOCKS": blocks}
    defines = tuple(f"-D{name}={number}" for name, number in (numbers | {"STAGES": 1 + columns // 64}).items())
    fits(FUSED_PRODUCT, architecture, defines, 2 * columns, blocks)


def test_the_plan_of_the_fused_product_has_room_for_its_stages():
    plan = fused_product.plan_mma(8, 4096, 4096, gpu_limits(89))  # 8.6 has the same shared memory
    room = {"shared": "STAGES * STAGE_BYTES", "room": plan.shared_bytes}
    fits(FUSED_PRODUCT, 86, plan.defines("bf16"), plan.threads, plan.resident, **room)


def gpu_limits(architecture: int) -> GpuLimits:
    """A card of an architecture with the multiprocessors of an H200."""
    capability = divmod(architecture, 10)
    row = architecture_of(capability)
    return GpuLimits(132, row.shared_per_block_kib << 10, row.shared_kib << 10, capability)


# The numbers of the kernel and those that Python launches it with: Python may take a little more than is needed.
AGREED = """
static_assert(Method::TILE == TILE_OF_PYTHON, "TILE");
static_assert(Method::Shared::most_queries == QUERIES, "QUERIES");
static_assert(sizeof(Method::Shared) <= SHARED_OF_PYTHON, "the parts do not fit");
static_assert(2 * WARPS * TilePipeline<Method::LOADS>::BYTES_PER_WARP <= SHARED_OF_PYTHON, "the tiles do not fit");
"""


def attention_variants(architecture: int, dtype: str, head_size: int) -> set[KernelVariant]:
    limits = gpu_limits(architecture)
    shapes = (AttentionShape(1, group, 1, head_size, 1024) for group in (1, 2, 4, 8))
    return {variant for shape in shapes for variant in fused_attention.list_variants(shape, dtype, limits)}


# 8.9 and 12.0 have the same limits; fp16 and bf16 differ by one instruction.
@pytest.mark.parametrize(
    ("dtype", "head_size", "architecture"),
    [
        *(("bf16", 128, one) for one in ARCHITECTURES if one != 89),
        *(("fp8_e4m3", 128, one) for one in (89, 90)),
        *(("fp32", 128, 75), ("fp16", 64, 90), ("fp8_e4m3", 64, 90)),
    ],
)
def test_every_variant_of_the_attention_compiles_and_fits_the_card(dtype, head_size, architecture):
    limits = gpu_limits(architecture)
    path, name, _ = fused_attention.kernel_spec(dtype, ())
    source = read_kernel_source(path) + AGREED
    found = attention_variants(architecture, dtype, head_size)
    assert found
    for variant in found:
        agreed = (f"-DTILE_OF_PYTHON={variant.tile}", f"-DSHARED_OF_PYTHON={variant.shared_bytes}")
        defines = (*variant.defines(query_dtype(dtype), head_size), *agreed)
        needed = clean(source, path.name, architecture, defines).registers[name]
        assert needed * LANES_PER_WARP * variant.warps * variant.blocks <= REGISTERS, variant
        assert variant.shared_bytes <= limits.shared_per_block, variant
        resident_bytes = variant.blocks * (variant.shared_bytes + RESERVED_SHARED_BYTES)
        assert resident_bytes <= limits.shared_per_sm or variant.blocks == 1, variant


@pytest.mark.parametrize("architecture", [one for one in ARCHITECTURES if one != 89])
def test_every_division_of_rows_compiles_and_fits_the_registers(architecture):
    """Rows that a warp, a block, or more than the registers of a block hold, in accesses of 4, 8 and 16 bytes."""
    shapes = [(16_384, 1024), (1000, 4098), (16, 65_536)]
    if architecture == 90:
        shapes += [(1024, 128), (100, 1), (7, 1023), (16, 32_768)]
    source = read_kernel_source(row_norm.KERNEL)
    for division in {row_norm.divide_rows(rows, columns, 132) for rows, columns in shapes}:
        needed = clean(source, row_norm.KERNEL.name, architecture, division.defines()).registers["row_norm"]
        assert needed * division.threads * division.rows <= REGISTERS, division
