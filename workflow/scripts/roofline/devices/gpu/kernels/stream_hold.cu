// Holds a stream, so that the host can queue work behind it without launch gaps.

#include "timers.cuh"

// One thread waits until the host writes *release. After timeout_ns it gives up and sets *timed_out: a host that queues
// too slowly must not hang the device.
extern "C" __global__ void block_stream(const volatile unsigned int* release, volatile unsigned int* timed_out,
                                        unsigned long long timeout_ns) {
    const unsigned long long start = now_ns();
    while (*release == 0) {
        if (now_ns() - start > timeout_ns) {
            *timed_out = 1;
            return;
        }
    }
}
