// One query token a sequence against cached keys and values: softmax(K q / sqrt(d)) V in one pass over K and V, whose
// keys are split among blocks where the batch alone does not fill the card.
//
// Compiled for one dtype, head size and number of queries at a time: DTYPE (Fp32, Fp16, Bf16), HEAD_SIZE, QUERIES,
// WARPS a block, BLOCKS a multiprocessor at least, STAGES, BY_MMA; APPENDED where the kernel before writes the last key.

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
typedef ByMma<DTYPE, HEAD_SIZE> Way;
#else
typedef ByFma<DTYPE, HEAD_SIZE, QUERIES> Way;
#endif

// Shapes: query and out [batch, heads, HEAD_SIZE], keys and values [batch, kv_heads, seq_len, HEAD_SIZE], where heads is
// kv_heads x group; `workspace` and `arrived` as attention_parts.cuh says. A block takes one split of one K/V head, and
// as many of its group's queries as it holds.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    decode_attention(const DTYPE::stored* query, const DTYPE::stored* keys, const DTYPE::stored* values,
                     DTYPE::stored* out, float* workspace, unsigned int* arrived, int seq_len, int group, int splits) {
    extern __shared__ __align__(16) char room[];
    Way::Shared& shared = *(Way::Shared*)room;
    // One factor for the scores and for the change from e to 2: log2(e) / sqrt(HEAD_SIZE).
    const float scale_log2 = 1.4426950408889634f * rsqrtf((float)HEAD_SIZE);
    const int tiles = (group + Way::Shared::queries - 1) / Way::Shared::queries;
    const int split = blockIdx.x % splits, tile = blockIdx.x / splits % tiles;
    const long long head = blockIdx.x / splits / tiles;
    const int from = tile * Way::Shared::queries, queries = min(group - from, Way::Shared::queries);
    const long long first = head * group + from;
    const int slices = (seq_len + Way::TILE - 1) / Way::TILE;
    const int begin = (int)((long long)slices * split / splits) * Way::TILE;
    const int end = min(seq_len, (int)((long long)slices * (split + 1) / splits) * Way::TILE);
    const long long rows = head * seq_len * HEAD_SIZE;
    Way::attend(shared, room, query + first * HEAD_SIZE, queries, keys + rows, values + rows, begin, end,
                APPENDED && end == seq_len, scale_log2);
    finish<DTYPE>(shared, out, workspace, arrived + head * tiles + tile, first, queries, split, splits,
                              scale_log2);
}

// As many arguments, and nothing to do.
extern "C" __global__ void nothing(const DTYPE::stored* query, const DTYPE::stored* keys, const DTYPE::stored* values,
                                   DTYPE::stored* out, float* workspace, unsigned int* arrived, int seq_len, int group,
                                   int splits) {}
