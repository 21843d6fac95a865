// Normalise each row: y = (x - mean) / standard deviation, and 0 where the deviation is 0. fp32.
//
// Every row is shifted by its first number before anything is summed. Differences of like numbers are exact, so that a
// large offset costs no accuracy and a constant row has a deviation of exactly 0.
//
// Compiled for one division of the work at a time: WIDTH numbers per access (a vector), THREADS per row (a power of
// two), VECTORS that each thread holds in registers, ROWS per block, EVEN where the threads hold all of a row and
// equally many numbers each.

#ifndef WIDTH
#define WIDTH 4
#define THREADS 32
#define VECTORS 8
#define ROWS 2
#define EVEN 0
#endif

#include "../../../devices/gpu/kernels/programmatic_launch.cuh"

#if WIDTH == 4
typedef float4 VectorType;
#elif WIDTH == 2
typedef float2 VectorType;
#else
typedef float VectorType;
#endif

union Vector {
    VectorType vector;
    float value[WIDTH];
};

// The mean of `count` numbers, and the sum of the squares of their distances from it (Welford 1962).
struct Moments {
    float count, mean, squares;

    // Merges those of as many other numbers (Chan, Golub, LeVeque 1979).
    __device__ __forceinline__ void merge_equal(float other_mean, float other_squares) {
        const float difference = other_mean - mean;
        mean = fmaf(0.5f, difference, mean);
        squares = fmaf(0.5f * count * difference, difference, squares + other_squares);
        count *= 2;
    }

    __device__ __forceinline__ void merge(float other_count, float other_mean, float other_squares) {
        const float sum = count + other_count, difference = other_mean - mean;
        const float share = sum > 0 ? __fdividef(other_count, sum) : 0.0f;
        mean = fmaf(share, difference, mean);
        squares = fmaf(share * count * difference, difference, squares + other_squares);
        count = sum;
    }

    // Merges the moments of each SIZE neighbouring lanes, which all receive the result. EQUAL: all have the same count.
    template <int SIZE, bool EQUAL>
    __device__ __forceinline__ void merge_lanes() {
#pragma unroll
        for (int distance = 1; distance < SIZE; distance *= 2) {
            const float other_mean = __shfl_xor_sync(0xffffffffu, mean, distance);
            const float other_squares = __shfl_xor_sync(0xffffffffu, squares, distance);
            if (EQUAL) {
                merge_equal(other_mean, other_squares);
            } else {
                merge(__shfl_xor_sync(0xffffffffu, count, distance), other_mean, other_squares);
            }
        }
    }
};

// Welford's update of WIDTH series side by side: of the i-th numbers of all vectors for each i.
struct Series {
    float mean[WIDTH], squares[WIDTH];

    // Adds the n-th vector; `share` is 1 / n.
    __device__ __forceinline__ void add(const Vector& v, float share) {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            const float difference = v.value[i] - mean[i];
            mean[i] = fmaf(share, difference, mean[i]);
            squares[i] = fmaf(difference, v.value[i] - mean[i], squares[i]);
        }
    }

    // The moments of all series together, of `count` numbers each.
    __device__ __forceinline__ Moments merged(float count) const {
        Moments moments[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) moments[i] = {count, mean[i], squares[i]};
#pragma unroll
        for (int distance = 1; distance < WIDTH; distance *= 2)
#pragma unroll
            for (int i = 0; i + distance < WIDTH; i += 2 * distance)
                moments[i].merge_equal(moments[i + distance].mean, moments[i + distance].squares);
        return moments[0];
    }
};

__device__ __forceinline__ Vector load(const float* row, int index) {
    Vector v;
    v.vector = ((const VectorType*)row)[index];
    return v;
}

__device__ __forceinline__ void shift(Vector& v, float shift_by) {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) v.value[i] -= shift_by;
}

// Stores a vector normalised.
__device__ __forceinline__ void store(float* row, int index, const Vector& v, float mean, float scale) {
    Vector out;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) out.value[i] = (v.value[i] - mean) * scale;
    ((VectorType*)row)[index] = out.vector;
}

static const int WARPS = THREADS > 32 ? THREADS / 32 : 1;  // of a row
static const int LANES = THREADS > 32 ? 32 : THREADS;      // of a row within a warp

// What a thread holds of a row: every THREADS-th vector.
struct RowInRegisters {
    Vector v[VECTORS];
    float first;  // number of the row, where several warps share it

    __device__ __forceinline__ void load_row(const float* row, int thread, int vectors) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            const int index = i * THREADS + thread;
            if (EVEN || index < vectors) v[i] = load(row, index);
        }
        if (WARPS > 1) first = row[0];
    }
};

// x and y [rows, columns], columns a multiple of WIDTH. A block has ROWS rows, THREADS threads for each. What registers
// do not hold of a row is read twice.
extern "C" __global__ void __launch_bounds__(THREADS * ROWS) row_norm(const float* x, float* y, int rows, int columns) {
    const int thread = threadIdx.x % THREADS, row_in_block = threadIdx.x / THREADS, vectors = columns / WIDTH;
    // Threads of a row past the end read the last row, and write nothing: all lanes take part in exchanges.
    const int row = blockIdx.x * ROWS + row_in_block;
    const float* x_row = x + (long long)min(row, rows - 1) * columns;
    float* y_row = y + (long long)row * columns;
    RowInRegisters row_vectors;
    __shared__ Moments warp_moments[ROWS][WARPS];
    wait_for_kernel_before();
    row_vectors.load_row(x_row, thread, vectors);
    let_next_begin();
    const float shift_by =
        WARPS > 1 ? row_vectors.first : __shfl_sync(0xffffffffu, row_vectors.v[0].value[0], 0, LANES);
    Series series = {};
    int count = EVEN ? VECTORS : 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        if (EVEN || i * THREADS + thread < vectors) {
            shift(row_vectors.v[i], shift_by);
            series.add(row_vectors.v[i], 1.0f / (i + 1));
            if (!EVEN) ++count;
        }
    }
    for (int index = VECTORS * THREADS + thread; !EVEN && index < vectors; index += THREADS) {
        Vector v = load(x_row, index);
        shift(v, shift_by);
        series.add(v, __fdividef(1.0f, ++count));
    }
    Moments moments = series.merged(count);
    moments.merge_lanes<LANES, EVEN>();
    if (WARPS > 1) {
        if (thread % 32 == 0) warp_moments[row_in_block][thread / 32] = moments;
        __syncthreads();
        moments = warp_moments[row_in_block][thread % WARPS];
        moments.merge_lanes<WARPS, EVEN>();
    }
    const float variance = moments.squares / columns;
    const float scale = variance == 0 ? 0.0f : rsqrtf(variance);
    if (row < rows) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            const int index = i * THREADS + thread;
            if (EVEN || index < vectors) store(y_row, index, row_vectors.v[i], moments.mean, scale);
        }
        for (int index = VECTORS * THREADS + thread; !EVEN && index < vectors; index += THREADS) {
            Vector v = load(x_row, index);
            shift(v, shift_by);
            store(y_row, index, v, moments.mean, scale);
        }
    }
}
