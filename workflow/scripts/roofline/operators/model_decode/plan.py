"""How the chain's products are compiled and launched, by rows of x. Found on an H200."""

from dataclasses import dataclass

FEWEST_ROWS, MOST_ROWS = 8, 256  # of x, sequences
DEPTH = 64  # of k, a slice
OUTPUTS = 128  # of a tile
MULTIPLYING, THREADS = 256, 320
MOST_STAGES = 6
RESERVED_BYTES = 1 << 10  # of shared memory, by every resident block
ALIGNMENT = 1 << 10


@dataclass(frozen=True)
class Plan:
    """ROWS, STAGES and RESIDENT of the kernel, and its shared memory."""

    rows: int
    stages: int
    resident: int
    shared_bytes: int

    def defines(self, dtype: str, way: int, head_size: int = 128, norms: bool = False, bias: bool = False):
        macros = {
            "BF16": int(dtype == "bf16"),
            "ROWS": self.rows,
            "STAGES": self.stages,
            "RESIDENT": self.resident,
            "WAY": way,
            "HEAD_SIZE": head_size,
            "NORMS": int(norms),
            "BIAS": int(bias),
        }
        return tuple(f"-D{name}={value}" for name, value in macros.items())

    @property
    def workspace_floats(self) -> int:
        """Of a block: a tile's sums."""
        return OUTPUTS * self.rows


def plan(batch: int, shared_per_multiprocessor: int, shared_per_block: int) -> Plan:
    """As many stages as let two kernels share a multiprocessor, so that the next one's weights come while one ends."""
    rows = max(FEWEST_ROWS, 1 << (batch - 1).bit_length())
    stage = (OUTPUTS + rows) * DEPTH * 2
    own = 4 * rows + 4 * min(rows, 16) * (OUTPUTS + 4) + 16 * MOST_STAGES  # that the kernel declares itself
    resident = 2 if rows < MOST_ROWS else 1
    room = min(shared_per_block, shared_per_multiprocessor // resident - RESERVED_BYTES) - own - ALIGNMENT
    stages = min(MOST_STAGES, room // stage)
    return Plan(rows, stages, resident, stages * stage + ALIGNMENT)
