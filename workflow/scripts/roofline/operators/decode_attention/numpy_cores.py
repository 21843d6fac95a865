"""Decode attention by NumPy on all cores: what a CPU gives without compiled code of our own.

Sequences and K/V heads ("units") are divided among the cores, and where they are too few the rows of K and V too, in
parts that are joined by their largest scores. A core goes through its own in chunks whose scores stay in its second
cache. Numbers that the CPU cannot compute in are widened to fp32 in its caches, piece by piece.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy

from roofline.core.dtypes import ITEM_BYTES
from roofline.devices.cpu.widening import FP16_SCALE, piece_items, widened
from roofline.operators.decode_attention.counts import Shape

TRIAL_STEPS = 4  # with each number of cores
CLEARLY_FASTER, CLEARLY_SLOWER = 0.9, 1.5  # fewer cores count where they are clearly faster, until they are slower
FEWEST_ROWS = 64  # of K and V in a part
PARTS_COST = 20  # so many more parts are taken to cost as much in joining them as the attention itself
# Of one matrix product. OpenBLAS has a way for small ones that reads a matrix once; past a million it first packs it,
# and was seen to be a third as fast.
MOST_PRODUCTS = 1_000_000
FEWEST_COLUMNS = 32  # of a projection, that a core computes


class Steps:
    """K q, softmax and weighted sum, each core for units of its own; on so many cores, or on as many as were the
    fastest: where there is little to do, many are slower."""

    def __init__(self, device, shape: Shape, dtype: str, query, hidden, caches, layers, cores: int | None = None):
        self.device, self.shape, self.layers, self.hidden = device, shape, layers, hidden
        self.as_dtype = self.hidden.dtype
        self.emulated = ITEM_BYTES[dtype] < 4
        self.scale = numpy.float32(FP16_SCALE if dtype == "fp16" else 1)
        self.columns = self._columns(query.astype(numpy.float32))
        self.wide_hidden = self.hidden.astype(numpy.float32)
        by_unit = (-1, shape.seq_len, shape.head_size)
        self.by_unit = [tuple(array.reshape(by_unit) for array in pair) for pair in caches]
        self.piece_items = piece_items(device)
        wide = [numpy.empty(self.piece_items if self.emulated else 0, numpy.float32) for _ in range(device.cores)]

        def attending(count: int) -> Callable[[int], object]:
            self.plan = Plan(shape, count, device.l2_bytes // 16, wide)  # a quarter of the cache for scores
            return self.core

        def projecting(count: int) -> Callable[[int], object]:
            self.projecting_cores = count
            return lambda index: self._projected_query(self.layers[index % len(self.layers)])

        for trial in (attending, projecting):
            trial(cores or self._fastest(trial))

    def _fastest(self, trial: Callable[[int], Callable[[int], object]]) -> int:
        """The number of cores: from all of them down by halves, until fewer are clearly slower."""
        best, least_s = 1, math.inf
        for count in (self.device.cores >> halvings for halvings in range(self.device.cores.bit_length())):
            seconds = min(self.device.step_times(trial(count), TRIAL_STEPS))
            if seconds > CLEARLY_SLOWER * least_s:
                break
            if seconds < CLEARLY_FASTER * least_s:
                best, least_s = count, seconds
        return best

    def core(self, index: int):
        return self._attend(self.columns, index, self.as_dtype)

    def block(self, index: int):
        layer = self.layers[index % len(self.layers)]
        attended = self._attend(self._columns(self._projected_query(layer)), index, numpy.float32)
        attended = attended.reshape(self.shape.batch, self.shape.hidden_size)
        return self._projected(attended, layer["output"], layer["output_bias"]).astype(self.as_dtype, copy=False)

    def _projected_query(self, layer):
        return self._projected(self.wide_hidden, layer["query"], layer["query_bias"])

    def _columns(self, query):
        """Scaled, [units, head size, group]: a column a query head, so that K q needs no transposed K."""
        scaled = query * numpy.float32(self.shape.head_size**-0.5 * self.scale)
        grouped = scaled.reshape(-1, self.shape.group, self.shape.head_size)
        return numpy.ascontiguousarray(grouped.swapaxes(-1, -2))

    # -- attention

    def _attend(self, columns, index: int, dtype):
        """[batch, heads, head size] in a dtype."""
        keys, values = self.by_unit[index % len(self.by_unit)]
        shape, plan = self.shape, self.plan
        result = numpy.empty((len(keys), shape.group, shape.head_size), dtype)

        def work(worker: int) -> None:
            with numpy.errstate(all="ignore"):  # what is not finite shows in the result
                for number, rows, units in plan.chunks(worker):
                    inputs = columns[units], keys[units, rows], values[units, rows]
                    found = self._chunk(plan.buffers[worker], *inputs)
                    if plan.partial:
                        for array, part in zip(plan.partial, found, strict=True):
                            array[number, units] = part
                    else:
                        _, totals, sums = found
                        finish(totals, sums, result[units])

        self.device.on_cores(len(plan.tasks), work)
        if plan.partial:
            join(*plan.partial, result)
        return result.reshape(shape.batch, shape.heads, shape.head_size)

    def _chunk(self, buffers: "Buffers", columns, keys, values):
        """The largest score and the sum of the weights [units, group, 1], and the sum of the weighted values
        [units, group, head size], for columns [units, head size, group], K and V [units, rows, head size]."""
        group, (count, rows, _) = columns.shape[-1], keys.shape
        weights = buffers.scores[: count * buffers.lanes * rows].reshape(count, buffers.lanes, rows)
        scores, sums = weights[:, :group], buffers.sums[:count]
        for units, part in self._pieces(keys):
            multiply(self._widened(keys[units, part], buffers.wide), columns[units], scores[units, :, part], buffers)
        largest = numpy.maximum.reduce(scores, axis=-1, keepdims=True)
        least = numpy.minimum.reduce(scores, axis=-1, keepdims=True)
        numpy.subtract(scores, largest, out=scores)
        numpy.exp(scores, out=scores)
        totals = numpy.add.reduce(scores, axis=-1, keepdims=True)
        totals += 0 * least  # a score of minus infinity would have no weight, and would not show
        if self.scale != 1:
            scores *= self.scale
        for units, part in self._pieces(values):
            wide = self._widened(values[units, part], buffers.wide)
            if part.start == 0:
                numpy.matmul(weights[units, :, part], wide, out=sums[units])
            else:
                sums[units] += numpy.matmul(weights[units, :, part], wide, out=buffers.more[: len(wide)])
        return largest, totals, sums[:, :group]

    def _pieces(self, array) -> tuple[tuple[slice, slice], ...]:
        """Units and rows that are widened at once. Without widening, everything."""
        count, rows, depth = array.shape
        return pieces(count, rows, depth, self.piece_items if self.emulated else array.size)

    def _widened(self, piece, wide):
        return widened(piece, wide[: piece.size].reshape(piece.shape)) if self.emulated else piece

    # -- projections

    def _projected(self, left, weights, bias):
        """left [batch, hidden] times weights [hidden, hidden], plus the bias, in fp32."""
        depth, width = weights.shape
        cores = self.projecting_cores
        each = max(FEWEST_COLUMNS, -(-width // cores))
        if self.emulated:
            each = min(each, self.piece_items)
        rows = self.piece_items // each if self.emulated else depth
        left = left * self.scale if self.scale != 1 else left
        result = numpy.zeros((len(left), width), numpy.float32)

        def work(worker: int) -> None:
            with numpy.errstate(all="ignore"):
                for first in range(each * worker, width, each * cores):
                    for start in range(0, depth, rows):
                        piece = weights[start : start + rows, first : first + each]
                        wide = self._widened(piece, self.plan.wide[worker])
                        result[:, first : first + each] += numpy.matmul(left[:, start : start + rows], wide)

        self.device.on_cores(cores, work)
        result += bias.astype(numpy.float32)
        return result


class Plan:
    """Who computes what, and where to: `tasks`, by core, are units and numbered parts of the rows."""

    def __init__(self, shape: Shape, cores: int, score_items: int, wide: list):
        """For chunks of so many scores. `wide` is each core's room for what it widens."""
        units, lanes = shape.batch * shape.kv_heads, max(2, shape.group)
        groups, own = division(units, shape.seq_len, cores)
        most = max(1, min(score_items, MOST_PRODUCTS // shape.head_size) // lanes)
        blocks = -(-shape.seq_len // (own * most))
        parts = list(enumerate(cuts(shape.seq_len, min(shape.seq_len, own * blocks))))
        numbers, unit_groups = cuts(len(parts), own), cuts(units, groups)
        self.tasks = [(group, parts[some]) for some in numbers for group in unit_groups]
        most_rows = max(rows.stop - rows.start for _, rows in parts)
        most_units = max(group.stop - group.start for group in unit_groups)
        self.each = min(most_units, max(1, score_items // (lanes * max(most_rows, shape.head_size))))
        self.wide = wide
        self.buffers = [Buffers(self.each, lanes, most_rows, shape.head_size, room) for room in wide]
        self.partial = []  # largest scores, sums of weights, sums of weighted values, by part: where there are several
        if len(parts) > 1:
            sizes = (1, 1, shape.head_size)
            self.partial = [numpy.empty((len(parts), units, shape.group, size), numpy.float32) for size in sizes]

    def chunks(self, worker: int) -> Iterator[tuple[int, slice, slice]]:
        """Number of the part, its rows, and units."""
        units, parts = self.tasks[worker]
        for number, rows in parts:
            for start in range(units.start, units.stop, self.each):
                yield number, rows, slice(start, min(start + self.each, units.stop))


class Buffers:
    """What a core writes between K and V and the result, made once, for chunks of so many units and rows."""

    def __init__(self, units: int, lanes: int, rows: int, depth: int, wide):
        self.lanes, self.wide = lanes, wide
        self.scores = numpy.zeros(units * lanes * rows, numpy.float32)
        self.products = numpy.empty_like(self.scores)
        self.sums, self.more = (numpy.empty((units, lanes, depth), numpy.float32) for _ in range(2))


def multiply(keys, columns, scores, buffers: Buffers) -> None:
    """K q to scores [units, group, rows]. Of one column, the BLAS is twice as fast with K in the cache as dot products
    are; these read K from memory a fifth faster. The weighted sum of V is not left to a product by one row, which reads
    memory more slowly than that by two does: where the group has one, a second, idle lane goes with it."""
    if columns.shape[-1] > 1:
        units, group, rows = scores.shape
        products = buffers.products[: scores.size].reshape(units, rows, group)
        scores[:] = numpy.matmul(keys, columns, out=products).swapaxes(-1, -2)
    elif buffers.wide.size:
        numpy.matvec(keys, columns[..., 0], out=scores[:, 0])
    else:
        numpy.vecdot(keys, columns[:, None, :, 0], out=scores[:, 0])


def division(units: int, rows: int, cores: int) -> tuple[int, int]:
    """Into how many groups the units are divided, and into how many parts the rows, for as many cores or fewer: such
    that none has much more to do than the others."""

    def cost(parts: int) -> int:
        return -(-units // min(units, cores // parts)) * -(-rows // parts) * (PARTS_COST + parts)

    parts = min(range(1, max(1, min(cores, rows // FEWEST_ROWS)) + 1), key=cost)
    return min(units, cores // parts), parts


def cuts(length: int, count: int) -> list[slice]:
    return [slice(length * i // count, length * (i + 1) // count) for i in range(count)]


@cache
def pieces(units: int, rows: int, depth: int, items: int) -> tuple[tuple[slice, slice], ...]:
    """Several units, or some of the rows of one, of so many items."""
    together, each = max(1, items // (rows * depth)), max(1, items // depth)
    return tuple(
        (slice(first, min(first + together, units)), slice(start, min(start + each, rows)))
        for first in range(0, units, together)
        for start in range(0, rows, each)
    )


def finish(totals, sums, result) -> None:
    """sums / totals to the result, rounded to its dtype. It writes over the sums."""
    if result.dtype == sums.dtype:
        numpy.divide(sums, totals, out=result)
    else:
        result[:] = numpy.divide(sums, totals, out=sums)


def join(largest, totals, sums, result) -> None:
    """Parts [parts, units, group, 1 or head size] of one softmax, each rescaled to the largest score of all. It writes
    over them. What is not finite in a part stays so: times a factor of 0 it is NaN."""
    with numpy.errstate(all="ignore"):
        factors = numpy.exp(largest - largest.max(axis=0))
        totals *= factors
        sums *= factors
        finish(totals.sum(axis=0), sums.sum(axis=0), result)
