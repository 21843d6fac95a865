// Softmax-weighted sums over parts of the keys, and how parts become one.
//
// A part is, for each query, the largest score m, the sum l of exp(score - m), and the vector acc of the sums of
// exp(score - m) x value. Two parts become one after each was scaled by exp(its m - the larger m).

#pragma once

#define LOWEST __int_as_float(0xff800000)  // -infinity

// exp(scale x (score - largest)) for scores as they come out of K q; `scale_log2` is scale / ln 2.
__device__ __forceinline__ float weight_of(float score, float largest, float scale_log2) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(score, scale_log2, -largest * scale_log2)));
    return power;
}

// The parts of one block, in shared memory.
template <int PARTS, int MOST, int SIZE>
struct Parts {
    static const int queries = MOST;
    // Four more a row, so that rows written side by side do not meet in the same banks.
    float acc[PARTS][MOST][SIZE + 4];
    float m[PARTS][MOST];
    float l[PARTS][MOST];
    bool last;

    __device__ __forceinline__ void put(int part, int query, int place, float a, float b, float c, float d) {
        *(float4*)&acc[part][query][place] = make_float4(a, b, c, d);
    }

    // Calls `take(query, place, m, l, sum)` with the first `count` parts joined, for each place of each query's vector.
    template <typename Take>
    __device__ __forceinline__ void joined(int count, int queries, float scale_log2, Take take) const {
        for (int i = threadIdx.x; i < queries * SIZE; i += blockDim.x) {
            const int query = i / SIZE, place = i % SIZE;
            float largest = LOWEST, total = 0, sum = 0;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                if (part < count) {
                    largest = fmaxf(largest, m[part][query]);
                }
            }
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                if (part < count) {
                    const float weight = weight_of(m[part][query], largest, scale_log2);
                    total = fmaf(weight, l[part][query], total);
                    sum = fmaf(weight, acc[part][query][place], sum);
                }
            }
            take(query, place, largest, total, sum);
        }
    }
};

// One split of the keys as its block leaves it in device memory: m, l, two that pad, then acc.
template <int SIZE>
struct Split {
    static const int PITCH = SIZE + 4;
    float* figures;
    __device__ __forceinline__ Split(float* workspace, long long query, int split, int splits)
        : figures(workspace + (query * splits + split) * PITCH) {}
    __device__ __forceinline__ float* acc() const { return figures + 4; }
};

// A warp's share of the joining of splits: of one query, every n-th split.
template <int SIZE>
struct Share {
    static const int WIDTH = SIZE / 32;
    float m = LOWEST, l = 0, acc[WIDTH] = {};

    // BATCH splits are under way at once, those past the end with weight 0.
    __device__ __forceinline__ Share(float* workspace, long long query, int from, int every, int splits,
                                     float scale_log2) {
        const int BATCH = 8, lane = threadIdx.x % 32;
        for (int first = from; first < splits; first += BATCH * every) {
            float their_m[BATCH], their_l[BATCH];
            float2 their_acc[BATCH][WIDTH / 2];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const int split = first + b * every;
                const Split<SIZE> theirs(workspace, query, min(split, splits - 1), splits);
                their_m[b] = split < splits ? __ldcg(theirs.figures) : LOWEST;
                their_l[b] = __ldcg(theirs.figures + 1);
#pragma unroll
                for (int i = 0; i < WIDTH / 2; ++i) {
                    their_acc[b][i] = __ldcg((const float2*)theirs.acc() + lane * WIDTH / 2 + i);
                }
            }
            float larger = m;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                larger = fmaxf(larger, their_m[b]);
            }
            const float keep = weight_of(m, larger, scale_log2);
            l *= keep;
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) {
                acc[i] *= keep;
            }
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const float weight = weight_of(their_m[b], larger, scale_log2);
                l = fmaf(weight, their_l[b], l);
#pragma unroll
                for (int i = 0; i < WIDTH / 2; ++i) {
                    acc[2 * i] = fmaf(weight, their_acc[b][i].x, acc[2 * i]);
                    acc[2 * i + 1] = fmaf(weight, their_acc[b][i].y, acc[2 * i + 1]);
                }
            }
            m = larger;
        }
    }
};

// Joins a block's parts and writes the result; where the keys are split among blocks, the block that comes last joins
// the splits. `first` is the first of the block's `queries` queries in the whole batch; `arrived` counts the blocks
// of these queries that are done, and is 0 again at the end.
template <typename T, int PARTS, int MOST, int SIZE>
__device__ __forceinline__ void finish(Parts<PARTS, MOST, SIZE>& parts, typename T::stored* out, float* workspace,
                                       unsigned int* arrived, long long first, int queries, int split, int splits,
                                       float scale_log2) {
    const auto write = [&](int query, int place, float, float l, float sum) {
        out[(first + query) * SIZE + place] = T::rounded(sum / l);
    };
    __syncthreads();
    if (splits == 1) {
        parts.joined(PARTS, queries, scale_log2, write);
        return;
    }
    parts.joined(PARTS, queries, scale_log2, [&](int query, int place, float m, float l, float sum) {
        const Split<SIZE> mine(workspace, first + query, split, splits);
        mine.acc()[place] = sum;
        if (place == 0) {
            mine.figures[0] = m;
            mine.figures[1] = l;
        }
    });
    __syncthreads();
    if (threadIdx.x == 0) {
        // The first thread speaks for its block: what the others wrote before the barrier is released with it.
        __threadfence();
        parts.last = atomicAdd(arrived, 1) == splits - 1;
        __threadfence();
    }
    __syncthreads();
    if (!parts.last) {
        return;
    }
    // So many warps share a query's splits as there are warps for each query; each leaves a part in shared memory.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int sharing = queries < WARPS ? WARPS / queries : 1;
    for (int item = warp; item < queries * sharing; item += WARPS) {
        const int query = item % queries, part = item / queries;
        const Share<SIZE> share(workspace, first + query, part, sharing, splits, scale_log2);
        parts.m[part][query] = share.m;
        parts.l[part][query] = share.l;
#pragma unroll
        for (int i = 0; i < Share<SIZE>::WIDTH; ++i) {
            parts.acc[part][query][lane * Share<SIZE>::WIDTH + i] = share.acc[i];
        }
    }
    __syncthreads();
    parts.joined(sharing, queries, scale_log2, write);
    if (threadIdx.x == 0) {
        *arrived = 0;
    }
}
