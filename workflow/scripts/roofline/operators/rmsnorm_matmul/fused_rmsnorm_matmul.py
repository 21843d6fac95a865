"""RMSNorm + matmul by kernels of ours: an application each, or many in a CUDA graph."""

import math
from collections.abc import Callable
from typing import ClassVar

from roofline.core.levels import L2_SHARED_BY_NEIGHBOURS
from roofline.core.terms import Array, RegimeLevel
from roofline.devices.base import CudaDevice, Step
from roofline.operators.base import Case, ExecutedFlops, Operator
from roofline.operators.constants import launch_terms
from roofline.operators.rmsnorm_matmul import hopper_gemm, unfused
from roofline.operators.rmsnorm_matmul.hopper_gemm import HopperGemmPlan
from roofline.operators.rmsnorm_matmul.mma_plan import STATIC_BYTES, MmaPlan, plan_mma
from roofline.records.seal_records import CostTerms

KERNEL = unfused.KERNELS / "rmsnorm_matmul.cu"


class FusedRmsNormMatmul(unfused.TensorCoreImplementation):
    """Norm and product by one kernel, which multiplies x or W by g on its way, and the sums by the norm's factor last.

    Many rows on Hopper take two kernels: the norm's, which writes normalised x, and the product's.
    """

    name, fused = "fused", True
    level_ceilings: ClassVar[dict[RegimeLevel, str]] = {"l2": L2_SHARED_BY_NEIGHBOURS}  # of rows of tiles in one wave
    norm: unfused.RmsNormKernel | None = None  # the kernel before the product's
    launch_plan: HopperGemmPlan | MmaPlan

    @classmethod
    def unsupported(cls, device: CudaDevice, case: Case) -> str | None:  # type: ignore[override]  # its kind is gpu
        batch, hidden, limit = case.shape["batch"], case.shape["hidden"], hopper_gemm.MOST_NORMED
        if hidden % hopper_gemm.SLICE_DEPTH:
            return f"hidden {hidden}, which is not a multiple of {hopper_gemm.SLICE_DEPTH}"
        if device.is_hopper and hopper_gemm.kernel_takes_norm(batch) and hidden > limit:
            return f"hidden {hidden}; on Hopper it takes {limit} at most of up to {hopper_gemm.FEW_ROWS} rows"
        return super().unsupported(device, case)

    def __init__(self, operator: Operator, device: CudaDevice, case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        self.has_norm_kernel = device.is_hopper and not hopper_gemm.kernel_takes_norm(batch)
        if device.is_hopper:
            task = hopper_gemm.GemmTask(batch, hidden, hidden, norm=not self.has_norm_kernel, splits_rows=True)
            self.launch_plan = hopper_gemm.plan_gemm(task, device.limits)
        else:
            self.launch_plan = plan_mma(batch, hidden, hidden, device.limits)

    def kernels(self) -> list[tuple]:
        dtype, plan = self.case.dtype, self.launch_plan
        if isinstance(plan, MmaPlan):
            return [(KERNEL, "rmsnorm_matmul", plan.defines(dtype))]
        norm_specs = [unfused.norm_kernel_spec(dtype)] if self.has_norm_kernel else []
        return [*norm_specs, plan.kernel_spec(dtype, hopper_gemm.PLAIN)]

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        if isinstance(self.launch_plan, MmaPlan):
            self._prepare_mma(self.launch_plan)
        else:
            self._prepare_hopper(self.launch_plan)

    def _prepare_hopper(self, plan: HopperGemmPlan) -> None:
        """Load the kernels, and list the arguments of the product's for each copy."""
        g, dtype, batch = self.shared["g"], self.case.dtype, self.case.shape["batch"]
        gemm = hopper_gemm.HopperGemm(self.device, dtype, plan, hopper_gemm.PLAIN)
        self.kernel = gemm.kernel
        if self.has_norm_kernel:
            self.norm = unfused.RmsNormKernel(self.device, dtype, self.copies[0]["x"], g, plan.padded_batch)
        self.arguments = []
        for copy in self.copies:
            tensors = {"y": copy["y"]}
            if self.norm:
                x = self.norm.result
            else:
                x, tensors["norm"] = copy["x"], g
            self.arguments.append(gemm.make_arguments(batch, x, copy["w"], (unfused.NORM_EPS,), tensors))

    def _prepare_mma(self, plan: MmaPlan) -> None:
        """Load the kernel, and list its arguments for each copy."""
        import numpy

        device, batch, hidden = self.device, self.case.shape["batch"], self.case.shape["hidden"]
        self.kernel = device.load_kernel(*self.kernels()[-1])
        # All that the card has: the limit is the kernel's, which other cases launch with more or less.
        self.kernel.max_dynamic_shared_size_bytes = device.limits.shared_per_block - STATIC_BYTES
        workspace = device.xp.empty(plan.workspace_floats, device.xp.float32)
        arrived = device.xp.zeros(plan.split_groups, device.xp.uint32)
        sizes = (numpy.int32(batch), numpy.int32(hidden), numpy.int32(hidden), numpy.float32(unfused.NORM_EPS))
        fixed = (workspace, arrived, *sizes)
        self.arguments = [(copy["x"], copy["w"], self.shared["g"], copy["y"], *fixed) for copy in self.copies]

    def make_launcher(self, overlap: bool, fetch_early: bool) -> Callable[[int], None]:
        """Return a function that applies the operator to the copy of an index.

        With `overlap` it may begin before the kernel in front of it ends. Where the norm has a kernel, `fetch_early`
        lets the product's begin before that one ends, and fetch W.
        """
        plan = self.launch_plan
        may_overlap = fetch_early if self.norm else overlap
        multiply = self.device.make_launcher(self.kernel, plan.grid, (plan.threads,), plan.shared_bytes, may_overlap)
        if self.norm is None:
            return lambda index: multiply(self.arguments[index])
        normalise = self.norm.make_launcher(overlap)

        def launch_both(index: int) -> None:
            normalise(self.copies[index]["x"])
            multiply(self.arguments[index])

        return launch_both

    def step(self, scope: str | None) -> Callable[[int], Array]:
        # A launch that overlaps takes the host longer than the card gains.
        apply, copies = self.make_launcher(overlap=False, fetch_early=False), self.copies

        def step(index: int) -> Array:
            copy_index = index % len(copies)
            apply(copy_index)
            return copies[copy_index]["y"]

        return step

    def executed_flops(self, scope: str | None) -> ExecutedFlops:
        plan = self.launch_plan
        why = f"x padded to {plan.rows} rows" + (", and its squares" if plan.squares_on_tensor_cores else "")
        return ExecutedFlops({"tensor": plan.tensor_flops(self.case.shape["hidden"])}, why)

    def plan(self) -> dict:
        """Return how the work is divided, and whether the norm has a kernel before the product's."""
        names = ("kernel", "rows", "columns", "splits", "stages", "blocks", "shared_bytes")
        return {name: getattr(self.launch_plan, name) for name in names} | {"norm_before": self.has_norm_kernel}

    def costs(self, scope: str | None) -> CostTerms:
        calls = launch_terms(self.launch_plan.arguments)
        if self.has_norm_kernel:
            norm_calls = launch_terms(unfused.NORM_ARGUMENTS)
            calls = {name: count + norm_calls[name] for name, count in calls.items()}
        return self._cost_terms(calls, {"fused_start_s": 1.0, "empty_kernel_s": 1.0}, "norm_kernel_s")

    def level_bytes(self, scope: str | None) -> dict[RegimeLevel, int]:
        """Return the bytes that all blocks move through shared memory, and those that they fetch through the L2."""
        plan, hidden = self.launch_plan, self.case.shape["hidden"]
        staged, fetched = plan.staged_bytes(hidden), plan.fetched_bytes(hidden)
        return {"shared": plan.blocks * staged, "l2": plan.blocks * fetched}

    def _cost_terms(self, calls: dict[str, float], start: dict[str, float], norm_constant: str) -> CostTerms:
        """Return the terms of a step, with the constant of a kernel before the product's where there is one.

        A multiprocessor takes its part of W and x through its shared memory, which the memory's own time hides in part.
        Sums go from block to block.
        """
        plan = self.launch_plan
        blocks_per_sm = math.ceil(plan.blocks / self.device.multiprocessors)
        through_shared = float(blocks_per_sm * plan.staged_bytes(self.case.shape["hidden"]))
        through_l2 = float(self.level_bytes(None)["l2"])
        return CostTerms(
            calls=calls,
            start=start | ({norm_constant: 1.0} if self.has_norm_kernel else {}),
            extra={"exchange_s_per_byte": float(plan.exchanged_bytes)},
            waits={"shared_memory_s_per_byte": through_shared},
            levels={"shared": {"shared_memory_s_per_byte": through_shared}, "l2": {"l2_s_per_byte": through_l2}},
            share="stream_share",
        )


class FusedRmsNormMatmulGraph(unfused.GraphImplementation, FusedRmsNormMatmul):
    """Many applications in one graph. Where the card supports it, each begins while the one before it ends: it fetches
    W at once, and x when that one is done."""

    name = "fused_graph"
    scopes = (unfused.WAITING, unfused.OVERLAPPED)

    @classmethod
    def scopes_on(cls, device: CudaDevice) -> tuple[str | None, ...]:  # type: ignore[override]  # its kind is gpu
        return cls.scopes if device.supports_overlap else (unfused.WAITING,)

    def step(self, scope: str | None) -> Step:
        return self.replay_applications(self.make_launcher(overlap=scope == unfused.OVERLAPPED, fetch_early=True))

    def costs(self, scope: str | None) -> CostTerms:
        start = "overlapped_start_s" if scope == unfused.OVERLAPPED else "fused_start_s"
        return self._cost_terms({"graph_launch_s": 1 / self.per_call}, {start: 1.0}, "norm_before_s")
