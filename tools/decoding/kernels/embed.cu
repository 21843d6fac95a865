// The first kernel of a decode step: each sequence's row of the embedding table, which begins the stream, the same row
// scaled by the first norm's weights, and sums of its squares.
// Compiled for one dtype at a time: fp16, or with BF16 bf16. ROWS: rows of x that the next kernel is compiled for.

#include "../../../workflow/scripts/roofline/operators/gemm/kernels/half_types.cuh"

__device__ __forceinline__ u32 multiply_in_fp32(u32 x, u32 g) {
    return pack(lower(x) * lower(g), upper(x) * upper(g));
}

// table [tokens, hidden], g [hidden], stream and y [rows, hidden], squares [hidden / 128, ROWS]: one sum for each 128
// numbers of a row; hidden a multiple of 128. A block for each row; the threads take its vectors of 8 numbers in turn.
extern "C" __global__ void __launch_bounds__(512)
    embed(const int* tokens, const uint4* table, const uint4* g, uint4* stream, uint4* y, float* squares, int hidden) {
    const int vectors = hidden / 8, row = blockIdx.x;
    const unsigned int half_warp = 0xffffu << (threadIdx.x & 16);  // lanes of one sum: a row may end with half a warp
    let_next_begin();
    wait_for_kernel_before();
    for (int index = threadIdx.x; index < vectors; index += blockDim.x) {
        const uint4 x = table[(long long)tokens[row] * vectors + index], weights = g[index];
        stream[(long long)row * vectors + index] = x;
        y[(long long)row * vectors + index] =
            make_uint4(multiply_in_fp32(x.x, weights.x), multiply_in_fp32(x.y, weights.y),
                       multiply_in_fp32(x.z, weights.z), multiply_in_fp32(x.w, weights.w));
        float sum = sum_of_squares(x);
#pragma unroll
        for (int distance = 8; distance; distance /= 2) sum += __shfl_xor_sync(half_warp, sum, distance);
        if (index % 16 == 0) squares[index / 16 * ROWS + row] = sum;
    }
}
