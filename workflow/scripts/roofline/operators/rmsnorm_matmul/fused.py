"""RMSNorm + matmul by one kernel of ours: a launch each, or many in a CUDA graph."""

import math

from roofline.core.dtypes import ITEM_BYTES
from roofline.devices.gpu.kernel_compiler import with_headers
from roofline.operators.base import ExecutedFlops, KeptReads
from roofline.operators.constants import launch
from roofline.operators.rmsnorm_matmul import hopper
from roofline.operators.rmsnorm_matmul.counts import EPS
from roofline.operators.rmsnorm_matmul.plan import STATIC_BYTES, plan
from roofline.operators.rmsnorm_matmul.unfused import KERNELS, OVERLAPPED, WAITING, InGraph, OnTensorCores
from roofline.records.prediction import CostTerms

KERNEL = KERNELS / "rmsnorm_matmul.cu"


class Fused(OnTensorCores):
    """One launch each. x is multiplied by g on its way, or W by it, and the sums by the norm's factor last."""

    name, fused = "fused", True
    sources = tuple(sorted(with_headers(KERNEL).union(hopper.SOURCES)))

    @classmethod
    def unsupported(cls, device, case) -> str | None:
        hidden = case.shape["hidden"]
        if device.is_hopper and hidden > hopper.MOST_NORMED:
            return f"hidden {hidden}; on Hopper it takes {hopper.MOST_NORMED} at most"
        return super().unsupported(device, case)

    def __init__(self, operator, device, case, shared: dict, copies: list[dict]):
        super().__init__(operator, device, case, shared, copies)
        prepare = self._prepare_hopper if device.is_hopper else self._prepare
        prepare(device, case.shape["batch"], case.shape["hidden"])

    def _prepare_hopper(self, device, batch: int, hidden: int) -> None:
        """The kernel, and its arguments for each copy."""
        room = device.properties["sharedMemPerBlockOptin"]
        work = hopper.Work(batch, hidden, hidden, norm=True)
        self.division = hopper.plan(work, device.multiprocessors, room)
        product = hopper.Product(device, self.case.dtype, self.division, hopper.ALONE)
        self.kernel, sizes = product.kernel, (1, 1, 1, 0, EPS)  # neither heads nor sums of squares
        self.arguments = [
            product.arguments(copy["x"], copy["w"], sizes, {"y": copy["y"], "norm": self.shared["g"]})
            for copy in self.copies
        ]

    def _prepare(self, device, batch: int, hidden: int) -> None:
        import numpy

        room = device.properties["sharedMemPerBlockOptin"]
        self.division = plan(
            batch, hidden, hidden, device.multiprocessors, room, device.properties["sharedMemPerMultiprocessor"]
        )
        self.kernel = device.kernel(KERNEL, "rmsnorm_matmul", self.division.defines(self.case.dtype))
        # All that the card has: the limit is the kernel's, which other cases launch with more or less.
        self.kernel.max_dynamic_shared_size_bytes = room - STATIC_BYTES
        workspace = device.xp.empty(self.division.workspace_floats, device.xp.float32)
        arrived = device.xp.zeros(self.division.sets, device.xp.uint32)
        sizes = (*map(numpy.int32, (batch, hidden, hidden)), numpy.float32(EPS))
        self.arguments = [
            (copy["x"], copy["w"], self.shared["g"], copy["y"], workspace, arrived, *sizes) for copy in self.copies
        ]

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
        division = self.division
        why = f"x padded to {division.rows} rows" + (", and its squares" if division.squares_on_tensor_cores else "")
        return ExecutedFlops({"tensor": division.tensor_flops(self.case.shape["hidden"])}, why)

    def kept_reads(self, scope: str | None) -> KeptReads | None:
        """Of x, on Hopper (see load_tile_once)."""
        if not self.device.is_hopper:
            return None
        size = self.case.shape["batch"] * self.case.shape["hidden"] * ITEM_BYTES[self.case.dtype]
        return KeptReads(size, "x stays in the L2, since W is read with a hint to leave it first")

    def plan(self) -> dict:
        division = self.division
        names = ("kernel", "rows", "columns", "splits", "stages", "blocks", "shared_bytes")
        return {name: getattr(division, name) for name in names}

    def costs(self, scope: str | None) -> CostTerms:
        return self._costs(launch(self.division.arguments), {"fused_start_s": 1.0, "event_s": 1.0})

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
