// One pass over keys and values by multiply-adds: every dtype, every card.
//
// LANES lanes hold a row of SIZE numbers, so that a warp reads ROWS rows at a time; each group of lanes keeps a part of
// its own over the rows that it meets.

#pragma once

template <typename T, int SIZE, int MOST>
struct ByFma {
    static const int VECTORS = SIZE / T::in_vector;  // 16-byte vectors of a row
    static const int LANES = VECTORS < 16 ? 8 : VECTORS / 2;
    static const int EACH = VECTORS / LANES;         // vectors of a row that a lane holds
    static const int ROWS = 32 / LANES;
    static const int LOADS = 8;
    static const int DEPTH = LOADS / EACH;           // rows of a tile that a lane meets
    static const int TILE = ROWS * DEPTH;            // keys that a warp takes at a time
    static const int PARTS = WARPS * ROWS;
    typedef Parts<PARTS, MOST, SIZE> Shared;

    static __device__ __forceinline__ void fetch(Feed<LOADS>& feed, const typename T::stored* rows, int first, int end,
                                                 int row, int lane, int ahead) {
        if (first < end) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const long long at = (long long)min(first + i / EACH * ROWS + row, end - 1) * SIZE;
                feed.fetch(i * 32 + threadIdx.x % 32, rows + at + (i % EACH * LANES + lane) * T::in_vector, ahead);
            }
        }
        fetched();
    }

    // Keys begin <= i < end, with `query` at the first of `queries` vectors; leaves its parts in `shared`, which takes
    // the place of `room` once all are done with it.
    static __device__ __forceinline__ void attend(Shared& shared, char* room, const typename T::stored* query,
                                                  int queries, const typename T::stored* keys,
                                                  const typename T::stored* values, int begin, int end,
                                                  float scale_log2) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % LANES, row = threadIdx.x % 32 / LANES;
        const int stride = WARPS * TILE;
        int first = begin + warp * TILE;
        Feed<LOADS> k(room), v(room + WARPS * Feed<LOADS>::BYTES_A_WARP);
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead) {
            fetch(k, keys, first + ahead * stride, end, row, lane, ahead);
            fetch(v, values, first + ahead * stride, end, row, lane, ahead);
        }
        if (several_waves() || first + AHEAD * stride >= end) {
            let_the_next_begin();
        }
        after_the_kernel_before();  // the cache is there already; the query may come from that one
        float q[MOST][EACH][T::in_vector];
#pragma unroll
        for (int n = 0; n < MOST; ++n) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const uint4 none = {0, 0, 0, 0};
                T::unpack(n < queries ? load_now(query + n * SIZE + (j * LANES + lane) * T::in_vector) : none, q[n][j]);
            }
        }
        float m[MOST], l[MOST] = {}, acc[MOST][EACH][T::in_vector] = {};
#pragma unroll
        for (int n = 0; n < MOST; ++n) {
            m[n] = LOWEST;
        }
        for (; first < end; first += stride) {
            float score[DEPTH][MOST] = {};
            arrived_oldest();
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                float number[T::in_vector];
                T::unpack(k.get(i * 32 + threadIdx.x % 32), number);
#pragma unroll
                for (int n = 0; n < MOST; ++n) {
#pragma unroll
                    for (int e = 0; e < T::in_vector; ++e) {
                        score[i / EACH][n] = fmaf(number[e], q[n][i % EACH][e], score[i / EACH][n]);
                    }
                }
            }
            fetch(k, keys, first + AHEAD * stride, end, row, lane, 0);
            k.next();
            if (first + (AHEAD + 1) * stride >= end) {
                let_the_next_begin();
            }
#pragma unroll
            for (int n = 0; n < MOST; ++n) {
                float largest = m[n];
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) {
#pragma unroll
                    for (int apart = LANES / 2; apart > 0; apart /= 2) {
                        score[i][n] += __shfl_xor_sync(0xffffffffu, score[i][n], apart);
                    }
                    if (first + i * ROWS + row < end) {
                        largest = fmaxf(largest, score[i][n]);
                    }
                }
                const float keep = m[n] == largest ? 1.0f : weight_of(m[n], largest, scale_log2);
                m[n] = largest;
                l[n] *= keep;
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
#pragma unroll
                    for (int e = 0; e < T::in_vector; ++e) {
                        acc[n][j][e] *= keep;
                    }
                }
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) {
                    const bool there = first + i * ROWS + row < end;
                    const float weight = weight_of(score[i][n], largest, scale_log2);
                    // 0 x score: an infinite score is a fault of the cache and shows, though its weight be 0.
                    l[n] += there ? fmaf(score[i][n], 0.0f, weight) : 0.0f;
                    score[i][n] = there ? weight : 0.0f;
                }
            }
            arrived_oldest();
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                float number[T::in_vector];
                T::unpack(v.get(i * 32 + threadIdx.x % 32), number);
#pragma unroll
                for (int n = 0; n < MOST; ++n) {
#pragma unroll
                    for (int e = 0; e < T::in_vector; ++e) {
                        acc[n][i % EACH][e] = fmaf(score[i / EACH][n], number[e], acc[n][i % EACH][e]);
                    }
                }
            }
            fetch(v, values, first + AHEAD * stride, end, row, lane, 0);
            v.next();
        }
        arrived_all();
#if STAGES
        __syncthreads();
#endif
        const int part = warp * ROWS + row;
#pragma unroll
        for (int n = 0; n < MOST; ++n) {
            if (lane == 0) {
                shared.m[part][n] = m[n];
                shared.l[part][n] = l[n];
            }
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
#pragma unroll
                for (int e = 0; e < T::in_vector; e += 4) {
                    const float* four = acc[n][j] + e;
                    shared.put(part, n, (j * LANES + lane) * T::in_vector + e, four[0], four[1], four[2], four[3]);
                }
            }
        }
    }
};
