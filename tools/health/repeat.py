"""One GEMM repeated on one GPU, in a separate process: every result must have the same bits.

    python tools/health/repeat.py DEVICE DTYPE SIZE SECONDS

Results are kept in copies over most of the free memory. Each is compared on the device with the first before it is
overwritten, so wrong arithmetic and memory that loses bits are both found. Prints one line of JSON.
"""

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))

from roofline.api import open_device, workloads_module

COVERED = 0.8  # of the free memory: libraries that are loaded later need the rest
AT_ONCE = 64  # GEMMs queued before the host waits: 12 ms of an H200


def repeat_product(device: Any, dtype: str, size: int, seconds: float) -> dict:
    """Repeat a GEMM of `size` on an open GPU (a CudaDevice) for some seconds.

    Return how often, over how much memory, and each error that was seen, as it is printed.
    """
    product = workloads_module(device).reference_workload(device, dtype, size, seed=21)
    fault = None
    try:
        product.run_and_check()
    except ArithmeticError as error:
        fault = str(error)
    result = product.result.reshape(-1).view("uint32")
    first = result.copy()
    places = max(1, int(COVERED * device.identity.memory_free_bytes) // first.nbytes)
    copies, wrong = device.xp.empty((places, first.size), "uint32"), device.xp.zeros(places, "uint64")
    started, done = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for number in range(done, done + AT_ONCE):
            place = number % places
            if number >= places:
                device.count_differences(copies[place], first, wrong[place : place + 1])
            product.step(number)
            device.copy(result, copies[place])
        done += AT_ONCE
        device.synchronize()
    used = min(done, places)
    for place in range(used):
        device.count_differences(copies[place], first, wrong[place : place + 1])
    return {
        "dtype": dtype,
        "products": done,
        "memory_bytes": used * first.nbytes,
        "fault": fault,  # of the first result against float64
        "wrong_words": int(device.to_host(wrong).sum()),
        "memory_errors": device.read_memory_errors(),
    }


if __name__ == "__main__":
    name, dtype, size, seconds = sys.argv[1:]
    try:
        with open_device(name) as device:
            output = repeat_product(device, dtype, int(size), float(seconds))
    except Exception as error:
        traceback.print_exc()
        output = {"why": (str(error).splitlines() or [""])[0] or type(error).__name__, "error": type(error).__name__}
    print(json.dumps(output))
