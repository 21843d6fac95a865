// The clock of every multiprocessor over a timed block of launches, without a thread that would take a slot from them:
// this kernel runs before and after it, and the host takes the differences. The cycle counter runs on from kernel to
// kernel.

#include "timers.cuh"

// Writes the cycle counter and the nanosecond timer of multiprocessor i to marks[2 i] and marks[2 i + 1]. One thread
// per block, as many blocks as multiprocessors; each block marks the multiprocessor on which it runs.
extern "C" __global__ void mark_clocks(unsigned long long* marks) {
    unsigned int multiprocessor;
    asm volatile("mov.u32 %0, %smid;" : "=r"(multiprocessor));
    if (multiprocessor < gridDim.x) {
        const Moment now = read_clocks();
        marks[2 * multiprocessor] = now.cycle;
        marks[2 * multiprocessor + 1] = now.ns;
    }
}
