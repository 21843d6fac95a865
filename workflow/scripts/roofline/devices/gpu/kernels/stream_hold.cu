// Holds a stream until the host writes *release, so that work can be queued behind it without launch gaps.
// Gives up after timeout_ns and says so in *timed_out: a host that queues too slowly must not hang the device.

#include "timers.cuh"

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
