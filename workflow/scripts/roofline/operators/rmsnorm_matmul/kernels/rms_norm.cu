// out = x / sqrt(mean(x^2) + eps) * g of each row, summed in fp32. Rows are few and short: what counts is latency.
// Compiled for one dtype at a time: fp16, or with BF16 bf16.

#ifndef BF16
#define BF16 0
#endif

#include "../../gemm/kernels/half_types.cuh"

const int VECTORS_IN_REGISTERS = 2;  // of 16 bytes, of a thread's; it reads the others twice

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

__device__ __forceinline__ u32 scale(u32 pair, u32 g, float factor) {
    return pack(lower(pair) * factor * lower(g), upper(pair) * factor * upper(g));
}
__device__ __forceinline__ uint4 scale(uint4 v, uint4 g, float factor) {
    return make_uint4(scale(v.x, g.x, factor), scale(v.y, g.y, factor), scale(v.z, g.z, factor),
                      scale(v.w, g.w, factor));
}

// x and out [rows, hidden], g [hidden], hidden a multiple of 8. A block for each row, of whole warps; a thread takes
// every n-th vector of 8 numbers, n being the threads.
extern "C" __global__ void __launch_bounds__(1024)
    rms_norm(const uint4* x, const uint4* __restrict__ g, uint4* out, int hidden, float eps) {
    __shared__ float warp_sums[32];
    let_next_begin();
    const int vectors = hidden / 8, threads = blockDim.x, lane = threadIdx.x % 32;
    x += (long long)blockIdx.x * vectors;
    out += (long long)blockIdx.x * vectors;
    uint4 x_vectors[VECTORS_IN_REGISTERS], g_vectors[VECTORS_IN_REGISTERS];
#pragma unroll
    for (int i = 0; i < VECTORS_IN_REGISTERS; ++i) {
        const int index = threadIdx.x + i * threads;
        g_vectors[i] = index < vectors ? g[index] : make_uint4(0, 0, 0, 0);
    }
    wait_for_kernel_before();  // it may have written x; g is a parameter
#pragma unroll
    for (int i = 0; i < VECTORS_IN_REGISTERS; ++i) {
        const int index = threadIdx.x + i * threads;
        x_vectors[i] = index < vectors ? load_past_l1(x + index) : make_uint4(0, 0, 0, 0);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < VECTORS_IN_REGISTERS; ++i) squares += sum_of_squares(x_vectors[i]);
    for (int index = threadIdx.x + VECTORS_IN_REGISTERS * threads; index < vectors; index += threads)
        squares += sum_of_squares(load_past_l1(x + index));
    squares = sum_of_warp(squares);
    if (lane == 0) warp_sums[threadIdx.x / 32] = squares;
    __syncthreads();
    squares = sum_of_warp(lane < threads / 32 ? warp_sums[lane] : 0);
    const float factor = rsqrtf(squares / hidden + eps);
#pragma unroll
    for (int i = 0; i < VECTORS_IN_REGISTERS; ++i) {
        const int index = threadIdx.x + i * threads;
        if (index < vectors) out[index] = scale(x_vectors[i], g_vectors[i], factor);
    }
    for (int index = threadIdx.x + VECTORS_IN_REGISTERS * threads; index < vectors; index += threads)
        out[index] = scale(load_past_l1(x + index), g[index], factor);
}
