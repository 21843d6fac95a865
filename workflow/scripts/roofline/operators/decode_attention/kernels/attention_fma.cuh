// One pass over keys and values by multiply-adds: every dtype, every card.
//
// LANES lanes hold a row of SIZE numbers (a key or a value), so that a warp reads ROWS rows at a time. Each such group
// of lanes keeps a part (attention_parts.cuh) over the rows that it reads.

#pragma once

// Sums each of COUNT numbers over 2 x DISTANCE lanes. The lanes divide the sums: by each bit of its number a lane keeps
// one half of them, while there are several, and has its sums in front at the end.
template <int DISTANCE, int COUNT>
__device__ __forceinline__ void sum_over_lanes(float (&number)[COUNT], int lane) {
    if constexpr (DISTANCE > 0) {
        if constexpr (COUNT > 1) {
            const bool keeps_upper = lane & DISTANCE;
            float half[COUNT / 2];
#pragma unroll
            for (int i = 0; i < COUNT / 2; ++i) {
                const float sent = keeps_upper ? number[i] : number[i + COUNT / 2];
                half[i] = (keeps_upper ? number[i + COUNT / 2] : number[i]) +
                          __shfl_xor_sync(0xffffffffu, sent, DISTANCE);
            }
            sum_over_lanes<DISTANCE / 2>(half, lane);
#pragma unroll
            for (int i = 0; i < COUNT / 2; ++i) number[i] = half[i];
        } else {
            number[0] += __shfl_xor_sync(0xffffffffu, number[0], DISTANCE);
            sum_over_lanes<DISTANCE / 2>(number, lane);
        }
    }
}

template <typename T, int SIZE, int MOST_QUERIES>
struct ByFma {
    static const int VECTORS = SIZE / T::numbers_per_vector;  // of 16 bytes, of a row
    static const int LANES = VECTORS < 16 ? 8 : VECTORS / 2;
    static const int VECTORS_PER_LANE = VECTORS / LANES;      // of a row
    static const int ROWS = 32 / LANES;
    static const int LOADS = 8;
    static const int DEPTH = LOADS / VECTORS_PER_LANE;        // rows of a tile that a lane reads
    static const int TILE = ROWS * DEPTH;                     // keys that a warp takes at a time
    static const int PARTS = WARPS * ROWS;
    // Scores of a tile: those of a query's rows follow one another, then those of the next query. After sum_over_lanes
    // a lane has SCORES_PER_LANE of them, of one query.
    static const int SCORES = DEPTH * MOST_QUERIES;
    static const int SCORES_PER_LANE = SCORES > LANES ? SCORES / LANES : 1;
    static const int LANES_PER_SCORE = SCORES < LANES ? LANES / SCORES : 1;
    static const int LANES_PER_QUERY = LANES / MOST_QUERIES;
    typedef Parts<PARTS, MOST_QUERIES, SIZE> Shared;

    static __device__ __forceinline__ void fetch(TilePipeline<LOADS>& tiles, const typename T::stored* rows, int first,
                                                 int end, int row, int lane, int tiles_ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const long long offset = (long long)min(first + i / VECTORS_PER_LANE * ROWS + row, end - 1) * SIZE;
                const int column = (i % VECTORS_PER_LANE * LANES + lane) * T::numbers_per_vector;
                tiles.fetch(i * 32 + threadIdx.x % 32, rows + offset + column, tiles_ahead);
            }
        }
        commit_fetches();
    }

    // Which of the tile's rows that a lane reads its j-th score is of.
    static __device__ __forceinline__ int row_of_score(int lane, int j) {
        return (lane / LANES_PER_SCORE * SCORES_PER_LANE + j) % DEPTH;
    }

    // Loads a lane's numbers of all queries; zeros beyond the last query.
    static __device__ __forceinline__ void load_queries(
        float (&q)[MOST_QUERIES][VECTORS_PER_LANE][T::numbers_per_vector], const typename T::stored* query, int queries,
        int lane) {
#pragma unroll
        for (int n = 0; n < MOST_QUERIES; ++n) {
#pragma unroll
            for (int j = 0; j < VECTORS_PER_LANE; ++j) {
                const uint4 zeros = {0, 0, 0, 0};
                T::unpack(n < queries ? load_past_l1(query + n * SIZE + (j * LANES + lane) * T::numbers_per_vector)
                                      : zeros,
                          q[n][j]);
            }
        }
    }

    // Returns the larger of the running maximum and the scores of a tile, for the lane's query.
    static __device__ __forceinline__ float max_of_tile(float running_max, const float (&score)[SCORES], int first,
                                                        int end, int row, int lane) {
        float largest = running_max;
#pragma unroll
        for (int j = 0; j < SCORES_PER_LANE; ++j)
            if (first + row_of_score(lane, j) * ROWS + row < end) largest = fmaxf(largest, score[j]);
#pragma unroll
        for (int distance = LANES_PER_QUERY / 2; distance > 0; distance /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        return largest;
    }

    // Multiplies the weighted values of each query by the rescale factor of the lanes that have its scores.
    static __device__ __forceinline__ void rescale_values(
        float (&weighted_values)[MOST_QUERIES][VECTORS_PER_LANE][T::numbers_per_vector], float rescale) {
#pragma unroll
        for (int n = 0; n < MOST_QUERIES; ++n) {
            const float query_rescale = __shfl_sync(0xffffffffu, rescale, n * LANES_PER_QUERY, LANES);
#pragma unroll
            for (int j = 0; j < VECTORS_PER_LANE; ++j)
#pragma unroll
                for (int e = 0; e < T::numbers_per_vector; ++e) weighted_values[n][j][e] *= query_rescale;
        }
    }

    // Writes the part of a group of lanes to shared memory.
    static __device__ __forceinline__ void store_part(
        Shared& shared, int part, float running_max, float weight_sum,
        const float (&weighted_values)[MOST_QUERIES][VECTORS_PER_LANE][T::numbers_per_vector], int lane) {
        weight_sum = lane % LANES_PER_SCORE ? 0.0f : weight_sum;
#pragma unroll
        for (int distance = LANES_PER_QUERY / 2; distance > 0; distance /= 2)
            weight_sum += __shfl_xor_sync(0xffffffffu, weight_sum, distance);
        if (lane % LANES_PER_QUERY == 0) {
            shared.running_max[part][lane / LANES_PER_QUERY] = running_max;
            shared.weight_sum[part][lane / LANES_PER_QUERY] = weight_sum;
        }
#pragma unroll
        for (int n = 0; n < MOST_QUERIES; ++n) {
#pragma unroll
            for (int j = 0; j < VECTORS_PER_LANE; ++j) {
#pragma unroll
                for (int e = 0; e < T::numbers_per_vector; e += 4) {
                    const float* four = weighted_values[n][j] + e;
                    const int dimension = (j * LANES + lane) * T::numbers_per_vector + e;
                    shared.put(part, n, dimension, four[0], four[1], four[2], four[3]);
                }
            }
        }
    }

    // Attends to keys begin <= i < end with `queries` vectors from `query` on. With `newest` the kernel before writes
    // the last key and value. Leaves the block's parts in `shared`, which takes the memory of the tiles,
    // `dynamic_shared`, once all warps are done with them.
    static __device__ __forceinline__ void attend(Shared& shared, char* dynamic_shared, const typename T::stored* query,
                                                  int queries, const typename T::stored* keys,
                                                  const typename T::stored* values, int begin, int end,
                                                  bool newest, float scale_log2) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % LANES, row = threadIdx.x % 32 / LANES;
        const int stride = WARPS * TILE;
        int first = begin + warp * TILE;  // of the warp's current tile
        TilePipeline<LOADS> key_tiles(dynamic_shared);
        TilePipeline<LOADS> value_tiles(dynamic_shared + WARPS * TilePipeline<LOADS>::BYTES_PER_WARP);
        if (newest && first + TILES_AHEAD * stride >= end) {
            // The older keys and values are on their way to the L2 before.
#pragma unroll
            for (int tile = 0; tile < TILES_AHEAD; ++tile) {
                const long long offset = (long long)(first + tile * stride) * SIZE, end_offset = (long long)end * SIZE;
                prefetch_tile<LOADS>(keys + offset, keys + end_offset);
                prefetch_tile<LOADS>(values + offset, values + end_offset);
            }
            wait_for_kernel_before();
        }
#pragma unroll
        for (int tile = 0; tile < TILES_AHEAD; ++tile) {
            fetch(key_tiles, keys, first + tile * stride, end, row, lane, tile);
            fetch(value_tiles, values, first + tile * stride, end, row, lane, tile);
        }
        if (has_several_waves() || first + TILES_AHEAD * stride >= end) let_next_begin();
        wait_for_kernel_before();  // it may write the query; older keys and values are there already
        float q[MOST_QUERIES][VECTORS_PER_LANE][T::numbers_per_vector];
        load_queries(q, query, queries, lane);
        float running_max = LOWEST, weight_sum = 0;  // of this lane's query and of its scores
        float weighted_values[MOST_QUERIES][VECTORS_PER_LANE][T::numbers_per_vector] = {};
        for (; first < end; first += stride) {
            // Scores of the tile.
            float score[SCORES] = {};
            wait_for_oldest();
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                float number[T::numbers_per_vector];
                T::unpack(key_tiles.read(i * 32 + threadIdx.x % 32), number);
#pragma unroll
                for (int n = 0; n < MOST_QUERIES; ++n) {
                    float& sum = score[n * DEPTH + i / VECTORS_PER_LANE];
#pragma unroll
                    for (int e = 0; e < T::numbers_per_vector; ++e)
                        sum = fmaf(number[e], q[n][i % VECTORS_PER_LANE][e], sum);
                }
            }
            fetch(key_tiles, keys, first + TILES_AHEAD * stride, end, row, lane, 0);
            key_tiles.to_next_tile();
            if (first + (TILES_AHEAD + 1) * stride >= end) let_next_begin();
            sum_over_lanes<LANES / 2>(score, lane);
            // The running maximum, by which what was summed before is rescaled.
            const float largest = max_of_tile(running_max, score, first, end, row, lane);
            const float rescale = running_max == largest ? 1.0f : weight_of(running_max, largest, scale_log2);
            running_max = largest;
            weight_sum *= rescale;
            // Weights in the place of the lane's scores.
#pragma unroll
            for (int j = 0; j < SCORES_PER_LANE; ++j) {
                const bool is_valid_key = first + row_of_score(lane, j) * ROWS + row < end;
                const float weight = weight_of(score[j], largest, scale_log2);
                // 0 x score: an infinite score is a fault of the cache and shows, though its weight be 0.
                weight_sum += is_valid_key ? fmaf(score[j], 0.0f, weight) : 0.0f;
                score[j] = is_valid_key ? weight : 0.0f;
            }
            rescale_values(weighted_values, rescale);
            float weight[SCORES];
#pragma unroll
            for (int i = 0; i < SCORES; ++i) {
                weight[i] =
                    __shfl_sync(0xffffffffu, score[i % SCORES_PER_LANE], i / SCORES_PER_LANE * LANES_PER_SCORE, LANES);
            }
            // Weighted values of the tile.
            wait_for_oldest();
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                float number[T::numbers_per_vector];
                T::unpack(value_tiles.read(i * 32 + threadIdx.x % 32), number);
#pragma unroll
                for (int n = 0; n < MOST_QUERIES; ++n) {
                    float(&sums)[T::numbers_per_vector] = weighted_values[n][i % VECTORS_PER_LANE];
#pragma unroll
                    for (int e = 0; e < T::numbers_per_vector; ++e)
                        sums[e] = fmaf(weight[n * DEPTH + i / VECTORS_PER_LANE], number[e], sums[e]);
                }
            }
            fetch(value_tiles, values, first + TILES_AHEAD * stride, end, row, lane, 0);
            value_tiles.to_next_tile();
        }
        wait_for_all();
#if STAGES
        __syncthreads();
#endif
        store_part(shared, warp * ROWS + row, running_max, weight_sum, weighted_values, lane);
    }
};
