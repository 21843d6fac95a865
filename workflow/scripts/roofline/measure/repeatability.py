"""One product computed again and again: the same kernel on the same operands must give the same bits every time.

What differs is silent corruption, by the arithmetic or by the memory that kept the result meanwhile: results are kept
in copies over most of the card's memory, and each is compared with the first on the device before the next one takes
its place.
"""

import time

from roofline.devices.base import Device
from roofline.operators.gemm import products_on

COVERED = 0.8  # of the free memory: what else the process needs, such as libraries that are loaded later, has the rest
CORRECTED = "ecc_corrected_errors"
AT_ONCE = 64  # products queued before the host waits: 12 ms of an H200's


def repeat(device: Device, dtype: str, size: int, seconds: float) -> dict:
    """The fields of a RepeatabilityRecord that follow from so many seconds of products. Raises Unsupported."""
    product = products_on(device).reference_product(device, dtype, size, seed=21)
    fault, check = None, None
    try:
        check = product.check()
    except ArithmeticError as error:
        fault = str(error)
    result = product.result.reshape(-1).view("uint32")
    first = result.copy()
    places = max(1, int(COVERED * device.identity.memory_free_bytes) // first.nbytes)
    corrected = device.memory_errors().get(CORRECTED)
    copies, wrong = device.xp.empty((places, first.size), "uint32"), device.xp.zeros(places, "uint64")
    begun, done = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
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
    found, errors = device.to_host(wrong), device.memory_errors()
    return {
        "product": f"{size} x {size} x {size}, {product.product.library}",
        "first_error": check and check.error,
        "tolerance": check and check.tolerance,
        "products": done,
        "seconds": round(time.monotonic() - begun, 3),
        "memory_bytes": used * first.nbytes,
        "wrong_words": int(found.sum()),
        "wrong_places": int((found > 0).sum()),
        "fault": fault,
        "corrected_errors": None if corrected is None else errors[CORRECTED] - corrected,
        "memory_errors": errors,
    }
