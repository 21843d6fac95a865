// out = x / sqrt(mean(x^2) + eps) * g of each row, summed in fp32. Rows are few and short: what counts is latency.
// Compiled for one dtype at a time: fp16, or with BF16 bf16.

#ifndef BF16
#define BF16 0
#endif

#include "../../gemm/kernels/half_types.cuh"

const int KEPT = 2;  // vectors of 16 bytes that a thread keeps of its row; what is beyond it reads twice

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2) value += __shfl_xor_sync(0xffffffff, value, apart);
    return value;
}

__device__ __forceinline__ u32 scaled(u32 pair, u32 g, float factor) {
    return packed(lower(pair) * factor * lower(g), upper(pair) * factor * upper(g));
}
__device__ __forceinline__ uint4 scaled(uint4 v, uint4 g, float factor) {
    return make_uint4(scaled(v.x, g.x, factor), scaled(v.y, g.y, factor), scaled(v.z, g.z, factor),
                      scaled(v.w, g.w, factor));
}

// x and out [rows, hidden], g [hidden], hidden a multiple of 8. A block of whole warps for each row.
extern "C" __global__ void __launch_bounds__(1024)
    rms_norm(const uint4* x, const uint4* __restrict__ g, uint4* out, int hidden, float eps) {
    __shared__ float parts[32];
    let_next_begin();
    const int vectors = hidden / 8, threads = blockDim.x, lane = threadIdx.x % 32;
    x += (long long)blockIdx.x * vectors;
    out += (long long)blockIdx.x * vectors;
    uint4 row[KEPT], of_g[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; ++i) {
        const int at = threadIdx.x + i * threads;
        of_g[i] = at < vectors ? g[at] : make_uint4(0, 0, 0, 0);
    }
    wait_for_kernel_before();  // it may have written x; g is a parameter
#pragma unroll
    for (int i = 0; i < KEPT; ++i) {
        const int at = threadIdx.x + i * threads;
        row[i] = at < vectors ? load_global(x + at) : make_uint4(0, 0, 0, 0);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < KEPT; ++i) squares += square(row[i]);
    for (int at = threadIdx.x + KEPT * threads; at < vectors; at += threads) squares += square(load_global(x + at));
    squares = sum_of_warp(squares);
    if (lane == 0) parts[threadIdx.x / 32] = squares;
    __syncthreads();
    squares = sum_of_warp(lane < threads / 32 ? parts[lane] : 0);
    const float factor = rsqrtf(squares / hidden + eps);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) {
        const int at = threadIdx.x + i * threads;
        if (at < vectors) out[at] = scaled(row[i], of_g[i], factor);
    }
    for (int at = threadIdx.x + KEPT * threads; at < vectors; at += threads)
        out[at] = scaled(load_global(x + at), g[at], factor);
}
