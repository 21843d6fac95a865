"""How a library divides a product among multiprocessors: the tiles that are done first, by a model of their time.

Each multiprocessor computes tiles of C, wave after wave. If there are few tiles, the k of each is divided among several
multiprocessors, whose sums are added at the end. Libraries choose among many kernels by measurements of their vendor;
the model takes the fastest by its own constants.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# Rows and columns of tiles that kernels of cuBLAS for Hopper have (the names of nvjet kernels), and parts of k.
TILE_ROWS = (64, 128, 192, 256)
TILE_COLUMNS = tuple(range(8, 257, 8))
LARGEST_TILE = 128 * 256  # its sums fill the registers of a multiprocessor
PARTS_OF_K = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LEAST_PART_DEPTH = 64  # of k in a part
# Multiply-adds per second and multiprocessor of operands of one byte on Hopper, by which kernels are chosen everywhere.
CHOICE_RATE = 7.5e12
SUM_BYTES = 4  # of a sum that the parts of a tile hand over


class Tiling(NamedTuple):
    """Tiles of C, and what each multiprocessor does for them."""

    rows: int
    columns: int
    parts: int  # of k
    waves: int
    depth: float  # of k in a part
    operand_bytes: float  # of a number of A or B
    sum_bytes: float  # that all parts hand over

    @property
    def executed_products(self) -> float:
        """The multiply-adds that a multiprocessor has time for, in all waves."""
        return self.waves * self.depth * self.rows * self.columns

    @property
    def loaded_bytes(self) -> float:
        """The bytes of A and B that a multiprocessor loads, in all waves."""
        return self.waves * self.depth * (self.rows + self.columns) * self.operand_bytes

    def waits(self) -> dict[str, float]:
        """Return what a product takes besides its multiply-adds, as multiples of the operator's constants.

        The first tile begins with the kernel.
        """
        shared = {"split_tile_s": 1.0, "split_sum_s_per_byte": self.sum_bytes} if self.parts > 1 else {}
        return {"next_tile_s": float(self.waves - 1), **shared}


def choose_tiling(
    sides: tuple[int, int, int],
    *,
    operand_bits: int,
    multiprocessors: int,
    share: float,
    constants: Mapping[str, float],
) -> tuple[Tiling, bool]:
    """Return the fastest tiling of a product m x n x k, and whether its multiply-adds take longer than its loads.

    `share` is that of the multiply-adds per clock that the library attains.
    """

    def products_s(tiling: Tiling) -> float:
        return tiling.executed_products * tiling.operand_bytes / (CHOICE_RATE * share)

    def loads_s(tiling: Tiling) -> float:
        return tiling.loaded_bytes * constants["tile_load_s_per_byte"]

    next_tile_s, split_s = constants["next_tile_s"], constants["split_tile_s"]
    sum_s_per_byte = constants["split_sum_s_per_byte"]

    def seconds(tiling: Tiling) -> float:
        waits_s = (tiling.waves - 1) * next_tile_s
        if tiling.parts > 1:
            waits_s = waits_s + split_s + tiling.sum_bytes * sum_s_per_byte
        return waits_s + max(products_s(tiling), loads_s(tiling))

    best = min(_tilings(sides, operand_bits / 8, multiprocessors), key=seconds)
    return best, products_s(best) >= loads_s(best)


def _tilings(sides: tuple[int, int, int], operand_bytes: float, multiprocessors: int) -> Iterator[Tiling]:
    """Yield every tiling, with rows of tiles along either side of C."""
    c_rows, c_columns, depth = sides
    parts_of_k = [parts for parts in PARTS_OF_K if parts == 1 or depth >= parts * LEAST_PART_DEPTH]
    for rows, columns in itertools.product(TILE_ROWS, TILE_COLUMNS):
        if rows * columns > LARGEST_TILE:
            continue
        for tiles in {
            math.ceil(c_rows / rows) * math.ceil(c_columns / columns),
            math.ceil(c_columns / rows) * math.ceil(c_rows / columns),
        }:
            for parts in parts_of_k:
                waves = math.ceil(tiles * parts / multiprocessors)
                yield Tiling(
                    rows,
                    columns,
                    parts,
                    waves,
                    depth / parts,
                    operand_bytes,
                    float(SUM_BYTES * c_rows * c_columns * parts),
                )
