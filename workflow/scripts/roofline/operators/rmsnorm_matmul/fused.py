"""RMSNorm + matmul by one kernel of ours (kernels/rmsnorm_matmul.cu): a launch each, or many in a CUDA graph."""

import math
from functools import cached_property

from roofline.core.dtypes import ITEM_BYTES
from roofline.devices.gpu.kernel_compiler import HOPPER_OPTIONS, with_headers
from roofline.operators.base import ExecutedFlops, KeptReads
from roofline.operators.constants import launch
from roofline.operators.rmsnorm_matmul.counts import EPS
from roofline.operators.rmsnorm_matmul.plan import STATIC_BYTES, plan
from roofline.operators.rmsnorm_matmul.unfused import KERNELS, OVERLAPPED, WAITING, InGraph, OnTensorCores
from roofline.records.prediction import CostTerms

KERNEL = KERNELS / "rmsnorm_matmul.cu"

ARGUMENTS = 10  # of the kernel


class Fused(OnTensorCores):
    """One launch each. W is multiplied by g as it comes, and the sums by the norm's factor last."""

    name, fused = "fused", True
    sources = tuple(sorted(with_headers(KERNEL)))

    def __init__(self, operator, device, case, shared: dict, copies: list[dict]):
        super().__init__(operator, device, case, shared, copies)
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        properties = device.properties
        self.division = plan(
            batch,
            hidden,
            hidden,
            device.capability,
            device.multiprocessors,
            properties["sharedMemPerBlockOptin"],
            properties["sharedMemPerMultiprocessor"],
        )
        self.arguments = self._arguments(device, batch, hidden)

    def _arguments(self, device, batch: int, hidden: int) -> list[tuple]:
        """Of a launch for each copy."""
        import numpy

        from roofline.devices.gpu.tensor_map import tensor_map

        g, sizes = self.shared["g"], (*map(numpy.int32, (batch, hidden, hidden)), numpy.float32(EPS))
        if device.is_hopper:
            rows = {"x": self.division.rows, "w": self.division.columns}
            maps = [[tensor_map(copy[name], rows[name]) for name in rows] for copy in self.copies]
            arrived = device.xp.zeros(self.division.chunks, device.xp.uint64)
            squares = device.xp.empty(self.division.squares, device.xp.float32)
            shared = (arrived, squares, *sizes)
            return [(*of_copy, g, copy["y"], *shared) for of_copy, copy in zip(maps, self.copies, strict=True)]
        workspace = device.xp.empty(self.division.workspace_floats, device.xp.float32)
        arrived = device.xp.zeros(self.division.sets, device.xp.uint32)
        return [(copy["x"], copy["w"], g, copy["y"], workspace, arrived, *sizes) for copy in self.copies]

    @cached_property
    def kernel(self):
        options = HOPPER_OPTIONS if self.device.is_hopper else ()
        kernel = self.device.kernel(KERNEL, "rmsnorm_matmul", (*options, *self.division.defines(self.case.dtype)))
        # All that the card has: the limit is the kernel's, which other cases launch with more or less.
        kernel.max_dynamic_shared_size_bytes = self.device.properties["sharedMemPerBlockOptin"] - STATIC_BYTES
        return kernel

    @property
    def launch(self) -> tuple:
        return self.division.grid, (self.division.threads,)

    def step(self, scope: str | None):
        launch = self.device.launcher(self.kernel, *self.launch, self.division.shared_bytes, overlap=False)
        calls = [(arguments, copy["y"]) for arguments, copy in zip(self.arguments, self.copies, strict=True)]

        def step(index: int):
            arguments, result = calls[index % len(calls)]
            launch(arguments)
            return result

        return step

    def executed_flops(self, scope: str | None) -> ExecutedFlops:
        """On tensor cores, of whole tiles; the norm runs on other pipes."""
        division, hidden = self.division, self.case.shape["hidden"]
        chunks, outputs = division.grid[1], division.columns * (division.grid[0] // division.splits)
        return ExecutedFlops(
            {"tensor": 2.0 * chunks * division.rows * outputs * hidden}, f"x padded to {division.rows} rows"
        )

    def kept_reads(self, scope: str | None) -> KeptReads | None:
        """Of x, on Hopper (see load_tile_once)."""
        if not self.device.is_hopper:
            return None
        size = self.case.shape["batch"] * self.case.shape["hidden"] * ITEM_BYTES[self.case.dtype]
        return KeptReads(size, "x stays in the L2, since W is read with a hint to leave it first")

    def plan(self) -> dict:
        division = self.division
        names = ("rows", "columns", "splits", "stages", "blocks", "shared_bytes")
        return {name: getattr(division, name) for name in names}

    def costs(self, scope: str | None) -> CostTerms:
        return self._costs(launch(ARGUMENTS), {"fused_start_s": 1.0, "event_s": 1.0})

    def _costs(self, calls: dict[str, float], start: dict[str, float]) -> CostTerms:
        """A multiprocessor's shared memory sets the time of many rows. Sums go from block to block."""
        division = self.division
        blocks = math.ceil(division.blocks / self.device.multiprocessors)
        through_shared = blocks * division.staged_bytes(self.case.shape["hidden"])
        return CostTerms(
            calls=calls,
            start=start,
            extra={"exchange_s_per_byte": float(division.sums_bytes)},
            floor={"shared_memory_s_per_byte": float(through_shared)},
            share="stream_share",
        )


class FusedGraph(InGraph, Fused):
    """Where the card can, a kernel also begins while the one before it ends: it fetches W at once, and x when that one
    is done."""

    name = "fused_graph"
    scopes = (WAITING, OVERLAPPED)

    def __init__(self, operator, device, case, shared: dict, copies: list[dict]):
        super().__init__(operator, device, case, shared, copies)
        if not device.overlaps:
            self.scopes = (WAITING,)

    def captured(self, scope: str | None):
        calls = self.arguments * (self.per_call // len(self.copies))
        return self.device.graph(self.kernel, *self.launch, calls, self.division.shared_bytes, scope == OVERLAPPED)

    def costs(self, scope: str | None) -> CostTerms:
        start = "overlapped_start_s" if scope == OVERLAPPED else "fused_start_s"
        return self._costs({"graph_launch_s": 1 / self.per_call}, {start: 1.0})
