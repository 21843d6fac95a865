// A block's part of decode attention: one query token of each sequence against cached keys and values. The macros are
// those of decode_attention.cu; a kernel defines those that it was not compiled with before it includes this.

#pragma once

#ifndef APPENDED
#define APPENDED 0
#endif

#include "kernel_dtypes.cuh"
#include "tile_pipeline.cuh"
#include "attention_parts.cuh"
#include "attention_fma.cuh"

#if BY_MMA
#include "attention_mma.cuh"
#endif

// query and out [batch, heads, HEAD_SIZE], keys and values [batch, kv_heads, seq_len, HEAD_SIZE], heads being kv_heads
// x `group`. `workspace` and `arrived` as attention_parts.cuh says. A block takes one of `splits` splits of the keys of
// one K/V head, and a tile of its group's queries: as many as it holds. `scales_of` returns the scales of the keys and
// of the values of a K/V head.
template <typename Method, typename Cached, typename ScalesOf>
__device__ __forceinline__ void attend_block(const DTYPE::stored* query, const Cached* keys, const Cached* values,
                                             DTYPE::stored* out, float* workspace, unsigned int* arrived, int seq_len,
                                             int group, int splits, ScalesOf scales_of) {
    typedef typename Method::Shared Shared;
    extern __shared__ __align__(16) char dynamic_shared[];
    Shared& shared = *(Shared*)dynamic_shared;
    const int query_tiles = (group + Shared::most_queries - 1) / Shared::most_queries;
    const int split = blockIdx.x % splits, query_tile = blockIdx.x / splits % query_tiles;
    const long long kv_head = blockIdx.x / splits / query_tiles;
    const float2 scales = scales_of(kv_head);
    // One factor for the scores and for the change from e to 2: log2(e) / sqrt(HEAD_SIZE).
    const float scale_log2 = 1.4426950408889634f * rsqrtf((float)HEAD_SIZE) * scales.x;
    const int first_in_group = query_tile * Shared::most_queries;
    const int queries = min(group - first_in_group, Shared::most_queries);
    const long long first_query = kv_head * group + first_in_group;
    const int key_tiles = (seq_len + Method::TILE - 1) / Method::TILE;
    const int begin = (int)((long long)key_tiles * split / splits) * Method::TILE;
    const int end = min(seq_len, (int)((long long)key_tiles * (split + 1) / splits) * Method::TILE);
    const long long cache_offset = kv_head * seq_len * HEAD_SIZE;
    Method::attend(shared, dynamic_shared, query + first_query * HEAD_SIZE, queries, keys + cache_offset,
                   values + cache_offset, begin, end, APPENDED && end == seq_len, scale_log2);
    join_and_write<DTYPE>(shared, out, workspace, arrived + kv_head * query_tiles + query_tile, first_query, queries,
                          split, splits, scale_log2, scales.y);
}
