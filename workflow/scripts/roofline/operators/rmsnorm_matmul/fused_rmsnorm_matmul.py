"""RMSNorm + matmul by kernels of ours: an application each, or many in a CUDA graph."""

import math
from collections.abc import Callable

from roofline.devices.gpu.kernel_compiler import list_kernel_files
from roofline.operators.base import ExecutedFlops
from roofline.operators.constants import launch_terms
from roofline.operators.rmsnorm_matmul import hopper_gemm
from roofline.operators.rmsnorm_matmul.mma_plan import STATIC_BYTES, plan_mma
from roofline.operators.rmsnorm_matmul.unfused import (
    KERNELS,
    NORM_ARGUMENTS,
    NORM_EPS,
    OVERLAPPED,
    RMS_NORM,
    WAITING,
    GraphImplementation,
    RmsNormKernel,
    TensorCoreImplementation,
    norm_kernel_spec,
)
from roofline.records.seal_records import CostTerms

KERNEL = KERNELS / "rmsnorm_matmul.cu"


class FusedRmsNormMatmul(TensorCoreImplementation):
    """One kernel: x is multiplied by g on its way, or W by it, and the sums by the norm's factor last. Many rows on
    Hopper take two: the norm's, which writes normalised x, and the product's."""

    name, fused = "fused", True
    norm: RmsNormKernel | None = None  # by a kernel before the product's
    sources = tuple(sorted(list_kernel_files(KERNEL).union(list_kernel_files(RMS_NORM), hopper_gemm.SOURCES)))

    @classmethod
    def unsupported(cls, device, case) -> str | None:
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        if device.is_hopper and hopper_gemm.kernel_takes_norm(batch) and hidden > hopper_gemm.MOST_NORMED:
            return f"hidden {hidden}; on Hopper it takes {hopper_gemm.MOST_NORMED} at most of up to {hopper_gemm.FEW_ROWS} rows"
        return super().unsupported(device, case)

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        room, self.norm_before = device.properties["MaxSharedMemoryPerBlockOptin"], False
        if device.is_hopper:
            self.norm_before = not hopper_gemm.kernel_takes_norm(batch)
            work = hopper_gemm.GemmTask(batch, hidden, hidden, norm=not self.norm_before, alone=True)
            self.division = hopper_gemm.plan_gemm(work, device.multiprocessors, room)
        else:
            of_all = device.properties["MaxSharedMemoryPerMultiprocessor"]
            self.division = plan_mma(batch, hidden, hidden, device.multiprocessors, room, of_all)

    def kernels(self) -> list[tuple]:
        dtype, norm = self.case.dtype, [norm_kernel_spec(self.case.dtype)] if self.norm_before else []
        if self.device.is_hopper:
            return [*norm, self.division.source(dtype, hopper_gemm.EPILOGUE_NONE)]
        return [*norm, (KERNEL, "rmsnorm_matmul", self.division.defines(dtype))]

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        prepare = self._prepare_hopper if self.device.is_hopper else self._prepare
        prepare(self.device, self.case.shape["batch"], self.case.shape["hidden"])

    def _prepare_hopper(self, device, batch: int, hidden: int) -> None:
        """The kernels, and the product's arguments for each copy."""
        g = self.shared["g"]
        product = hopper_gemm.HopperGemm(device, self.case.dtype, self.division, hopper_gemm.EPILOGUE_NONE)
        self.kernel, sizes = product.kernel, (1, 1, 1, 0, NORM_EPS)  # neither heads nor sums of squares
        if self.norm_before:
            self.norm = RmsNormKernel(device, self.case.dtype, self.copies[0]["x"], g, self.division.padded_batch)
        self.arguments = []
        for copy in self.copies:
            x, norm = (self.norm.result, {}) if self.norm else (copy["x"], {"norm": g})
            self.arguments.append(product.arguments(batch, x, copy["w"], sizes, {"y": copy["y"], **norm}))

    def _prepare(self, device, batch: int, hidden: int) -> None:
        import numpy

        self.kernel = device.load_kernel(*self.kernels()[-1])
        # All that the card has: the limit is the kernel's, which other cases launch with more or less.
        self.kernel.max_dynamic_shared_size_bytes = device.properties["MaxSharedMemoryPerBlockOptin"] - STATIC_BYTES
        workspace = device.xp.empty(self.division.workspace_floats, device.xp.float32)
        arrived = device.xp.zeros(self.division.sets, device.xp.uint32)
        sizes = (*map(numpy.int32, (batch, hidden, hidden)), numpy.float32(NORM_EPS))
        self.arguments = [
            (copy["x"], copy["w"], self.shared["g"], copy["y"], workspace, arrived, *sizes) for copy in self.copies
        ]

    def launcher(self, overlap: bool, fetch_early: bool) -> Callable[[int], None]:
        """A function that launches the operator on the copy of a number. With `overlap` it may begin before the kernel
        in front of it ends; with `fetch_early` a product's kernel may before its norm's does, and fetch W."""
        division = self.division
        over = fetch_early if self.norm else overlap
        multiply = self.device.make_launcher(
            self.kernel, division.grid, (division.threads,), division.shared_bytes, overlap=over
        )
        if self.norm is None:
            return lambda place: multiply(self.arguments[place])
        normalise = self.norm.launcher(overlap)

        def both(place: int) -> None:
            normalise(self.copies[place]["x"])
            multiply(self.arguments[place])

        return both

    def step(self, scope: str | None):
        # A launch that overlaps takes the host longer than the card gains.
        apply, copies = self.launcher(overlap=False, fetch_early=False), self.copies

        def step(index: int):
            place = index % len(copies)
            apply(place)
            return copies[place]["y"]

        return step

    def executed_flops(self, scope: str | None) -> ExecutedFlops:
        division = self.division
        why = f"x padded to {division.rows} rows" + (", and its squares" if division.squares_on_tensor_cores else "")
        return ExecutedFlops({"tensor": division.tensor_flops(self.case.shape["hidden"])}, why)

    def plan(self) -> dict:
        division = self.division
        names = ("kernel", "rows", "columns", "splits", "stages", "blocks", "shared_bytes")
        return {name: getattr(division, name) for name in names} | {"norm_before": self.norm_before}

    def costs(self, scope: str | None) -> CostTerms:
        calls = launch_terms(self.division.arguments)
        if self.norm_before:
            calls = {name: times + launch_terms(NORM_ARGUMENTS)[name] for name, times in calls.items()}
        return self._costs(calls, {"fused_start_s": 1.0, "empty_kernel_s": 1.0}, "norm_kernel_s")

    def level_bytes(self, scope: str | None) -> dict[str, int]:
        """What blocks stage in shared memory and read from there, and what of it they fetch through the L2."""
        division, hidden = self.division, self.case.shape["hidden"]
        staged, fetched = division.staged_bytes(hidden), division.fetched_bytes(hidden)
        return {"shared": division.blocks * staged, "l2": division.blocks * fetched}

    def _costs(self, calls: dict[str, float], start: dict[str, float], norm: str) -> CostTerms:
        """The shared memory of a multiprocessor sets the time of many rows. Sums go from block to block. `norm`: the
        constant of a kernel before the product's."""
        division = self.division
        blocks = math.ceil(division.blocks / self.device.multiprocessors)
        through_shared = float(blocks * division.staged_bytes(self.case.shape["hidden"]))
        through_l2 = float(self.level_bytes(None)["l2"])
        return CostTerms(
            calls=calls,
            start=start | ({norm: 1.0} if self.norm_before else {}),
            extra={"exchange_s_per_byte": float(division.sums_bytes)},
            levels={"shared": {"shared_memory_s_per_byte": through_shared}, "l2": {"l2_s_per_byte": through_l2}},
            share="stream_share",
        )


class FusedRmsNormMatmulGraph(GraphImplementation, FusedRmsNormMatmul):
    """Where the card can, an application also begins while the one before it ends: it fetches W at once, and x when
    that one is done."""

    name = "fused_graph"
    scopes = (WAITING, OVERLAPPED)

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        if not device.supports_overlap:
            self.scopes = (WAITING,)

    def captured(self, scope: str | None):
        apply = self.launcher(overlap=scope == OVERLAPPED, fetch_early=True)
        return self.device.capture_graph(lambda: [apply(place) for place in self.turns])

    def costs(self, scope: str | None) -> CostTerms:
        start = "overlapped_start_s" if scope == OVERLAPPED else "fused_start_s"
        return self._costs({"graph_launch_s": 1 / self.per_call}, {start: 1.0}, "norm_before_s")
