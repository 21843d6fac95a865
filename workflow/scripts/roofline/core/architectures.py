"""The architectures of NVIDIA's GPUs, one row for each compute capability whose tensor cores or memory differ.

Their rates are in config/datasheets.yaml, with a source each: a change there concerns the cards of one row alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Capability = tuple[int, int]  # (9, 0)


@dataclass(frozen=True)
class Architecture:
    """What a compute capability, and those after it until the next row, have.

    `mma` is the largest fp16 instruction of its tensor cores: PTX ISA 9.0, sections 9.7.14 to 16.
    `operand_counters` names the operands whose operations Nsight Compute counts, by dtype: the counts of several names
    are added, and one name may count several dtypes. Tests compare them with the list of NVIDIA's own library.
    Threads and shared memory: CUDA programming guide, table of compute capabilities.
    """

    since: Capability
    tensor_dtypes: frozenset[str]
    mma: str
    threads: int  # resident on a multiprocessor at most
    shared_kib: int  # shared memory of a multiprocessor
    shared_per_block_kib: int  # the most that one block may ask for
    operand_counters: Mapping[str, tuple[str, ...]]
    access_bytes: int = 16  # of a thread's widest load
    clusters: bool = False  # and TMA, and launches that begin before the previous one has ended
    wgmma: bool = False  # it has the instructions of Hopper alone, which are compiled for sm_90a
    counts_instructions: bool = True  # Nsight Compute counts them by kind


_TURING = frozenset(("fp16", "int8"))
_AMPERE = _TURING | {"tf32", "bf16"}  # fp64 by a token path only, but for the cards of data centres
_ADA = _AMPERE | {"fp8_e4m3"}
_FP64 = {"fp64"}

_COUNTERS_7_0 = {"fp16": ("fp16_dst_fp16", "fp16_dst_fp32")}
_COUNTERS_7_5 = {"fp16": ("fp16_dst_fp16", "fp16_bf16_tf32_dst_fp32"), "int8": ("int8",)}
_OTHERS_8_0 = {"fp64": ("fp64",), "tf32": ("tf32_dst_fp32",), "bf16": ("bf16_dst_fp32",), "int8": ("int8",)}
_COUNTERS_8_0 = _COUNTERS_7_0 | _OTHERS_8_0
_COUNTERS_8_9 = _COUNTERS_8_0 | {"fp8_e4m3": ("fp8",)}
_COUNTERS_9_0 = _COUNTERS_8_9 | {"fp16": ("fp16",)}
# fp4 and fp6 are counted with fp8.
_COUNTERS_10_0 = _COUNTERS_8_0 | {"fp8_e4m3": ("fp4_fp6_fp8_dst_fp16", "fp4_fp6_fp8_dst_fp32")}
_COUNTERS_10_3 = _COUNTERS_8_0 | {"fp8_e4m3": ("fp8_dst_fp16", "fp8_dst_fp32")}

_SYNC, _TCGEN05 = "mma.sync m16n8k16", "tcgen05.mma m256n256k16 (two SMs)"
NO_TENSOR_CORES = Architecture((0, 0), frozenset(), "", 0, 0, 0, {}, counts_instructions=False)
ARCHITECTURES = (  # Volta, Turing, Ampere, Ada, Hopper, Blackwell
    Architecture(
        (7, 0), frozenset(("fp16",)), "mma.sync m8n8k4", 2048, 96, 96, _COUNTERS_7_0, counts_instructions=False
    ),
    Architecture((7, 5), _TURING, "mma.sync m16n8k8", 1024, 64, 64, _COUNTERS_7_5),
    Architecture((8, 0), _AMPERE | _FP64, _SYNC, 2048, 164, 163, _COUNTERS_8_0),
    Architecture((8, 6), _AMPERE, _SYNC, 1536, 100, 99, _COUNTERS_8_0),
    Architecture((8, 9), _ADA, _SYNC, 1536, 100, 99, _COUNTERS_8_9),
    Architecture(
        (9, 0),
        _ADA | _FP64 | {"fp8_block"},
        "wgmma m64n256k16",
        2048,
        228,
        227,
        _COUNTERS_9_0,
        clusters=True,
        wgmma=True,
    ),
    Architecture((10, 0), _ADA | _FP64, _TCGEN05, 2048, 228, 227, _COUNTERS_10_0, access_bytes=32, clusters=True),
    Architecture((10, 3), _ADA | _FP64, _TCGEN05, 2048, 228, 227, _COUNTERS_10_3, access_bytes=32, clusters=True),
    Architecture((11, 0), _ADA, _TCGEN05, 1536, 228, 227, _COUNTERS_10_3, access_bytes=32, clusters=True),
    Architecture((12, 0), _ADA, _SYNC, 1536, 100, 99, _COUNTERS_10_3, access_bytes=32, clusters=True),
)


def parse_capability(text: str) -> Capability:
    """Return (9, 0) for "9.0", as drivers and records write it."""
    major, minor = text.split(".")
    return int(major), int(minor)


def architecture_of(capability: Capability) -> Architecture:
    """Return the row of a compute capability: the last at or below it; for an older card, or none, NO_TENSOR_CORES."""
    return next((row for row in reversed(ARCHITECTURES) if row.since <= capability), NO_TENSOR_CORES)


def missing_tensor_cores_reason(dtype: str, capability: Capability) -> str | None:
    """Return why no tensor core of a compute capability takes a dtype that needs one; None if one does."""
    having = [row.since for row in ARCHITECTURES if dtype in row.tensor_dtypes]
    if not having or dtype in architecture_of(capability).tensor_dtypes:
        return None
    relation, only = ("need", having[0]) if capability < having[0] else ("are those of", having[-1])
    return "compute capability {}.{}, {} tensor cores {} {}.{}".format(*capability, dtype, relation, *only)
