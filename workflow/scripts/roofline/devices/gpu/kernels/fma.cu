// The peak of the CUDA cores: multiply-adds on registers alone, with nothing to wait for.
//
// Each thread keeps NUMBERS numbers in independent chains, which hide the latency of one another. A step folds every
// number, x = k x + l with k a little above -1, and so very slowly draws the numbers together: the operands keep
// changing as in real work, and after a few steps the result can be compared with float64 arithmetic.
//
// STEPS_PER_ROUND steps are unrolled in the loop. How much code that is decides how well the instructions pair up; the
// host tries a few.

#include <cuda_fp16.h>

#include "timers.cuh"

#ifndef NUMBERS
#define NUMBERS 16
#endif
#ifndef STEPS_PER_ROUND
#define STEPS_PER_ROUND 16
#endif

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ __half2 multiply_add(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }

// Folds the numbers of all threads in `before` by rounds x STEPS_PER_ROUND steps and writes them to `after`. Both
// arrays are [NUMBERS, threads of the grid]. `factors` holds k and l. The clock over the loop goes to `cycles_and_ns`.
template <typename Number>
__device__ void fold(const Number* before, Number* after, const Number* factors, unsigned int rounds,
                     unsigned long long* cycles_and_ns) {
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    const Number k = factors[0], l = factors[1];
    Number x[NUMBERS];
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) x[i] = before[i * threads + thread];
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round)
#pragma unroll
        for (int step = 0; step < STEPS_PER_ROUND; ++step)
#pragma unroll
            for (int i = 0; i < NUMBERS; ++i) x[i] = multiply_add(x[i], k, l);
    watch.report(cycles_and_ns);
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) after[i * threads + thread] = x[i];
}

extern "C" __global__ void fold_fp32(const float* before, float* after, const float* factors, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    fold(before, after, factors, rounds, cycles_and_ns);
}

extern "C" __global__ void fold_fp64(const double* before, double* after, const double* factors, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    fold(before, after, factors, rounds, cycles_and_ns);
}

// Pairs of fp16 in one register.
extern "C" __global__ void fold_fp16(const __half2* before, __half2* after, const __half2* factors,
                                     unsigned int rounds, unsigned long long* cycles_and_ns) {
    fold(before, after, factors, rounds, cycles_and_ns);
}
