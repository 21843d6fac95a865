// One pass over keys and values by tensor cores: 16-bit dtypes, up to 8 queries, compute capability 8.0 and up. FP8
// keys and values, from 8.9 on, become fp16 in registers.
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

// How keys and values are stored, and how pairs of them become the operands of a tensor core. `pair` returns two
// neighbouring numbers of a vector; `pair_keys` pairs the numbers 2 i of two keys, and the numbers 2 i + 1;
// `query_pair` returns two numbers of a query in the dtype that is multiplied.
template <typename T>
struct HalfCache {
    typedef half_bits stored;
    typedef T multiplied;
    static const int numbers_per_vector = 8;
    static __device__ __forceinline__ unsigned int pair(const uint4& v, int i) { return word(v, i); }
    static __device__ __forceinline__ void pair_keys(unsigned int& even, unsigned int& odd, const uint4& key,
                                                     const uint4& next_key, int i) {
        even = __byte_perm(word(key, i), word(next_key, i), 0x5410);
        odd = __byte_perm(word(key, i), word(next_key, i), 0x7632);
    }
    static __device__ __forceinline__ unsigned int query_pair(unsigned int pair, T) { return pair; }
};

// FP8 numbers (e4m3), which become fp16: each has a place in it.
#if __CUDA_ARCH__ >= 890
struct Fp8Cache {
    typedef unsigned char stored;
    typedef Fp16 multiplied;
    static const int numbers_per_vector = 16;
    static __device__ __forceinline__ unsigned int widen(unsigned short pair) {
        unsigned int halves;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
        return halves;
    }
    static __device__ __forceinline__ unsigned int pair(const uint4& v, int i) {
        return widen((unsigned short)(word(v, i / 2) >> i % 2 * 16));
    }
    static __device__ __forceinline__ void pair_keys(unsigned int& even, unsigned int& odd, const uint4& key,
                                                     const uint4& next_key, int i) {
        const unsigned int bytes = __byte_perm(word(key, i / 2), word(next_key, i / 2), i % 2 ? 0x7362 : 0x5140);
        even = widen((unsigned short)bytes);
        odd = widen((unsigned short)(bytes >> 16));
    }
    static __device__ __forceinline__ unsigned int query_pair(unsigned int pair, Fp16) { return pair; }
    static __device__ __forceinline__ unsigned int query_pair(unsigned int pair, Bf16) {
        return Fp16::pack(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
};
#endif

// Keys and values of dtype C, queries of dtype T.
template <typename T, typename C, int SIZE>
struct ByMma {
    typedef typename C::stored cached;
    typedef typename C::multiplied Multiplied;  // dtype of the tensor cores' operands
    static const int MOST_QUERIES = 8;
    static const int PARTS = WARPS;
    static const int VECTORS = SIZE / C::numbers_per_vector;  // of 16 bytes, in a row
    static const int CHUNKS = VECTORS / 4;                    // of 64 bytes, of a key: four lanes hold one
    static const int WORDS = C::numbers_per_vector / 2;       // of two numbers, that a vector of a key becomes
    // Dimensions of a value that a lane takes at once: a vector of them, or half of one where eight lane groups share a
    // row of 64 bytes.
    static const int DIMENSIONS = C::numbers_per_vector < SIZE / 8 ? C::numbers_per_vector : SIZE / 8;
    static const int PARTS_OF_VALUE = SIZE / (8 * DIMENSIONS);  // eight lane groups hold one
    static const int LOADS = 8;
    static const int SLICES = LOADS / (2 * CHUNKS);  // of 16 keys, in a tile
    static const int TILE = 16 * SLICES;             // keys that a warp takes at a time
    static_assert(STAGES || VECTORS >= 8, "lanes cannot load half vectors to registers");
    typedef Parts<PARTS, MOST_QUERIES, SIZE> Shared;

    // Which slot of a tile holds a vector of a row. In registers (STAGES 0) a load's slot belongs to its lane, with g =
    // lane_group and t = lane_in_group: of keys rows g and g + 8 of a slice and vectors 4 c + t, of values rows 2 t,
    // 2 t + 1, 2 t + 8, 2 t + 9 and vectors 8 h + g. In shared memory rows follow one another, their vectors exchanged
    // so that the eight lanes that read at a time meet in no bank.
    static __device__ __forceinline__ int slot_of_key(int load, int row, int vector) {
        if (STAGES == 0) return load * 32;
        const int swizzle = VECTORS < 8 ? 0 : (row & 1) << 2;
        return row * VECTORS + (vector ^ swizzle);
    }
    static __device__ __forceinline__ int slot_of_value(int load, int row, int vector) {
        if (STAGES == 0) return load * 32;
        const int swizzle = (row >> 1 & 3) << 1;
        // Two rows of four vectors are exchanged as one of eight.
        if (VECTORS < 8) return row / 2 * 8 + ((row % 2 * 4 + vector) ^ swizzle);
        return row * VECTORS + (vector ^ swizzle);
    }

    static __device__ __forceinline__ void fetch_keys(TilePipeline<LOADS>& key_tiles, const cached* keys, int first,
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
                const cached* const source = keys + offset + C::numbers_per_vector * vector;
                key_tiles.fetch(slot_of_key(i, row, vector), source, tiles_ahead);
            }
        }
        commit_fetches();
    }

    static __device__ __forceinline__ void fetch_values(TilePipeline<LOADS>& value_tiles, const cached* values,
                                                        int first, int end, int lane_group, int lane_in_group,
                                                        int tiles_ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
#if STAGES
                const int index = i * 32 + threadIdx.x % 32, row = index / VECTORS, vector = index % VECTORS;
#else
                const int r = i / PARTS_OF_VALUE % 4;
                const int row = i / PARTS_OF_VALUE / 4 * 16 + 2 * lane_in_group + r % 2 + r / 2 * 8;
                const int vector = i % PARTS_OF_VALUE * 8 + lane_group;
#endif
                const long long offset = (long long)min(first + row, end - 1) * SIZE;
                const cached* const source = values + offset + C::numbers_per_vector * vector;
                value_tiles.fetch(slot_of_value(i, row, vector), source, tiles_ahead);
            }
        }
        commit_fetches();
    }

    // Loads a lane's vectors of query lane_group; zeros beyond the last query.
    static __device__ __forceinline__ void load_queries(unsigned int (&q)[CHUNKS][WORDS], const half_bits* query,
                                                        int queries, int lane_group, int lane_in_group) {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
            for (int w = 0; w < WORDS; w += 4) {
                const uint4 zeros = {0, 0, 0, 0};
                const int dimension = 2 * (WORDS * (4 * c + lane_in_group) + w);
                const uint4 v = lane_group < queries ? load_past_l1(query + lane_group * SIZE + dimension) : zeros;
#pragma unroll
                for (int i = 0; i < 4; ++i) q[c][w + i] = C::query_pair(word(v, i), T());
            }
        }
    }

    // Adds the scores of a tile: keys lane_group and lane_group + 8 of each slice of 16, by the lane's two queries.
    static __device__ __forceinline__ void multiply_keys(float (&score)[SLICES][4],
                                                         const TilePipeline<LOADS>& key_tiles,
                                                         const unsigned int (&q)[CHUNKS][WORDS], int lane_group,
                                                         int lane_in_group) {
#pragma unroll
        for (int s = 0; s < SLICES; ++s) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const int load = s * 2 * CHUNKS + c, vector = 4 * c + lane_in_group;
                const uint4 upper = key_tiles.read(slot_of_key(load, 16 * s + lane_group, vector));
                const uint4 lower = key_tiles.read(slot_of_key(load + CHUNKS, 16 * s + lane_group + 8, vector));
#pragma unroll
                for (int w = 0; w < WORDS; w += 2)
                    multiply_add(score[s], C::pair(upper, w), C::pair(lower, w), C::pair(upper, w + 1),
                                 C::pair(lower, w + 1), q[c][w], q[c][w + 1], Multiplied());
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

    static __device__ __forceinline__ void rescale_values(float (&weighted_values)[PARTS_OF_VALUE][DIMENSIONS / 2][4],
                                                          const float (&rescale)[2]) {
#pragma unroll
        for (int h = 0; h < PARTS_OF_VALUE; ++h)
#pragma unroll
            for (int j = 0; j < DIMENSIONS / 2; ++j)
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

    // Returns a lane's dimensions of a value, in the first words.
    static __device__ __forceinline__ uint4 read_value(const TilePipeline<LOADS>& value_tiles, int load, int row,
                                                       int part, int lane_group) {
        if (VECTORS < 8) return value_tiles.read_half(slot_of_value(load, row, lane_group / 2), lane_group % 2);
        return value_tiles.read(slot_of_value(load, row, 8 * part + lane_group));
    }

    // Adds 16 values x their weights b0 and b1. A lane has the same DIMENSIONS of 4 of the values in `rows`.
    static __device__ __forceinline__ void multiply_rows(float (&weighted_values)[DIMENSIONS / 2][4],
                                                         const uint4 (&rows)[4], unsigned int b0, unsigned int b1) {
#pragma unroll
        for (int j = 0; j < DIMENSIONS / 2; ++j) {
            // Of the lane's dimensions, 2 j is row lane_group of the operand and 2 j + 1 is row lane_group + 8. A word
            // of the operand pairs two keys.
            unsigned int a[4];
            C::pair_keys(a[0], a[1], rows[0], rows[1], j);
            C::pair_keys(a[2], a[3], rows[2], rows[3], j);
            multiply_add(weighted_values[j], a[0], a[1], a[2], a[3], b0, b1, Multiplied());
        }
    }

    // Writes the warp's part to shared memory.
    static __device__ __forceinline__ void store_part(Shared& shared, int warp, const float (&running_max)[2],
                                                      const float (&weight_sum)[2],
                                                      const float (&weighted_values)[PARTS_OF_VALUE][DIMENSIONS / 2][4],
                                                      int queries, int lane_group, int lane_in_group) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float total_weight = sum_over_groups(weight_sum[n]);
            if (lane_group == 0) {
                shared.running_max[warp][2 * lane_in_group + n] = running_max[n];
                shared.weight_sum[warp][2 * lane_in_group + n] = total_weight;
            }
            if (2 * lane_in_group + n < queries) {
#pragma unroll
                for (int h = 0; h < PARTS_OF_VALUE; ++h) {
                    const float(*a)[4] = weighted_values[h];
                    const int dimension = DIMENSIONS * (8 * h + lane_group);
#pragma unroll
                    for (int j = 0; j < DIMENSIONS / 2; j += 2)
                        shared.put(warp, 2 * lane_in_group + n, dimension + 2 * j, a[j][n], a[j][2 + n], a[j + 1][n],
                                   a[j + 1][2 + n]);
                }
            }
        }
    }

    // Attends to keys begin <= i < end with `queries` vectors from `query` on. With `newest` the kernel before writes
    // the last key and value. Leaves the block's parts in `shared`, which takes the memory of the tiles,
    // `dynamic_shared`, once all warps are done with them.
    static __device__ __forceinline__ void attend(Shared& shared, char* dynamic_shared, const half_bits* query,
                                                  int queries, const cached* keys, const cached* values,
                                                  int begin, int end, bool newest, float scale_log2) {
        const int warp = threadIdx.x / 32, lane_group = threadIdx.x % 32 / 4, lane_in_group = threadIdx.x % 4;
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
            fetch_keys(key_tiles, keys, first + tile * stride, end, lane_group, lane_in_group, tile);
            fetch_values(value_tiles, values, first + tile * stride, end, lane_group, lane_in_group, tile);
        }
        if (has_several_waves() || first + TILES_AHEAD * stride >= end) let_next_begin();
        wait_for_kernel_before();  // it may write the query; older keys and values are there already
        unsigned int q[CHUNKS][WORDS];
        load_queries(q, query, queries, lane_group, lane_in_group);
        // A lane's queries are 2 lane_in_group and the next: elements 0 and 2 of a result, and elements 1 and 3.
        float running_max[2] = {LOWEST, LOWEST}, weight_sum[2] = {};
        float weighted_values[PARTS_OF_VALUE][DIMENSIONS / 2][4] = {};
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
                const unsigned int b0 = transpose(Multiplied::pack(score[s][0], score[s][1]));
                const unsigned int b1 = transpose(Multiplied::pack(score[s][2], score[s][3]));
#pragma unroll
                for (int h = 0; h < PARTS_OF_VALUE; ++h) {
                    uint4 rows[4];
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const int row = 16 * s + 2 * lane_in_group + r % 2 + r / 2 * 8;
                        rows[r] = read_value(value_tiles, (s * 4 + r) * PARTS_OF_VALUE + h, row, h, lane_group);
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
