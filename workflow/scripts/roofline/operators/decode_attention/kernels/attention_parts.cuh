// Softmax-weighted sums over parts of the keys, and how parts are joined.
//
// A part has for each query the largest score (running_max), the sum of exp(score - running_max) (weight_sum), and the
// vector of the sums of exp(score - running_max) x value (weighted_values). Two parts are joined by addition, after
// each was scaled by exp(its running_max - the larger running_max). The result is weighted_values / weight_sum.

#pragma once

#define LOWEST __int_as_float(0xff800000)  // -infinity

// exp(scale x (score - largest)) for scores as they come out of K q; `scale_log2` is scale / ln 2.
__device__ __forceinline__ float weight_of(float score, float largest, float scale_log2) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(score, scale_log2, -largest * scale_log2)));
    return power;
}

// The parts of one block, in shared memory, of up to MOST_QUERIES queries with vectors of SIZE numbers.
template <int PARTS, int MOST_QUERIES, int SIZE>
struct Parts {
    static const int most_queries = MOST_QUERIES;
    // A row has four numbers more, so that rows written side by side do not meet in the same banks.
    float weighted_values[PARTS][MOST_QUERIES][SIZE + 4];
    float running_max[PARTS][MOST_QUERIES];
    float weight_sum[PARTS][MOST_QUERIES];
    bool is_last_block;

    __device__ __forceinline__ void put(int part, int query, int dimension, float a, float b, float c, float d) {
        *(float4*)&weighted_values[part][query][dimension] = make_float4(a, b, c, d);
    }

    // Joins the first `count` parts: calls write_sum(query, dimension, running_max, weight_sum, weighted value) for
    // each dimension of each query's vector. The threads of the block take the dimensions in turn.
    template <typename WriteSum>
    __device__ __forceinline__ void join(int count, int queries, float scale_log2, WriteSum write_sum) const {
        for (int i = threadIdx.x; i < queries * SIZE; i += blockDim.x) {
            const int query = i / SIZE, dimension = i % SIZE;
            float largest = LOWEST, total_weight = 0, sum = 0;
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                if (part < count) largest = fmaxf(largest, running_max[part][query]);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                if (part < count) {
                    const float weight = weight_of(running_max[part][query], largest, scale_log2);
                    total_weight = fmaf(weight, weight_sum[part][query], total_weight);
                    sum = fmaf(weight, weighted_values[part][query][dimension], sum);
                }
            }
            write_sum(query, dimension, largest, total_weight, sum);
        }
    }
};

// The part of one split of the keys, as its block leaves it in device memory: values[0] is running_max, values[1]
// weight_sum, two numbers are padding, then come the weighted_values.
template <int SIZE>
struct Split {
    static const int PITCH = SIZE + 4;
    float* values;
    __device__ __forceinline__ Split(float* workspace, long long query, int split, int splits)
        : values(workspace + (query * splits + split) * PITCH) {}
    __device__ __forceinline__ float* weighted_values() const { return values + 4; }
};

// The splits that one warp joins, of one query: every `every`-th from `first_split` on. A lane has WIDTH dimensions.
template <int SIZE>
struct JoinedSplits {
    static const int WIDTH = SIZE / 32;
    float running_max = LOWEST, weight_sum = 0, weighted_values[WIDTH] = {};

    // BATCH splits are loaded at once, those past the end with weight 0.
    __device__ __forceinline__ JoinedSplits(float* workspace, long long query, int first_split, int every, int splits,
                                            float scale_log2) {
        const int BATCH = 8, lane = threadIdx.x % 32;
        for (int first = first_split; first < splits; first += BATCH * every) {
            float their_max[BATCH], their_sum[BATCH];
            float2 their_values[BATCH][WIDTH / 2];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const int split = first + b * every;
                const Split<SIZE> theirs(workspace, query, min(split, splits - 1), splits);
                their_max[b] = split < splits ? __ldcg(theirs.values) : LOWEST;
                their_sum[b] = __ldcg(theirs.values + 1);
#pragma unroll
                for (int i = 0; i < WIDTH / 2; ++i)
                    their_values[b][i] = __ldcg((const float2*)theirs.weighted_values() + lane * WIDTH / 2 + i);
            }
            float larger = running_max;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) larger = fmaxf(larger, their_max[b]);
            const float rescale = weight_of(running_max, larger, scale_log2);
            weight_sum *= rescale;
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) weighted_values[i] *= rescale;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const float weight = weight_of(their_max[b], larger, scale_log2);
                weight_sum = fmaf(weight, their_sum[b], weight_sum);
#pragma unroll
                for (int i = 0; i < WIDTH / 2; ++i) {
                    weighted_values[2 * i] = fmaf(weight, their_values[b][i].x, weighted_values[2 * i]);
                    weighted_values[2 * i + 1] = fmaf(weight, their_values[b][i].y, weighted_values[2 * i + 1]);
                }
            }
            running_max = larger;
        }
    }
};

// Joins a block's parts and writes the result. Where the keys are split among blocks, each block leaves its part in
// `workspace`, and the block that finishes last joins the splits. `first_query` is the first of the block's `queries`
// queries in the whole batch; `arrived` counts the blocks of these queries that are done; it is 0 before and after.
template <typename T, int PARTS, int MOST_QUERIES, int SIZE>
__device__ __forceinline__ void join_and_write(Parts<PARTS, MOST_QUERIES, SIZE>& parts, typename T::stored* out,
                                               float* workspace, unsigned int* arrived, long long first_query,
                                               int queries, int split, int splits, float scale_log2,
                                               float value_scale) {
    const auto write_result = [&](int query, int dimension, float, float weight_sum, float sum) {
        out[(first_query + query) * SIZE + dimension] = T::round(sum / weight_sum * value_scale);
    };
    __syncthreads();
    if (splits == 1) {
        parts.join(PARTS, queries, scale_log2, write_result);
        return;
    }
    parts.join(PARTS, queries, scale_log2,
               [&](int query, int dimension, float running_max, float weight_sum, float sum) {
                   const Split<SIZE> block_split(workspace, first_query + query, split, splits);
                   block_split.weighted_values()[dimension] = sum;
                   if (dimension == 0) {
                       block_split.values[0] = running_max;
                       block_split.values[1] = weight_sum;
                   }
               });
    __syncthreads();
    if (threadIdx.x == 0) {
        // The first thread releases what all threads of its block wrote before the barrier.
        __threadfence();
        parts.is_last_block = atomicAdd(arrived, 1) == splits - 1;
        __threadfence();
    }
    __syncthreads();
    if (!parts.is_last_block) return;
    // The warps of the block divide the splits of each query; each leaves a part in shared memory.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warps_per_query = queries < WARPS ? WARPS / queries : 1;
    for (int item = warp; item < queries * warps_per_query; item += WARPS) {
        const int query = item % queries, part = item / queries;
        const JoinedSplits<SIZE> joined(workspace, first_query + query, part, warps_per_query, splits, scale_log2);
        parts.running_max[part][query] = joined.running_max;
        parts.weight_sum[part][query] = joined.weight_sum;
#pragma unroll
        for (int i = 0; i < JoinedSplits<SIZE>::WIDTH; ++i)
            parts.weighted_values[part][query][lane * JoinedSplits<SIZE>::WIDTH + i] = joined.weighted_values[i];
    }
    __syncthreads();
    parts.join(warps_per_query, queries, scale_log2, write_result);
    if (threadIdx.x == 0) *arrived = 0;
}
