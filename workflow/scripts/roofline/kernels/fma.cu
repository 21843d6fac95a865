// The peak of the CUDA cores: multiply-adds on registers alone, with nothing to wait for.
//
// Each thread turns PAIRS points round the origin, x -= k y; y += k x, two multiply-adds a step. Turning neither grows
// nor shrinks the values, so the operands keep changing as in real work, and after a few steps the result can be
// compared with float64 arithmetic. PAIRS independent chains hide the latency of one.

#include <cuda_fp16.h>

#define PAIRS 8
#define STEPS_A_ROUND 16

__device__ unsigned long long now_ns() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ __half2 multiply_add(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }

__device__ __forceinline__ float negative(float a) { return -a; }
__device__ __forceinline__ double negative(double a) { return -a; }
__device__ __forceinline__ __half2 negative(__half2 a) { return __hneg2(a); }

// `points` and `turned` hold 2 PAIRS numbers a thread (x of every pair, then y), spaced by the number of threads; `turn`
// holds k.
template <typename Number>
__device__ void turn_points(const Number* points, Number* turned, const Number* turn, unsigned int rounds,
                            unsigned long long* cycles_and_ns) {
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    const Number k = turn[0], minus_k = negative(k);
    Number x[PAIRS], y[PAIRS];
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        x[pair] = points[pair * threads + thread];
        y[pair] = points[(PAIRS + pair) * threads + thread];
    }
    const unsigned long long start_ns = now_ns();
    const long long start = clock64();
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < STEPS_A_ROUND; ++step) {
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) {
                x[pair] = multiply_add(minus_k, y[pair], x[pair]);
            }
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) {
                y[pair] = multiply_add(k, x[pair], y[pair]);
            }
        }
    }
    if (thread == 0) {
        cycles_and_ns[0] = clock64() - start;
        cycles_and_ns[1] = now_ns() - start_ns;
    }
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        turned[pair * threads + thread] = x[pair];
        turned[(PAIRS + pair) * threads + thread] = y[pair];
    }
}

extern "C" __global__ void turn_fp32(const float* points, float* turned, const float* turn, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    turn_points(points, turned, turn, rounds, cycles_and_ns);
}

extern "C" __global__ void turn_fp64(const double* points, double* turned, const double* turn, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    turn_points(points, turned, turn, rounds, cycles_and_ns);
}

// Pairs of fp16 in one register: four multiply-adds a step.
extern "C" __global__ void turn_fp16(const __half2* points, __half2* turned, const __half2* turn, unsigned int rounds,
                                     unsigned long long* cycles_and_ns) {
    turn_points(points, turned, turn, rounds, cycles_and_ns);
}
