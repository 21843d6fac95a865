"""What a GPU grants a kernel, for plans that divide work among blocks before anything is compiled."""

from dataclasses import dataclass

from roofline.core.units import KIB

RESERVED_SHARED_BYTES = KIB  # of shared memory, which CUDA takes for each resident block


@dataclass(frozen=True)
class GpuLimits:
    """Multiprocessors and shared memory of a GPU, and its compute capability."""

    multiprocessors: int
    shared_per_block: int  # bytes that a block may have at most
    shared_per_sm: int  # bytes for all blocks of a multiprocessor, with RESERVED_SHARED_BYTES of each
    capability: tuple[int, int]
