// One pass over keys and values by tensor cores: 16-bit dtypes, up to 8 queries, compute capability 8.0 and up.
//
// mma.m16n8k16 is used twice: for scores, 16 keys x 8 queries, and for weighted values, 16 dimensions x 8 queries. Both
// sum over an index whose order is free, and the rows of a result may have any order. So each lane reads 16 bytes of a
// row as they lie in memory, and keys and values change no lanes on their way to a tensor core.
// lane_group = lane / 4 and lane_in_group = lane % 4 are g and t in the PTX manual's tables of fragments.
//
// The pipeline of a warp. Every warp loads and multiplies, each its own tiles: every WARPS-th tile of the block's keys.
// Warps meet only at the end. tile_pipeline.cuh says how tiles arrive.
//
//   fetch the first TILES_AHEAD tiles of keys and of values: the kernel before may still run
//   wait_for_kernel_before, load the queries
//   for each tile:
//     wait_for_oldest      the keys have arrived: multiply_keys to scores
//     all lanes have read: fetch the keys of the tile TILES_AHEAD further
//     update_max, rescale_values: a larger maximum rescales what was summed before
//     wait_for_oldest      the values have arrived: scores_to_weights, multiply_rows
//     all lanes have read: fetch the values of the tile TILES_AHEAD further
//   wait_for_all, __syncthreads: the parts may take the memory of the tiles
//   store_part

#pragma once

// C += A B of A [16, 16] and B [16, 8], in either dtype.
#define MULTIPLY_ADD(Dtype, TYPE)                                                                                  \
    __device__ __forceinline__ void multiply_add(float (&c)[4], unsigned int a0, unsigned int a1, unsigned int a2, \
                                                 unsigned int a3, unsigned int b0, unsigned int b1, Dtype) {       \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                                         \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                      \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                       \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                               \
    }
MULTIPLY_ADD(Fp16, "f16")
MULTIPLY_ADD(Bf16, "bf16")

// Transposes an 8 x 8 matrix of 16-bit numbers among the lanes, each of which has a pair of it.
__device__ __forceinline__ unsigned int transpose(unsigned int pair) {
    unsigned int transposed;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
    return transposed;
}

__device__ __forceinline__ unsigned int word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Over the lanes of the same lane_in_group, in all eight lane groups.
__device__ __forceinline__ float sum_over_groups(float value) {
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
        value = value + __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}
__device__ __forceinline__ float max_over_groups(float value) {
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

template <typename T, int SIZE>
struct ByMma {
    static const int MOST_QUERIES = 8;
    static const int PARTS = WARPS;
    static const int CHUNKS = SIZE / 32;              // of 64 bytes, of a key: four lanes hold one
    static const int HALVES = SIZE / 64;              // of 128 bytes, of a value: eight lane groups hold one
    static const int LOADS = 8;
    static const int SLICES = LOADS / (2 * CHUNKS);   // of 16 keys, in a tile
    static const int TILE = 16 * SLICES;              // keys that a warp takes at a time
    static const int VECTORS = SIZE / 8;              // of 16 bytes, in a row
    typedef Parts<PARTS, MOST_QUERIES, SIZE> Shared;

    // Which slot of a tile holds a vector of a row. In registers (STAGES 0) a load's slot belongs to its lane, with g =
    // lane_group and t = lane_in_group: of keys rows g and g + 8 of a slice and vectors 4 c + t, of values rows 2 t,
    // 2 t + 1, 2 t + 8, 2 t + 9 and vectors 8 h + g. In shared memory rows follow one another, their vectors exchanged
    // so that the eight lanes that read at a time meet in no bank.
    static __device__ __forceinline__ int slot_of_key(int load, int row, int vector) {
        if (STAGES == 0) return load * 32;
        const int swizzle = (row & 1) << 2;
        return row * VECTORS + (vector ^ swizzle);
    }
    static __device__ __forceinline__ int slot_of_value(int load, int row, int vector) {
        if (STAGES == 0) return load * 32;
        const int swizzle = (row >> 1 & 3) << 1;
        return row * VECTORS + (vector ^ swizzle);
    }

    static __device__ __forceinline__ void fetch_keys(TilePipeline<LOADS>& key_tiles, const half_bits* keys, int first,
                                                      int end, int lane_group, int lane_in_group, int tiles_ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
#if STAGES
                const int index = i * 32 + threadIdx.x % 32, row = index / VECTORS, vector = index % VECTORS;
#else
                const int row = i / CHUNKS / 2 * 16 + lane_group + i / CHUNKS % 2 * 8;
                const int vector = i % CHUNKS * 4 + lane_in_group;
#endif
                const long long offset = (long long)min(first + row, end - 1) * SIZE;
                key_tiles.fetch(slot_of_key(i, row, vector), keys + offset + 8 * vector, tiles_ahead);
            }
        }
        commit_fetches();
    }

    static __device__ __forceinline__ void fetch_values(TilePipeline<LOADS>& value_tiles, const half_bits* values,
                                                        int first, int end, int lane_group, int lane_in_group,
                                                        int tiles_ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
#if STAGES
                const int index = i * 32 + threadIdx.x % 32, row = index / VECTORS, vector = index % VECTORS;
#else
                const int r = i / HALVES % 4;
                const int row = i / HALVES / 4 * 16 + 2 * lane_in_group + r % 2 + r / 2 * 8;
                const int vector = i % HALVES * 8 + lane_group;
#endif
                const long long offset = (long long)min(first + row, end - 1) * SIZE;
                value_tiles.fetch(slot_of_value(i, row, vector), values + offset + 8 * vector, tiles_ahead);
            }
        }
        commit_fetches();
    }

    // Loads a lane's vectors of query lane_group; zeros beyond the last query.
    static __device__ __forceinline__ void load_queries(uint4 (&q)[CHUNKS], const half_bits* query, int queries,
                                                        int lane_group, int lane_in_group) {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const uint4 zeros = {0, 0, 0, 0};
            q[c] = lane_group < queries ? load_past_l1(query + lane_group * SIZE + 8 * (4 * c + lane_in_group)) : zeros;
        }
    }

    // Adds the scores of a tile: keys lane_group and lane_group + 8 of each slice of 16, by the lane's two queries.
    static __device__ __forceinline__ void multiply_keys(float (&score)[SLICES][4],
                                                         const TilePipeline<LOADS>& key_tiles,
                                                         const uint4 (&q)[CHUNKS], int lane_group, int lane_in_group) {
#pragma unroll
        for (int s = 0; s < SLICES; ++s) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const int load = s * 2 * CHUNKS + c, vector = 4 * c + lane_in_group;
                const uint4 upper = key_tiles.read(slot_of_key(load, 16 * s + lane_group, vector));
                const uint4 lower = key_tiles.read(slot_of_key(load + CHUNKS, 16 * s + lane_group + 8, vector));
                multiply_add(score[s], upper.x, lower.x, upper.y, lower.y, q[c].x, q[c].y, T());
                multiply_add(score[s], upper.z, lower.z, upper.w, lower.w, q[c].z, q[c].w, T());
            }
        }
    }

    // Finds the lane's largest score of a tile for each of its queries.
    static __device__ __forceinline__ void max_of_tile(float (&largest)[2], const float (&score)[SLICES][4], int first,
                                                       int end, bool is_full_tile, int lane_group) {
#pragma unroll
        for (int s = 0; s < SLICES; ++s)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (is_full_tile || first + 16 * s + lane_group + i / 2 * 8 < end)
                    largest[i % 2] = fmaxf(largest[i % 2], score[s][i]);
    }

    // Takes a tile's largest scores into the running maxima. `rescale` becomes the factor of what was summed before.
    static __device__ __forceinline__ void update_max(float (&running_max)[2], float (&weight_sum)[2],
                                                      float (&rescale)[2], const float (&largest)[2],
                                                      float scale_log2) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float larger = fmaxf(running_max[n], max_over_groups(largest[n]));
            rescale[n] = weight_of(running_max[n], larger, scale_log2);
            running_max[n] = larger;
            weight_sum[n] *= rescale[n];
        }
    }

    static __device__ __forceinline__ void rescale_values(float (&weighted_values)[HALVES][4][4],
                                                          const float (&rescale)[2]) {
#pragma unroll
        for (int h = 0; h < HALVES; ++h)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) weighted_values[h][j][i] *= rescale[i % 2];
    }

    // Replaces the scores of a slice by their weights, and sums these; `first` is the slice's first key.
    static __device__ __forceinline__ void scores_to_weights(float (&score)[4], float (&weight_sum)[2],
                                                             const float (&running_max)[2], int first, int end,
                                                             bool is_full_tile, int lane_group, float scale_log2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool is_valid_key = is_full_tile || first + lane_group + i / 2 * 8 < end;
            const float weight = weight_of(score[i], running_max[i % 2], scale_log2);
            // 0 x score: an infinite score is a fault of the cache and shows, though its weight be 0.
            weight_sum[i % 2] += is_valid_key ? fmaf(score[i], 0.0f, weight) : 0.0f;
            score[i] = is_valid_key ? weight : 0.0f;
        }
    }

    // Adds 16 values x their weights b0 and b1. A lane has the same 8 dimensions of 4 of the values in `rows`.
    static __device__ __forceinline__ void multiply_rows(float (&weighted_values)[4][4], const uint4 (&rows)[4],
                                                         unsigned int b0, unsigned int b1) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            // Of the lane's eight dimensions, 2 j is row lane_group of the operand and 2 j + 1 is row lane_group + 8. A
            // word of the operand pairs two keys.
            const unsigned int r0 = word(rows[0], j), r1 = word(rows[1], j);
            const unsigned int r2 = word(rows[2], j), r3 = word(rows[3], j);
            multiply_add(weighted_values[j], __byte_perm(r0, r1, 0x5410), __byte_perm(r0, r1, 0x7632),
                         __byte_perm(r2, r3, 0x5410), __byte_perm(r2, r3, 0x7632), b0, b1, T());
        }
    }

    // Writes the warp's part to shared memory.
    static __device__ __forceinline__ void store_part(Shared& shared, int warp, const float (&running_max)[2],
                                                      const float (&weight_sum)[2],
                                                      const float (&weighted_values)[HALVES][4][4], int queries,
                                                      int lane_group, int lane_in_group) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float total_weight = sum_over_groups(weight_sum[n]);
            if (lane_group == 0) {
                shared.running_max[warp][2 * lane_in_group + n] = running_max[n];
                shared.weight_sum[warp][2 * lane_in_group + n] = total_weight;
            }
            if (2 * lane_in_group + n < queries) {
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    const float(*a)[4] = weighted_values[h];
                    const int dimension = 8 * (8 * h + lane_group);
                    shared.put(warp, 2 * lane_in_group + n, dimension, a[0][n], a[0][2 + n], a[1][n], a[1][2 + n]);
                    shared.put(warp, 2 * lane_in_group + n, dimension + 4, a[2][n], a[2][2 + n], a[3][n],
                               a[3][2 + n]);
                }
            }
        }
    }

    // Attends to keys begin <= i < end with `queries` vectors from `query` on. With `newest` the kernel before writes
    // the last key and value. Leaves the block's parts in `shared`, which takes the memory of the tiles,
    // `dynamic_shared`, once all warps are done with them.
    static __device__ __forceinline__ void attend(Shared& shared, char* dynamic_shared, const half_bits* query,
                                                  int queries, const half_bits* keys, const half_bits* values,
                                                  int begin, int end, bool newest, float scale_log2) {
        const int warp = threadIdx.x / 32, lane_group = threadIdx.x % 32 / 4, lane_in_group = threadIdx.x % 4;
        const int stride = WARPS * TILE;
        int first = begin + warp * TILE;  // of the warp's current tile
        TilePipeline<LOADS> key_tiles(dynamic_shared);
        TilePipeline<LOADS> value_tiles(dynamic_shared + WARPS * TilePipeline<LOADS>::BYTES_PER_WARP);
        if (newest && first + TILES_AHEAD * stride >= end) wait_for_kernel_before();
#pragma unroll
        for (int tile = 0; tile < TILES_AHEAD; ++tile) {
            fetch_keys(key_tiles, keys, first + tile * stride, end, lane_group, lane_in_group, tile);
            fetch_values(value_tiles, values, first + tile * stride, end, lane_group, lane_in_group, tile);
        }
        if (has_several_waves() || first + TILES_AHEAD * stride >= end) let_next_begin();
        wait_for_kernel_before();  // it may write the query; older keys and values are there already
        uint4 q[CHUNKS];
        load_queries(q, query, queries, lane_group, lane_in_group);
        // A lane's queries are 2 lane_in_group and the next: elements 0 and 2 of a result, and elements 1 and 3.
        float running_max[2] = {LOWEST, LOWEST}, weight_sum[2] = {};
        float weighted_values[HALVES][4][4] = {};
        for (; first < end; first += stride) {
            float score[SLICES][4] = {};
            wait_for_oldest();
            multiply_keys(score, key_tiles, q, lane_group, lane_in_group);
            wait_until_all_lanes_have_read();
            fetch_keys(key_tiles, keys, first + TILES_AHEAD * stride, end, lane_group, lane_in_group, 0);
            key_tiles.to_next_tile();
            if (first + (TILES_AHEAD + 1) * stride >= end) let_next_begin();
            const bool is_full_tile = first + TILE <= end;
            float largest[2] = {LOWEST, LOWEST};
            max_of_tile(largest, score, first, end, is_full_tile, lane_group);
            float rescale[2];
            update_max(running_max, weight_sum, rescale, largest, scale_log2);
            rescale_values(weighted_values, rescale);
            wait_for_oldest();
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
                scores_to_weights(score[s], weight_sum, running_max, first + 16 * s, end, is_full_tile, lane_group,
                                  scale_log2);
                const unsigned int b0 = transpose(T::pack(score[s][0], score[s][1]));
                const unsigned int b1 = transpose(T::pack(score[s][2], score[s][3]));
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    uint4 rows[4];
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const int row = 16 * s + 2 * lane_in_group + r % 2 + r / 2 * 8;
                        rows[r] = value_tiles.read(slot_of_value((s * 4 + r) * HALVES + h, row, 8 * h + lane_group));
                    }
                    multiply_rows(weighted_values[h], rows, b0, b1);
                }
            }
            wait_until_all_lanes_have_read();
            fetch_values(value_tiles, values, first + TILES_AHEAD * stride, end, lane_group, lane_in_group, 0);
            value_tiles.to_next_tile();
        }
        wait_for_all();
#if STAGES
        __syncthreads();
#endif
        store_part(shared, warp, running_max, weight_sum, weighted_values, queries, lane_group, lane_in_group);
    }
};
