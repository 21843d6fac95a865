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
#ifndef APPENDED
#define APPENDED 0
#endif

#include "kernel_dtypes.cuh"
#include "tile_pipeline.cuh"
#include "attention_parts.cuh"
#include "attention_fma.cuh"

#if BY_MMA
#include "attention_mma.cuh"
typedef ByMma<DTYPE, HEAD_SIZE> Method;
#else
typedef ByFma<DTYPE, HEAD_SIZE, QUERIES> Method;
#endif

// query and out [batch, heads, HEAD_SIZE], keys and values [batch, kv_heads, seq_len, HEAD_SIZE], heads being kv_heads
// x `group`. `workspace` and `arrived` as attention_parts.cuh says. A block takes one of `splits` splits of the keys of
// one K/V head, and a tile of its group's queries: as many as it holds.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    decode_attention(const DTYPE::stored* query, const DTYPE::stored* keys, const DTYPE::stored* values,
                     DTYPE::stored* out, float* workspace, unsigned int* arrived, int seq_len, int group, int splits) {
    extern __shared__ __align__(16) char dynamic_shared[];
    Method::Shared& shared = *(Method::Shared*)dynamic_shared;
    // One factor for the scores and for the change from e to 2: log2(e) / sqrt(HEAD_SIZE).
    const float scale_log2 = 1.4426950408889634f * rsqrtf((float)HEAD_SIZE);
    const int query_tiles = (group + Method::Shared::most_queries - 1) / Method::Shared::most_queries;
    const int split = blockIdx.x % splits, query_tile = blockIdx.x / splits % query_tiles;
    const long long kv_head = blockIdx.x / splits / query_tiles;
    const int first_in_group = query_tile * Method::Shared::most_queries;
    const int queries = min(group - first_in_group, Method::Shared::most_queries);
    const long long first_query = kv_head * group + first_in_group;
    const int key_tiles = (seq_len + Method::TILE - 1) / Method::TILE;
    const int begin = (int)((long long)key_tiles * split / splits) * Method::TILE;
    const int end = min(seq_len, (int)((long long)key_tiles * (split + 1) / splits) * Method::TILE);
    const long long cache_offset = kv_head * seq_len * HEAD_SIZE;
    Method::attend(shared, dynamic_shared, query + first_query * HEAD_SIZE, queries, keys + cache_offset,
                   values + cache_offset, begin, end, APPENDED && end == seq_len, scale_log2);
    join_and_write<DTYPE>(shared, out, workspace, arrived + kv_head * query_tiles + query_tile, first_query, queries,
                          split, splits, scale_log2);
}
