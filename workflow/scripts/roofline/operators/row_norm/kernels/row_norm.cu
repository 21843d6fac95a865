// Normalise each row: y = (x - mean) / standard deviation, and 0 where the deviation is 0. fp32.
//
// Every row is shifted by its first number before anything is summed. Differences of like numbers are exact, so that a
// large offset costs no accuracy and a constant row has a deviation of exactly 0.
//
// Compiled for one division of the work at a time: WIDTH numbers per access, THREADS per row (a power of two), VECTORS
// of WIDTH numbers that each thread holds in registers, ROWS per block, EVEN where the threads hold all of a row and
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
typedef float4 Pack;
#elif WIDTH == 2
typedef float2 Pack;
#else
typedef float Pack;
#endif

union Vector {
    Pack pack;
    float of[WIDTH];
};

// Of so many numbers their mean, and the sum of the squares of their distances from it (Welford 1962).
struct Moments {
    float count, mean, squares;

    // Joined with those of as many other numbers (Chan, Golub, LeVeque 1979).
    __device__ __forceinline__ void join_equal(float other_mean, float other_squares) {
        const float apart = other_mean - mean;
        mean = fmaf(0.5f, apart, mean);
        squares = fmaf(0.5f * count * apart, apart, squares + other_squares);
        count *= 2;
    }

    __device__ __forceinline__ void join(float other_count, float other_mean, float other_squares) {
        const float sum = count + other_count, apart = other_mean - mean;
        const float share = sum > 0 ? __fdividef(other_count, sum) : 0.0f;
        mean = fmaf(share, apart, mean);
        squares = fmaf(share * count * apart, apart, squares + other_squares);
        count = sum;
    }

    // Over the first SIZE lanes of every 32, or over each SIZE of them.
    template <int SIZE, bool EQUAL>
    __device__ __forceinline__ void join_lanes() {
#pragma unroll
        for (int lane = 1; lane < SIZE; lane *= 2) {
            const float other_mean = __shfl_xor_sync(0xffffffffu, mean, lane);
            const float other_squares = __shfl_xor_sync(0xffffffffu, squares, lane);
            if (EQUAL) {
                join_equal(other_mean, other_squares);
            } else {
                join(__shfl_xor_sync(0xffffffffu, count, lane), other_mean, other_squares);
            }
        }
    }
};

// Welford's update of WIDTH series side by side, by their `number`-th numbers.
struct Series {
    float mean[WIDTH], squares[WIDTH];

    __device__ __forceinline__ void add(const Vector& v, float share) {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            const float apart = v.of[i] - mean[i];
            mean[i] = fmaf(share, apart, mean[i]);
            squares[i] = fmaf(apart, v.of[i] - mean[i], squares[i]);
        }
    }

    __device__ __forceinline__ Moments joined(float count) const {
        Moments all[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            all[i] = {count, mean[i], squares[i]};
        }
#pragma unroll
        for (int apart = 1; apart < WIDTH; apart *= 2) {
#pragma unroll
            for (int i = 0; i + apart < WIDTH; i += 2 * apart) {
                all[i].join_equal(all[i + apart].mean, all[i + apart].squares);
            }
        }
        return all[0];
    }
};

__device__ __forceinline__ Vector loaded(const float* row, int place) {
    Vector v;
    v.pack = ((const Pack*)row)[place];
    return v;
}

__device__ __forceinline__ void shift(Vector& v, float by) {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        v.of[i] -= by;
    }
}

__device__ __forceinline__ void store(float* row, int place, const Vector& v, float mean, float scale) {
    Vector out;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        out.of[i] = (v.of[i] - mean) * scale;
    }
    ((Pack*)row)[place] = out.pack;
}

static const int WARPS = THREADS > 32 ? THREADS / 32 : 1;  // of a row
static const int LANES = THREADS > 32 ? 32 : THREADS;      // of a row within a warp

// What a thread holds of a row.
struct Held {
    Vector v[VECTORS];
    float first;  // number of the row

    __device__ __forceinline__ void load(const float* row, int thread, int vectors) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            const int place = i * THREADS + thread;
            if (EVEN || place < vectors) {
                v[i] = loaded(row, place);
            }
        }
        if (WARPS > 1) {
            first = row[0];
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS * ROWS) row_norm(const float* x, float* y, int rows, int columns) {
    const int thread = threadIdx.x % THREADS, own = threadIdx.x / THREADS, vectors = columns / WIDTH;
    // Of a row past the end the last one, which is then not written: lanes exchange numbers, and all must be there.
    const int row = blockIdx.x * ROWS + own;
    const float* from = x + (long long)min(row, rows - 1) * columns;
    float* to = y + (long long)row * columns;
    Held held;
    __shared__ Moments parts[ROWS][WARPS];
    wait_for_kernel_before();
    held.load(from, thread, vectors);
    let_next_begin();
    const float by = WARPS > 1 ? held.first : __shfl_sync(0xffffffffu, held.v[0].of[0], 0, LANES);
    Series series = {};
    int count = EVEN ? VECTORS : 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        if (EVEN || i * THREADS + thread < vectors) {
            shift(held.v[i], by);
            series.add(held.v[i], 1.0f / (i + 1));
            if (!EVEN) {
                ++count;
            }
        }
    }
    // What registers do not hold is read here, and once more below.
    for (int place = VECTORS * THREADS + thread; !EVEN && place < vectors; place += THREADS) {
        Vector v = loaded(from, place);
        shift(v, by);
        series.add(v, __fdividef(1.0f, ++count));
    }
    Moments all = series.joined(count);
    all.join_lanes<LANES, EVEN>();
    if (WARPS > 1) {
        if (thread % 32 == 0) {
            parts[own][thread / 32] = all;
        }
        __syncthreads();
        all = parts[own][thread % WARPS];
        all.join_lanes<WARPS, EVEN>();
    }
    const float variance = all.squares / columns;
    const float scale = variance == 0 ? 0.0f : rsqrtf(variance);
    if (row < rows) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            const int place = i * THREADS + thread;
            if (EVEN || place < vectors) {
                store(to, place, held.v[i], all.mean, scale);
            }
        }
        for (int place = VECTORS * THREADS + thread; !EVEN && place < vectors; place += THREADS) {
            Vector v = loaded(from, place);
            shift(v, by);
            store(to, place, v, all.mean, scale);
        }
    }
}

// As many arguments, and nothing to do.
extern "C" __global__ void nothing(const float* x, float* y, int rows, int columns) {}
