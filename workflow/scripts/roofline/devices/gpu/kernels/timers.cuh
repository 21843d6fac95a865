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

// Reads both clocks until they were read within 100 ns, at most 100 times: where other warps keep the scheduler busy,
// much may pass between two instructions of this warp.
__device__ __forceinline__ Moment read_clocks() {
    const unsigned long long close_ns = 100;
    Moment moment = {};
    for (int attempt = 0; attempt < 100; ++attempt) {
        const unsigned long long start_ns = now_ns();
        moment.cycle = clock64();
        moment.ns = now_ns();
        if (moment.ns - start_ns <= close_ns) break;
    }
    return moment;
}

// Measures the clock of a multiprocessor over a kernel: the kernel's first thread reports cycles and nanoseconds.
struct Stopwatch {
    Moment start;
    static __device__ __forceinline__ bool is_first_thread() { return blockIdx.x == 0 && threadIdx.x == 0; }
    __device__ __forceinline__ Stopwatch() : start(is_first_thread() ? read_clocks() : Moment{}) {}
    __device__ __forceinline__ void report(unsigned long long* cycles_and_ns) const {
        if (is_first_thread()) {
            const Moment end = read_clocks();
            cycles_and_ns[0] = end.cycle - start.cycle;
            cycles_and_ns[1] = end.ns - start.ns;
        }
    }
};
