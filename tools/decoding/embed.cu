// The first of a decode step: each sequence's row of the embedding table, scaled for the first norm, and its squares.

#ifndef BF16
#define BF16 0
#define ROWS 8
#endif

#include "../../workflow/scripts/roofline/operators/gemm/kernels/half_types.cuh"

// table [tokens, hidden], g [hidden], stream and y [rows, hidden], squares [hidden / 128, ROWS]; hidden a multiple of
// 128. A block for each row, a thread for each 8 numbers in turn.
extern "C" __global__ void __launch_bounds__(512)
    embed(const int* tokens, const uint4* table, const uint4* g, uint4* stream, uint4* y, float* squares, int hidden) {
    const int vectors = hidden / 8, row = blockIdx.x;
    const unsigned int sixteen = 0xffffu << (threadIdx.x & 16);  // lanes of one sum: a row may end with half a warp
    let_next_begin();
    wait_for_kernel_before();
    for (int at = threadIdx.x; at < vectors; at += blockDim.x) {
        const uint4 x = table[(long long)tokens[row] * vectors + at], of_g = g[at];
        stream[(long long)row * vectors + at] = x;
        y[(long long)row * vectors + at] = make_uint4(
            packed(lower(x.x) * lower(of_g.x), upper(x.x) * upper(of_g.x)),
            packed(lower(x.y) * lower(of_g.y), upper(x.y) * upper(of_g.y)),
            packed(lower(x.z) * lower(of_g.z), upper(x.z) * upper(of_g.z)),
            packed(lower(x.w) * lower(of_g.w), upper(x.w) * upper(of_g.w)));
        float sum = square(x);
#pragma unroll
        for (int apart = 8; apart; apart /= 2) sum += __shfl_xor_sync(sixteen, sum, apart);
        if (at % 16 == 0) squares[at / 16 * ROWS + row] = sum;
    }
}
