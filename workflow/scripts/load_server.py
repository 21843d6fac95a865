"""A GPU under load: `python load_server.py DEVICE` prints a line when it is ready.

For each line that it then reads it multiplies fp16 matrices for three seconds, and prints the sustained TFLOPS.
"""

import sys
from statistics import median

from roofline.devices import discovery
from roofline.devices.base import is_gpu
from roofline.measure.sustained import LoadedWork, measure_sustained_once
from roofline.operators.gemm.operator import workloads_module
from roofline.run.run_lock import end_with_run

LOAD_S, LOAD_DTYPE, GEMM_SIZE, SEED, TIMED_STEPS = 3.0, "fp16", 4096, 1, 5


def serve_loads(name: str) -> None:
    """Run a load on a device for each line of the standard input. Raises ArithmeticError for a wrong result."""
    end_with_run()
    device = discovery.open_device(name)
    assert is_gpu(device), "a CPU shares its power with no other"
    gemm = workloads_module(device).reference_workload(device, LOAD_DTYPE, GEMM_SIZE, SEED)
    gemm.run_and_check()
    step_s = median(device.time_steps(gemm.step, TIMED_STEPS))
    work = LoadedWork(gemm.step, gemm.flops, gemm.product)
    print("ready", flush=True)
    for _ in sys.stdin:
        # Neither repeated nor extended: the other cards would be idle then.
        load = measure_sustained_once(device, work, LOAD_S, step_s, most_extension_s=0.0)
        assert load is not None, "three seconds hold many chunks"
        gemm.compare()
        print(load.tflops, flush=True)


if __name__ == "__main__":
    serve_loads(sys.argv[1])
