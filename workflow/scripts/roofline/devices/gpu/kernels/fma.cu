// The peak of the CUDA cores: multiply-adds on registers alone, with nothing to wait for.
//
// Each thread keeps NUMBERS numbers in independent chains, which hide the latency of one another. Neither way of going
// on grows or shrinks them much, so the operands keep changing as in real work, and after a few steps the result can be
// compared with float64 arithmetic:
//     turn: pairs (x, y) turn round the origin, x -= k y; y += k x
//     fold: every number is folded over, x = k x + l with k a little above -1, and so very slowly drawn together
// A turn reads three different registers, which not every assignment of registers to banks serves at full rate; a fold
// reads one that differs.

#include <cuda_fp16.h>

#include "timers.cuh"

// How much code a round is decides how well the instructions pair up; the host tries a few.
#ifndef NUMBERS
#define NUMBERS 16
#endif
#ifndef STEPS_A_ROUND
#define STEPS_A_ROUND 16
#endif

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ __half2 multiply_add(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }

__device__ __forceinline__ float negative(float a) { return -a; }
__device__ __forceinline__ double negative(double a) { return -a; }
__device__ __forceinline__ __half2 negative(__half2 a) { return __hneg2(a); }

struct Turn {
    template <typename Number>
    static __device__ __forceinline__ void step(Number (&x)[NUMBERS], Number k, Number minus_k, Number l) {
#pragma unroll
        for (int i = 0; i < NUMBERS / 2; ++i) {
            x[i] = multiply_add(minus_k, x[NUMBERS / 2 + i], x[i]);
        }
#pragma unroll
        for (int i = 0; i < NUMBERS / 2; ++i) {
            x[NUMBERS / 2 + i] = multiply_add(k, x[i], x[NUMBERS / 2 + i]);
        }
    }
};

struct Fold {
    template <typename Number>
    static __device__ __forceinline__ void step(Number (&x)[NUMBERS], Number k, Number minus_k, Number l) {
#pragma unroll
        for (int i = 0; i < NUMBERS; ++i) {
            x[i] = multiply_add(x[i], k, l);
        }
    }
};

// `before` and `after` hold the numbers of all threads, a thread's spaced by the number of threads; `factors` holds k
// and l.
template <typename Way, typename Number>
__device__ void go_on(const Number* before, Number* after, const Number* factors, unsigned int rounds,
                      unsigned long long* cycles_and_ns) {
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    const Number k = factors[0], l = factors[1], minus_k = negative(k);
    Number x[NUMBERS];
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) {
        x[i] = before[i * threads + thread];
    }
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < STEPS_A_ROUND; ++step) {
            Way::step(x, k, minus_k, l);
        }
    }
    watch.tell(cycles_and_ns);
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) {
        after[i * threads + thread] = x[i];
    }
}

extern "C" __global__ void turn_fp32(const float* before, float* after, const float* factors, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    go_on<Turn>(before, after, factors, rounds, cycles_and_ns);
}

extern "C" __global__ void fold_fp32(const float* before, float* after, const float* factors, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    go_on<Fold>(before, after, factors, rounds, cycles_and_ns);
}

extern "C" __global__ void turn_fp64(const double* before, double* after, const double* factors, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    go_on<Turn>(before, after, factors, rounds, cycles_and_ns);
}

extern "C" __global__ void fold_fp64(const double* before, double* after, const double* factors, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    go_on<Fold>(before, after, factors, rounds, cycles_and_ns);
}

// Pairs of fp16 in one register.
extern "C" __global__ void turn_fp16(const __half2* before, __half2* after, const __half2* factors,
                                     unsigned int rounds, unsigned long long* cycles_and_ns) {
    go_on<Turn>(before, after, factors, rounds, cycles_and_ns);
}

extern "C" __global__ void fold_fp16(const __half2* before, __half2* after, const __half2* factors,
                                     unsigned int rounds, unsigned long long* cycles_and_ns) {
    go_on<Fold>(before, after, factors, rounds, cycles_and_ns);
}
