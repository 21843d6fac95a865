// y = (x / sqrt(mean(x^2) + eps) * g) W^T in one kernel, summed in fp32, by mma.sync: on cards other than Hopper's.
//
// W streams through the tensor cores as their large operand, 16 of its rows a warp, and x is the small one. A block takes
// COLUMNS outputs and a share of k. The shares of the same outputs meet in device memory: the block that comes last adds
// them up in a fixed order, multiplies by 1 / sqrt(mean(x^2) + eps) and writes.
//
// Compiled for one dtype, division of the work and number of rows at a time: BF16 or fp16, BATCH rows of x and COLUMNS
// outputs a block, SPLITS of k, STAGES under way, at least BLOCKS resident per multiprocessor.

#ifndef BF16
#define BF16 0
#define BATCH 8
#define COLUMNS 128
#define SPLITS 4
#define STAGES 3
#define BLOCKS 2
#endif

#include "../../gemm/kernels/mma.cuh"

const int DEPTH = 64;  // of k, a stage: 128 bytes
const int ROW_BYTES = DEPTH * 2;
const int ROWS = COLUMNS + BATCH + 1;  // of a stage: of W, of x, and g
const int STAGE_BYTES = ROWS * ROW_BYTES;
const int THREADS = COLUMNS * 2;
const int REACH = THREADS / 8, LOADS = (ROWS + REACH - 1) / REACH;  // rows that all threads load at once, so many times
const int EIGHTS = BATCH / 8;
const int PIECES = (BATCH + REACH - 1) / REACH;  // rows of x of which a thread squares one chunk
const int PART = COLUMNS * BATCH + BATCH;        // a block's sums and the squares of its rows of x, in the workspace

// Where 16 bytes of a stage lie: of 8 rows in turn, the same chunk lies in 8 different sets of banks.
__device__ __forceinline__ u32 place_of(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

__device__ __forceinline__ int row_of(int piece) { return threadIdx.x / 8 + piece * REACH; }

// A block's rows of W and of x, and its share of k.
struct Share {
    const half_bits *w, *x, *g;
    int outputs, rows;  // that there are from the block's first on
    int hidden, first, end;

    // The first stages of W, which may come to the L2 before the kernel before is done.
    __device__ __forceinline__ void prefetch() const {
#if __CUDA_ARCH__ >= 900
        for (int i = threadIdx.x; i < (STAGES - 1) * COLUMNS; i += THREADS) {
            const int k = first + i / COLUMNS * DEPTH, row = i % COLUMNS;
            if (k < end && row < outputs)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(w + (long long)row * hidden + k));
        }
#endif
    }

    // A thread loads the same chunk of every n-th row. Beyond the end it is zeros that nobody reads.
    __device__ __forceinline__ void begin(Transfer (&transfers)[LOADS], int step, u32 stage) const {
        const int chunk = threadIdx.x % 8, k = first + step * DEPTH + chunk * 8;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int row = row_of(i), of_x = row - COLUMNS;
            const half_bits* from = of_x < 0 ? w + (long long)row * hidden : x + (long long)of_x * hidden;
            bool there = of_x < 0 ? row < outputs : of_x < rows;
            if (of_x == BATCH) from = g, there = true;
            if (row < ROWS) transfers[i].begin(stage + place_of(row, chunk), from + k, there && k < end);
        }
        transfers_queued();
    }
    static __device__ __forceinline__ void finish(const Transfer (&transfers)[LOADS]) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            if (row_of(i) < ROWS) transfers[i].end();
    }
};

// Of a stage: 16 rows of W, each times g, by all rows of x.
__device__ __forceinline__ void multiply(float (&sums)[EIGHTS][4], u32 stage) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 factors = stage + (COLUMNS + BATCH) * ROW_BYTES + lane % 4 * 4;
#pragma unroll
    for (int pair = 0; pair < DEPTH / 32; ++pair) {
        u32 of_w[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int slice = 2 * pair + i;
            load_matrices(of_w[i], stage + place_of(warp * 16 + lane % 16, 2 * slice + lane / 16));
            const u32 low = load_word(factors + slice * 32);
            const u32 high = load_word(factors + slice * 32 + 16);
            of_w[i][0] = times(of_w[i][0], low), of_w[i][1] = times(of_w[i][1], low);
            of_w[i][2] = times(of_w[i][2], high), of_w[i][3] = times(of_w[i][3], high);
        }
#pragma unroll
        for (int j = 0; j < EIGHTS; ++j) {
            u32 of_x[4];
            load_matrices(of_x, stage + place_of(COLUMNS + j * 8 + lane % 8, 4 * pair + lane / 8));
            multiply_add(sums[j], of_w[0], of_x[0], of_x[1]);
            multiply_add(sums[j], of_w[1], of_x[2], of_x[3]);
        }
    }
}

// x [batch, hidden], w [outputs, hidden], g [hidden], y [batch, outputs], hidden and outputs multiples of 8. Blocks:
// (SPLITS for each COLUMNS outputs, BATCH rows of x). `workspace` has PART floats a block; `arrived` counts the blocks
// of the same outputs and rows that are done, and is 0 again at the end.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    rmsnorm_matmul(const half_bits* x, const half_bits* w, const u32* g, half_bits* y, float* workspace,
                   unsigned int* arrived, int batch, int outputs, int hidden, float eps) {
    extern __shared__ __align__(128) char room[];
    __shared__ float factors[BATCH];
    __shared__ bool last;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.x % SPLITS;
    const int column = blockIdx.x / SPLITS * COLUMNS, row = blockIdx.y * BATCH;
    const int all = (hidden + DEPTH - 1) / DEPTH, slice = all * split / SPLITS;
    const int steps = all * (split + 1) / SPLITS - slice;
    Share share;
    share.w = w + (long long)column * hidden, share.x = x + (long long)row * hidden, share.g = (const half_bits*)g;
    share.outputs = outputs - column, share.rows = batch - row, share.hidden = hidden;
    share.first = slice * DEPTH, share.end = min(hidden, share.first + steps * DEPTH);
    const u32 stages = shared_address(room);
    Transfer transfers[LOADS];

    share.prefetch();
    wait_for_kernel_before();  // it may have written x, and may use the workspace; W and g are parameters
    for (int step = 0; step < STAGES - 1; ++step) {
        share.begin(transfers, step, stages + step * STAGE_BYTES);
        Share::finish(transfers);
    }
    if (steps < STAGES) let_next_begin();
    float sums[EIGHTS][4] = {}, squares[PIECES] = {};
    for (int step = 0; step < steps; ++step) {
        transfers_wait<STAGES - 2>();
        __syncthreads();  // the stage is whole, and all are done with the one before it
        const int ahead = step + STAGES - 1;
        share.begin(transfers, ahead, stages + ahead % STAGES * STAGE_BYTES);
        if (ahead + 1 == steps) let_next_begin();
        const u32 stage = stages + step % STAGES * STAGE_BYTES;
        multiply(sums, stage);
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int of_x = row_of(i);
            if (of_x < BATCH) squares[i] += square(load_shared(stage + place_of(COLUMNS + of_x, threadIdx.x % 8)));
        }
        Share::finish(transfers);
    }
    transfers_wait<0>();

    const long long set = (long long)blockIdx.y * (gridDim.x / SPLITS) + blockIdx.x / SPLITS;
    float* const parts = workspace + set * SPLITS * PART;
    float4* const place = (float4*)parts + (warp * EIGHTS * 32 + lane);  // of the first split, in the lanes' order
    if (SPLITS > 1) {
#pragma unroll
        for (int j = 0; j < EIGHTS; ++j)
            place[split * (PART / 4) + j * 32] = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    }
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        for (int apart = 4; apart; apart /= 2) squares[i] += __shfl_xor_sync(0xffffffff, squares[i], apart);
        if (row_of(i) < BATCH && threadIdx.x % 8 == 0) parts[split * PART + COLUMNS * BATCH + row_of(i)] = squares[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        // The first thread speaks for its block: what the others wrote before the barrier is released with it.
        __threadfence();
        last = atomicAdd(arrived + set, 1) == SPLITS - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) arrived[set] = 0;
    if (threadIdx.x < BATCH) {
        float sum = 0;
        for (int from = 0; from < SPLITS; ++from) sum += __ldcg(parts + from * PART + COLUMNS * BATCH + threadIdx.x);
        factors[threadIdx.x] = rsqrtf(sum / hidden + eps);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < EIGHTS; ++j) {
        float4 sum = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
        if (SPLITS > 1) {
            sum = __ldcg(place + j * 32);
#pragma unroll
            for (int from = 1; from < SPLITS; ++from) {
                const float4 more = __ldcg(place + from * (PART / 4) + j * 32);
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
        }
        const float even = factors[j * 8 + lane % 4 * 2], odd = factors[j * 8 + lane % 4 * 2 + 1];
        const u32 upper_eight = transposed(packed(sum.x * even, sum.y * odd));
        const u32 lower_eight = transposed(packed(sum.z * even, sum.w * odd));
        const int of_x = row + j * 8 + lane / 4, output = column + warp * 16 + lane % 4 * 2;
        u32* const to = (u32*)(y + (long long)of_x * outputs + output);
        if (of_x < batch && output < outputs) to[0] = upper_eight;
        if (of_x < batch && output + 8 < outputs) to[4] = lower_eight;
    }
}
