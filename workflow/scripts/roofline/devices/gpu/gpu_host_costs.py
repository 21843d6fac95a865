"""What calls cost the host of a GPU: a launch of a kernel or a graph, a matrix product, operations of CuPy.

All work on next to nothing, so that the caller never waits for the device. A step includes an event.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy

from roofline.core.dtypes import COMMON_DTYPE
from roofline.devices.base import HostCostBenchmark, Step

if TYPE_CHECKING:
    import cupy

    from roofline.devices.gpu.gpu_device import GpuDevice

FEW_ARGUMENTS, MANY_ARGUMENTS = 2, 12  # arguments of a kernel
OPERATIONS_PER_STEP = 8  # operations of CuPy in array_operations_step


def host_cost_benchmarks(device: "GpuDevice") -> Iterator[HostCostBenchmark]:
    """Yield a benchmark for each host cost of CUDA and CuPy: launches with few and many arguments, an empty kernel by
    the device's clock, a graph, a small matrix product, and operations on small arrays."""
    arrays, size = [device.empty((8,), COMMON_DTYPE) for _ in range(MANY_ARGUMENTS // 2)], numpy.int32(8)
    arguments = {}
    for count in (FEW_ARGUMENTS, MANY_ARGUMENTS):  # half of them arrays, half of them numbers
        arguments[count] = (*arrays[: count // 2], *[size] * (count // 2))
    kernel_names = {FEW_ARGUMENTS: "of_few", MANY_ARGUMENTS: "of_many"}
    kernels = {count: device.load_kernel("empty_kernels.cu", name) for count, name in kernel_names.items()}
    for count, kernel in kernels.items():

        def launch(index: int, kernel: "cupy.RawKernel" = kernel, count: int = count) -> None:
            kernel((1,), (32,), arguments[count], shared_mem=0)

        yield HostCostBenchmark("kernel_launch_s", count, 1, launch)
    yield HostCostBenchmark("empty_kernel_s", 1, 1, launch, queued=True)  # the kernel of many arguments
    graph = device.capture_graph(lambda: kernels[MANY_ARGUMENTS]((1,), (32,), arguments[MANY_ARGUMENTS]))
    yield HostCostBenchmark("graph_launch_s", 1, 1, lambda index: graph.launch(device.stream))
    matrix, weights, product = (device.normal((64, 64), COMMON_DTYPE, seed) for seed in range(3))
    yield HostCostBenchmark("product_call_s", 1, 1, lambda index: device.xp.matmul(matrix, weights, out=product))
    yield HostCostBenchmark("array_operation_s", 1, OPERATIONS_PER_STEP, array_operations_step(device))


def array_operations_step(device: "GpuDevice") -> Step:
    """Return a step of OPERATIONS_PER_STEP operations of CuPy, those of attention: the query is scaled and multiplied
    by stacked matrices, its softmax taken, and multiplied again."""
    scale = device.normal((1,), COMMON_DTYPE, 1)
    keys, query = device.normal((2, 2, 8, 16), COMMON_DTYPE, 2), device.normal((2, 2, 16, 1), COMMON_DTYPE, 3)

    def step(index: int) -> None:
        scores = device.xp.matmul(keys, query * scale)
        weights = device.xp.subtract(scores, scores.max(axis=-2, keepdims=True))
        device.xp.exp(weights, out=weights)
        weights /= weights.sum(axis=-2, keepdims=True)
        device.xp.matmul(weights.swapaxes(-1, -2), keys)

    return step
