// One pass over keys and values by multiply-adds: every dtype, every card.
//
// LANES lanes hold a row of SIZE numbers, so that a warp reads ROWS rows at a time; each group of lanes keeps a part of
// its own over the rows that it meets.

#pragma once

// Sums each of COUNT numbers over 2 x APART lanes. A lane is left with those of its own in front: half of them while
// there are several, by each bit of its number.
template <int APART, int COUNT>
__device__ __forceinline__ void sum_over_lanes(float (&number)[COUNT], int lane) {
    if constexpr (APART > 0) {
        if constexpr (COUNT > 1) {
            const bool upper = lane & APART;
            float half[COUNT / 2];
#pragma unroll
            for (int i = 0; i < COUNT / 2; ++i) {
                const float sent = upper ? number[i] : number[i + COUNT / 2];
                half[i] = (upper ? number[i + COUNT / 2] : number[i]) + __shfl_xor_sync(0xffffffffu, sent, APART);
            }
            sum_over_lanes<APART / 2>(half, lane);
#pragma unroll
            for (int i = 0; i < COUNT / 2; ++i) {
                number[i] = half[i];
            }
        } else {
            number[0] += __shfl_xor_sync(0xffffffffu, number[0], APART);
            sum_over_lanes<APART / 2>(number, lane);
        }
    }
}

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
    static const int SCORES = DEPTH * MOST;          // of a tile, a query's rows side by side
    static const int HELD = SCORES > LANES ? SCORES / LANES : 1;   // of them that a lane is left with, of one query
    static const int ALIKE = SCORES < LANES ? LANES / SCORES : 1;  // lanes that are left with the same one
    static const int OF_QUERY = LANES / MOST;                      // lanes that are left with a query's scores
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

    // Of the tile's rows that a lane meets, the one that its j-th score is of.
    static __device__ __forceinline__ int row_of(int lane, int j) { return (lane / ALIKE * HELD + j) % DEPTH; }

    // Keys begin <= i < end, the last one written by the kernel before where it is the `newest`, with `query` at the first of `queries` vectors; leaves its parts in `shared`, which takes
    // the place of `room` once all are done with it.
    static __device__ __forceinline__ void attend(Shared& shared, char* room, const typename T::stored* query,
                                                  int queries, const typename T::stored* keys,
                                                  const typename T::stored* values, int begin, int end,
                                                  bool newest, float scale_log2) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % LANES, row = threadIdx.x % 32 / LANES;
        const int stride = WARPS * TILE;
        int first = begin + warp * TILE;
        Feed<LOADS> k(room), v(room + WARPS * Feed<LOADS>::BYTES_A_WARP);
        if (newest && first + AHEAD * stride >= end) wait_for_kernel_before();
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead) {
            fetch(k, keys, first + ahead * stride, end, row, lane, ahead);
            fetch(v, values, first + ahead * stride, end, row, lane, ahead);
        }
        if (several_waves() || first + AHEAD * stride >= end) {
            let_next_begin();
        }
        wait_for_kernel_before();  // the cache is there already; the query may come from that one
        float q[MOST][EACH][T::in_vector];
#pragma unroll
        for (int n = 0; n < MOST; ++n) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const uint4 none = {0, 0, 0, 0};
                T::unpack(n < queries ? load_now(query + n * SIZE + (j * LANES + lane) * T::in_vector) : none, q[n][j]);
            }
        }
        float m = LOWEST, l = 0;  // of this lane's query and of its scores
        float acc[MOST][EACH][T::in_vector] = {};
        for (; first < end; first += stride) {
            float score[SCORES] = {};
            arrived_oldest();
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                float number[T::in_vector];
                T::unpack(k.get(i * 32 + threadIdx.x % 32), number);
#pragma unroll
                for (int n = 0; n < MOST; ++n) {
#pragma unroll
                    for (int e = 0; e < T::in_vector; ++e) {
                        float& sum = score[n * DEPTH + i / EACH];
                        sum = fmaf(number[e], q[n][i % EACH][e], sum);
                    }
                }
            }
            fetch(k, keys, first + AHEAD * stride, end, row, lane, 0);
            k.next();
            if (first + (AHEAD + 1) * stride >= end) {
                let_next_begin();
            }
            sum_over_lanes<LANES / 2>(score, lane);
            float largest = m;
#pragma unroll
            for (int j = 0; j < HELD; ++j) {
                if (first + row_of(lane, j) * ROWS + row < end) {
                    largest = fmaxf(largest, score[j]);
                }
            }
#pragma unroll
            for (int apart = OF_QUERY / 2; apart > 0; apart /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, apart));
            }
            const float keep = m == largest ? 1.0f : weight_of(m, largest, scale_log2);
            m = largest;
            l *= keep;
#pragma unroll
            for (int j = 0; j < HELD; ++j) {
                const bool there = first + row_of(lane, j) * ROWS + row < end;
                const float weight = weight_of(score[j], largest, scale_log2);
                // 0 x score: an infinite score is a fault of the cache and shows, though its weight be 0.
                l += there ? fmaf(score[j], 0.0f, weight) : 0.0f;
                score[j] = there ? weight : 0.0f;
            }
#pragma unroll
            for (int n = 0; n < MOST; ++n) {
                const float of_query = __shfl_sync(0xffffffffu, keep, n * OF_QUERY, LANES);
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
#pragma unroll
                    for (int e = 0; e < T::in_vector; ++e) {
                        acc[n][j][e] *= of_query;
                    }
                }
            }
            float weight[SCORES];
#pragma unroll
            for (int i = 0; i < SCORES; ++i) {
                weight[i] = __shfl_sync(0xffffffffu, score[i % HELD], i / HELD * ALIKE, LANES);
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
                        float& sum = acc[n][i % EACH][e];
                        sum = fmaf(weight[n * DEPTH + i / EACH], number[e], sum);
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
        l = lane % ALIKE ? 0.0f : l;
#pragma unroll
        for (int apart = OF_QUERY / 2; apart > 0; apart /= 2) {
            l += __shfl_xor_sync(0xffffffffu, l, apart);
        }
        if (lane % OF_QUERY == 0) {
            shared.m[part][lane / OF_QUERY] = m;
            shared.l[part][lane / OF_QUERY] = l;
        }
#pragma unroll
        for (int n = 0; n < MOST; ++n) {
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
