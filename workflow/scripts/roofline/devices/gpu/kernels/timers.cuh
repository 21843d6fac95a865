// The device's nanosecond timer and the multiprocessor's clock, read together.

#pragma once

__device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

struct Moment {
    unsigned long long ns;
    long long cycle;
};

// Both within a moment: where other warps keep the scheduler busy, much may pass between two instructions of this one.
__device__ __forceinline__ Moment this_moment() {
    const unsigned long long near_ns = 100;
    Moment moment = {};
    for (int attempt = 0; attempt < 100; ++attempt) {
        const unsigned long long before = now_ns();
        moment.cycle = clock64();
        moment.ns = now_ns();
        if (moment.ns - before <= near_ns) {
            break;
        }
    }
    return moment;
}

// The clock of a multiprocessor over a kernel, told by the kernel's first thread as cycles and nanoseconds.
struct Stopwatch {
    Moment start;
    static __device__ __forceinline__ bool is_first() { return blockIdx.x == 0 && threadIdx.x == 0; }
    __device__ __forceinline__ Stopwatch() : start(is_first() ? this_moment() : Moment{}) {}
    __device__ __forceinline__ void tell(unsigned long long* cycles_and_ns) const {
        if (is_first()) {
            const Moment end = this_moment();
            cycles_and_ns[0] = end.cycle - start.cycle;
            cycles_and_ns[1] = end.ns - start.ns;
        }
    }
};
