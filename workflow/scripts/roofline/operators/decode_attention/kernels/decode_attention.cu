// One query token of each sequence against cached keys and values: softmax(K q / sqrt(d)) V in one pass over K and V.
// The keys are split among blocks where the batch alone does not fill the card.
//
// Compiled for one dtype, head size and number of queries at a time: DTYPE (Fp32, Fp16, Bf16), HEAD_SIZE, QUERIES of a
// block at most, WARPS of a block, at least BLOCKS resident per multiprocessor, STAGES, BY_MMA (tensor cores), and
// APPENDED where the kernel before writes the last key and value.

#ifndef DTYPE
#define DTYPE Fp16
#define HEAD_SIZE 64
#define QUERIES 1
#define WARPS 4
#define BLOCKS 4
#define STAGES 0
#define BY_MMA (__CUDA_ARCH__ >= 800)
#endif
#include "attention_block.cuh"

#if BY_MMA
typedef ByMma<DTYPE, HalfCache<DTYPE>, HEAD_SIZE> Method;
#else
typedef ByFma<DTYPE, HEAD_SIZE, QUERIES> Method;
#endif

// attention_block.cuh says what the arguments are.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    decode_attention(const DTYPE::stored* query, const DTYPE::stored* keys, const DTYPE::stored* values,
                     DTYPE::stored* out, float* workspace, unsigned int* arrived, int seq_len, int group, int splits) {
    attend_block<Method>(query, keys, values, out, workspace, arrived, seq_len, group, splits,
                         [](long long) { return make_float2(1, 1); });
}
