"""A GPU under load: `python loaded.py DEVICE SECONDS` prints a line when it is ready. For each line that it then reads
it multiplies fp16 matrices for so long, and prints the sustained TFLOPS."""

import sys

from roofline.core.statistics import median
from roofline.devices import discovery
from roofline.measure.sustained import sustain
from roofline.operators.gemm.operator import products_on
from roofline.run.run_lock import end_with_run

SIZE, SEED, TRIALS = 4096, 1, 5


def main(name: str, seconds: float) -> None:
    end_with_run()
    device = discovery.open_device(name)
    gemm = products_on(device).reference_product(device, "fp16", SIZE, SEED)
    gemm.check()
    step_s = median(device.step_times(gemm.step, TRIALS))
    print("ready", flush=True)
    for _ in sys.stdin:
        load = sustain(device, gemm, seconds, step_s)
        gemm.compare()
        print(load.tflops, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
