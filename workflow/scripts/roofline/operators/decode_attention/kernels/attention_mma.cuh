// One pass over keys and values by tensor cores: 16-bit dtypes, up to 8 queries, compute capability 8.0 and up.
//
// mma.m16n8k16 twice: 16 keys x 8 queries of scores, then 16 places of the vector x 8 queries of weighted values. Both
// sum over an index whose order is free, and the rows of a result may stand in any order; so each lane loads 16 bytes of
// a row as they lie in memory, and no number passes through shared memory on its way to a tensor core.
// In the comments g = lane / 4, t = lane % 4, as in the PTX manual's tables of fragments.

#pragma once

__device__ __forceinline__ void multiply_add(float (&c)[4], unsigned int a0, unsigned int a1, unsigned int a2,
                                             unsigned int a3, unsigned int b0, unsigned int b1, Fp16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_add(float (&c)[4], unsigned int a0, unsigned int a1, unsigned int a2,
                                             unsigned int a3, unsigned int b0, unsigned int b1, Bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// An 8 x 8 matrix of 16-bit numbers, a pair a lane, transposed among the lanes.
__device__ __forceinline__ unsigned int transposed(unsigned int pair) {
    unsigned int found;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(found) : "r"(pair));
    return found;
}

__device__ __forceinline__ unsigned int word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ __forceinline__ float over_groups(float value, bool sum) {
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, apart);
        value = sum ? value + other : fmaxf(value, other);
    }
    return value;
}

template <typename T, int SIZE>
struct ByMma {
    static const int MOST = 8;  // queries
    static const int PARTS = WARPS;
    static const int CHUNKS = SIZE / 32;              // of 64 bytes of a key that four lanes hold
    static const int HALVES = SIZE / 64;              // of 128 bytes of a value that eight groups hold
    static const int LOADS = 8;
    static const int SLICES = LOADS / (2 * CHUNKS);   // of 16 keys in a tile
    static const int TILE = 16 * SLICES;              // keys that a warp takes at a time
    typedef Parts<PARTS, MOST, SIZE> Shared;

    static const int VECTORS = SIZE / 8;  // of 16 bytes in a row

    // Where a vector of a tile's row lies. In registers a load's slot is its lane's own: rows g and g + 8 of a slice and
    // vectors 4 c + t of keys; rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9 and vectors 8 h + g of values. In shared memory rows
    // follow one another, their vectors exchanged so that the eight lanes that read at a time meet in no bank.
    static __device__ __forceinline__ int slot_of_key(int load, int row, int vector) {
        return STAGES ? row * VECTORS + (vector ^ (row & 1) << 2) : load * 32;
    }
    static __device__ __forceinline__ int slot_of_value(int load, int row, int vector) {
        return STAGES ? row * VECTORS + (vector ^ (row >> 1 & 3) << 1) : load * 32;
    }

    static __device__ __forceinline__ void fetch_keys(Feed<LOADS>& feed, const half_bits* keys, int first, int end,
                                                      int g, int t, int ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
#if STAGES
                const int place = i * 32 + threadIdx.x % 32, row = place / VECTORS, vector = place % VECTORS;
#else
                const int row = i / CHUNKS / 2 * 16 + g + i / CHUNKS % 2 * 8, vector = i % CHUNKS * 4 + t;
#endif
                const long long at = (long long)min(first + row, end - 1) * SIZE;
                feed.fetch(slot_of_key(i, row, vector), keys + at + 8 * vector, ahead);
            }
        }
        fetched();
    }

    static __device__ __forceinline__ void fetch_values(Feed<LOADS>& feed, const half_bits* values, int first, int end,
                                                        int g, int t, int ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
#if STAGES
                const int place = i * 32 + threadIdx.x % 32, row = place / VECTORS, vector = place % VECTORS;
#else
                const int r = i / HALVES % 4;
                const int row = i / HALVES / 4 * 16 + 2 * t + r % 2 + r / 2 * 8, vector = i % HALVES * 8 + g;
#endif
                const long long at = (long long)min(first + row, end - 1) * SIZE;
                feed.fetch(slot_of_value(i, row, vector), values + at + 8 * vector, ahead);
            }
        }
        fetched();
    }

    // Keys begin <= i < end, the last one written by the kernel before where it is the `newest`, with `query` at the first of `queries` vectors; leaves its parts in `shared`, which takes
    // the place of `room` once all are done with it.
    static __device__ __forceinline__ void attend(Shared& shared, char* room, const half_bits* query, int queries,
                                                  const half_bits* keys, const half_bits* values, int begin, int end,
                                                  bool newest, float scale_log2) {
        const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        const int stride = WARPS * TILE;
        int first = begin + warp * TILE;
        Feed<LOADS> k(room), v(room + WARPS * Feed<LOADS>::BYTES_A_WARP);
        if (newest && first + AHEAD * stride >= end) wait_for_kernel_before();
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead) {
            fetch_keys(k, keys, first + ahead * stride, end, g, t, ahead);
            fetch_values(v, values, first + ahead * stride, end, g, t, ahead);
        }
        if (several_waves() || first + AHEAD * stride >= end) {
            let_next_begin();
        }
        wait_for_kernel_before();  // the cache is there already; the query may come from that one
        uint4 q[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const uint4 none = {0, 0, 0, 0};
            q[c] = g < queries ? load_now(query + g * SIZE + 8 * (4 * c + t)) : none;
        }
        // This lane's queries are 2 t and 2 t + 1: in score the columns of c0, c2 and of c1, c3; so in acc.
        float m[2] = {LOWEST, LOWEST}, l[2] = {};
        float acc[HALVES][4][4] = {};
        for (; first < end; first += stride) {
            float score[SLICES][4] = {};
            arrived_oldest();
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) {
                    const int load = s * 2 * CHUNKS + c;
                    const uint4 up = k.get(slot_of_key(load, 16 * s + g, 4 * c + t));
                    const uint4 down = k.get(slot_of_key(load + CHUNKS, 16 * s + g + 8, 4 * c + t));
                    multiply_add(score[s], up.x, down.x, up.y, down.y, q[c].x, q[c].y, T());
                    multiply_add(score[s], up.z, down.z, up.w, down.w, q[c].z, q[c].w, T());
                }
            }
            all_lanes_have_read();
            fetch_keys(k, keys, first + AHEAD * stride, end, g, t, 0);
            k.next();
            if (first + (AHEAD + 1) * stride >= end) {
                let_next_begin();
            }
            const bool whole = first + TILE <= end;
            float largest[2] = {LOWEST, LOWEST};
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (whole || first + 16 * s + g + i / 2 * 8 < end) {
                        largest[i % 2] = fmaxf(largest[i % 2], score[s][i]);
                    }
                }
            }
            float keep[2];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float larger = fmaxf(m[n], over_groups(largest[n], false));
                keep[n] = weight_of(m[n], larger, scale_log2);
                m[n] = larger;
                l[n] *= keep[n];
            }
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        acc[h][j][i] *= keep[i % 2];
                    }
                }
            }
            arrived_oldest();
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const bool there = whole || first + 16 * s + g + i / 2 * 8 < end;
                    const float weight = weight_of(score[s][i], m[i % 2], scale_log2);
                    // 0 x score: an infinite score is a fault of the cache and shows, though its weight be 0.
                    l[i % 2] += there ? fmaf(score[s][i], 0.0f, weight) : 0.0f;
                    score[s][i] = there ? weight : 0.0f;
                }
                const unsigned int b0 = transposed(T::pair(score[s][0], score[s][1]));
                const unsigned int b1 = transposed(T::pair(score[s][2], score[s][3]));
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    uint4 rows[4];
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const int row = 16 * s + 2 * t + r % 2 + r / 2 * 8;
                        rows[r] = v.get(slot_of_value((s * 4 + r) * HALVES + h, row, 8 * h + g));
                    }
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        // Row g is place 2 j of the lane's eight, row g + 8 place 2 j + 1; a word pairs two keys.
                        const unsigned int r0 = word(rows[0], j), r1 = word(rows[1], j);
                        const unsigned int r2 = word(rows[2], j), r3 = word(rows[3], j);
                        multiply_add(acc[h][j], __byte_perm(r0, r1, 0x5410), __byte_perm(r0, r1, 0x7632),
                                     __byte_perm(r2, r3, 0x5410), __byte_perm(r2, r3, 0x7632), b0, b1, T());
                    }
                }
            }
            all_lanes_have_read();
            fetch_values(v, values, first + AHEAD * stride, end, g, t, 0);
            v.next();
        }
        arrived_all();
#if STAGES
        __syncthreads();
#endif
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float total = over_groups(l[n], true);
            if (g == 0) {
                shared.m[warp][2 * t + n] = m[n];
                shared.l[warp][2 * t + n] = total;
            }
            if (2 * t + n < queries) {
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    const float(*a)[4] = acc[h];
                    const int place = 8 * (8 * h + g);
                    shared.put(warp, 2 * t + n, place, a[0][n], a[0][2 + n], a[1][n], a[1][2 + n]);
                    shared.put(warp, 2 * t + n, place + 4, a[2][n], a[2][2 + n], a[3][n], a[3][2 + n]);
                }
            }
        }
    }
};
