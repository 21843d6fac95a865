// The clock of a multiprocessor, from inside: its cycles over a stretch of the device's nanosecond timer. Run by one
// thread beside a block of work it tells the clock under that load, where a driver's reading is tens of ms behind.

#include "timers.cuh"

extern "C" __global__ void count_cycles(unsigned long long stretch_ns, unsigned long long* cycles_and_ns) {
    // Start at a tick of the timer, which on some cards moves once a microsecond.
    unsigned long long start_ns = now_ns();
    const unsigned long long first_ns = start_ns;
    while (start_ns == first_ns) {
        start_ns = now_ns();
    }
    const long long start = clock64();
    unsigned long long end_ns = start_ns;
    while (end_ns - start_ns < stretch_ns) {
        end_ns = now_ns();
    }
    cycles_and_ns[0] = clock64() - start;
    cycles_and_ns[1] = end_ns - start_ns;
}
