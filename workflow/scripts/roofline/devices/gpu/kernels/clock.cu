// The clock of every multiprocessor over a block of work, without a thread beside it that would take a slot from the
// work: each one's cycles and the device's nanoseconds, read by this kernel before the block and after it. The counter
// of cycles runs on from kernel to kernel.

#include "timers.cuh"

extern "C" __global__ void mark_clocks(unsigned long long* marks) {
    unsigned int multiprocessor;
    asm volatile("mov.u32 %0, %smid;" : "=r"(multiprocessor));
    if (multiprocessor < gridDim.x) {
        const Moment now = this_moment();
        marks[2 * multiprocessor] = now.cycle;
        marks[2 * multiprocessor + 1] = now.ns;
    }
}
