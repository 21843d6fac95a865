"""A GPU under load: `python load_server.py DEVICE` prints a line when it is ready. For each line that it then reads it
multiplies fp16 matrices for three seconds, and prints the sustained TFLOPS."""

import sys

from roofline.core.statistics import median
from roofline.devices import discovery
from roofline.measure.sustained import once
from roofline.operators.gemm.operator import products_on
from roofline.run.run_lock import end_with_run

SECONDS, SIZE, SEED, TRIALS = 3.0, 4096, 1, 5


def main(name: str) -> None:
    end_with_run()
    device = discovery.open_device(name)
    gemm = products_on(device).reference_product(device, "fp16", SIZE, SEED)
    gemm.check()
    step_s = median(device.step_times(gemm.step, TRIALS))
    print("ready", flush=True)
    for _ in sys.stdin:
        load = once(device, gemm, SECONDS, step_s)  # not repeated: the other cards would be idle then
        gemm.compare()
        print(load.tflops, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
