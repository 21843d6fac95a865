// y = (x / sqrt(mean(x^2) + eps) * g) W^T in one kernel, summed in fp32, by mma.sync: on cards other than Hopper's.
//
// W streams through the tensor cores as their large operand, 16 of its rows per warp, and x is the small one. A block
// takes COLUMNS outputs and a part of k. The parts of the same outputs meet in device memory: the block that finishes
// last adds them up in a fixed order, multiplies by 1 / sqrt(mean(x^2) + eps) and writes.
//
// The pipeline of a block: STAGES stages of shared memory, each with DEPTH of k of the block's rows of W, of x and of
// g. All threads do the same in step s:
//
//   wait until the copies that this thread made for step s have arrived
//   __syncthreads: the stage of step s is filled, and that of step s - 1 is free, since all warps have multiplied it
//   begin the copies for step s + STAGES - 1, into the stage of step s - 1
//   multiply the stage of step s, and square some of its numbers of x
//
// Compiled for one dtype, division of the work and number of rows at a time: BF16 or fp16, BATCH rows of x and COLUMNS
// outputs of a block, SPLITS of k, STAGES, at least BLOCKS resident per multiprocessor.

#ifndef BF16
#define BF16 0
#define BATCH 8
#define COLUMNS 128
#define SPLITS 4
#define STAGES 3
#define BLOCKS 2
#endif

#include "../../gemm/kernels/mma.cuh"

const int DEPTH = 64;  // of k, of a stage: 128 bytes of a row
const int ROW_BYTES = DEPTH * 2;
const int ROWS = COLUMNS + BATCH + 1;  // of a stage: of W, of x, and g
const int STAGE_BYTES = ROWS * ROW_BYTES;
const int THREADS = COLUMNS * 2;
const int ROWS_PER_LOAD = THREADS / 8, LOADS = (ROWS + ROWS_PER_LOAD - 1) / ROWS_PER_LOAD;  // by all threads together
const int ROW_GROUPS = BATCH / 8;                                      // of 8 rows of x
const int SQUARED_ROWS = (BATCH + ROWS_PER_LOAD - 1) / ROWS_PER_LOAD;  // of x, of which a thread squares one chunk
const int WORKSPACE_FLOATS = COLUMNS * BATCH + BATCH;                  // of a block: sums, and squares of its rows of x

// The row of a stage of which a thread loads a chunk of 16 bytes in its i-th load.
__device__ __forceinline__ int loaded_row(int i) { return threadIdx.x / 8 + i * ROWS_PER_LOAD; }

// What a block multiplies: its rows of W and of x, and its part of k.
struct BlockOperands {
    const half_bits *w, *x, *g;
    int outputs, rows;  // from the block's first ones to the end of the matrix
    int hidden, first_k, end_k;

    // Brings the first stages of W to the L2, which it may do before the kernel before is done.
    __device__ __forceinline__ void prefetch() const {
#if __CUDA_ARCH__ >= 900
        for (int i = threadIdx.x; i < (STAGES - 1) * COLUMNS; i += THREADS) {
            const int k = first_k + i / COLUMNS * DEPTH, row = i % COLUMNS;
            if (k < end_k && row < outputs)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(w + (long long)row * hidden + k));
        }
#endif
    }

    // Begins a thread's copies to a stage: the same chunk of every ROWS_PER_LOAD-th row. Beyond the end they bring
    // zeros that nobody reads.
    __device__ __forceinline__ void begin_copies(AsyncCopy (&copies)[LOADS], int step, u32 stage) const {
        const int chunk = threadIdx.x % 8, k = first_k + step * DEPTH + chunk * 8;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int row = loaded_row(i), x_row = row - COLUMNS;
            const half_bits* source = x_row < 0 ? w + (long long)row * hidden : x + (long long)x_row * hidden;
            bool is_valid = x_row < 0 ? row < outputs : x_row < rows;
            if (x_row == BATCH) source = g, is_valid = true;
            if (row < ROWS) copies[i].begin(stage + swizzled_offset(row, chunk), source + k, is_valid && k < end_k);
        }
        commit_copies();
    }
    static __device__ __forceinline__ void end_copies(const AsyncCopy (&copies)[LOADS]) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            if (loaded_row(i) < ROWS) copies[i].end();
    }
};

// Multiplies a stage: 16 rows of W for each warp, each times g, by all rows of x.
__device__ __forceinline__ void multiply(float (&sums)[ROW_GROUPS][4], u32 stage) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 g_words = stage + (COLUMNS + BATCH) * ROW_BYTES + lane % 4 * 4;
#pragma unroll
    for (int pair = 0; pair < DEPTH / 32; ++pair) {
        u32 w_words[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int slice = 2 * pair + i;
            load_matrices(w_words[i], stage + swizzled_offset(warp * 16 + lane % 16, 2 * slice + lane / 16));
            const u32 low = load_shared_word(g_words + slice * 32);
            const u32 high = load_shared_word(g_words + slice * 32 + 16);
            w_words[i][0] = multiply_pairs(w_words[i][0], low), w_words[i][1] = multiply_pairs(w_words[i][1], low);
            w_words[i][2] = multiply_pairs(w_words[i][2], high), w_words[i][3] = multiply_pairs(w_words[i][3], high);
        }
#pragma unroll
        for (int j = 0; j < ROW_GROUPS; ++j) {
            u32 x_words[4];
            load_matrices(x_words, stage + swizzled_offset(COLUMNS + j * 8 + lane % 8, 4 * pair + lane / 8));
            multiply_add(sums[j], w_words[0], x_words[0], x_words[1]);
            multiply_add(sums[j], w_words[1], x_words[2], x_words[3]);
        }
    }
}

// x [batch, hidden], w [outputs, hidden], g [hidden], y [batch, outputs], hidden and outputs multiples of 8. The grid
// has SPLITS blocks for each COLUMNS outputs in x, a split group, and a block for each BATCH rows of x in y.
// `workspace` has WORKSPACE_FLOATS for each block. `arrived` counts the blocks of each split group that are done; it is
// 0 before and after.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    rmsnorm_matmul(const half_bits* x, const half_bits* w, const u32* g, half_bits* y, float* workspace,
                   unsigned int* arrived, int batch, int outputs, int hidden, float eps) {
    extern __shared__ __align__(128) char dynamic_shared[];
    __shared__ float factors[BATCH];
    __shared__ bool is_last_block;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.x % SPLITS;
    const int column = blockIdx.x / SPLITS * COLUMNS, row = blockIdx.y * BATCH;
    const int total_slices = (hidden + DEPTH - 1) / DEPTH, first_slice = total_slices * split / SPLITS;
    const int steps = total_slices * (split + 1) / SPLITS - first_slice;
    BlockOperands operands;
    operands.w = w + (long long)column * hidden, operands.x = x + (long long)row * hidden;
    operands.g = (const half_bits*)g;
    operands.outputs = outputs - column, operands.rows = batch - row, operands.hidden = hidden;
    operands.first_k = first_slice * DEPTH, operands.end_k = min(hidden, operands.first_k + steps * DEPTH);
    const u32 stages = shared_address(dynamic_shared);
    AsyncCopy copies[LOADS];

    operands.prefetch();
    wait_for_kernel_before();  // it may have written x, and may use the workspace; W and g are parameters
    for (int step = 0; step < STAGES - 1; ++step) {
        operands.begin_copies(copies, step, stages + step * STAGE_BYTES);
        BlockOperands::end_copies(copies);
    }
    if (steps < STAGES) let_next_begin();
    float sums[ROW_GROUPS][4] = {}, squares[SQUARED_ROWS] = {};
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // the stage is filled, and all warps are done with the one before it
        const int copied_step = step + STAGES - 1;
        operands.begin_copies(copies, copied_step, stages + copied_step % STAGES * STAGE_BYTES);
        if (copied_step + 1 == steps) let_next_begin();
        const u32 stage = stages + step % STAGES * STAGE_BYTES;
        multiply(sums, stage);
#pragma unroll
        for (int i = 0; i < SQUARED_ROWS; ++i) {
            const int x_row = loaded_row(i);
            if (x_row < BATCH)
                squares[i] += sum_of_squares(load_shared(stage + swizzled_offset(COLUMNS + x_row, threadIdx.x % 8)));
        }
        BlockOperands::end_copies(copies);
    }
    wait_for_copies<0>();

    const long long split_group = (long long)blockIdx.y * (gridDim.x / SPLITS) + blockIdx.x / SPLITS;
    float* const group_workspace = workspace + split_group * SPLITS * WORKSPACE_FLOATS;
    float4* const lane_sums = (float4*)group_workspace + (warp * ROW_GROUPS * 32 + lane);  // of the first split
    if (SPLITS > 1)
#pragma unroll
        for (int j = 0; j < ROW_GROUPS; ++j)
            lane_sums[split * (WORKSPACE_FLOATS / 4) + j * 32] =
                make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
#pragma unroll
    for (int i = 0; i < SQUARED_ROWS; ++i) {
        for (int distance = 4; distance; distance /= 2) squares[i] += __shfl_xor_sync(0xffffffff, squares[i], distance);
        if (loaded_row(i) < BATCH && threadIdx.x % 8 == 0)
            group_workspace[split * WORKSPACE_FLOATS + COLUMNS * BATCH + loaded_row(i)] = squares[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        // The first thread releases what all threads of its block wrote before the barrier.
        __threadfence();
        is_last_block = atomicAdd(arrived + split_group, 1) == SPLITS - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last_block) return;
    if (threadIdx.x == 0) arrived[split_group] = 0;
    if (threadIdx.x < BATCH) {
        float sum = 0;
        for (int s = 0; s < SPLITS; ++s)
            sum += __ldcg(group_workspace + s * WORKSPACE_FLOATS + COLUMNS * BATCH + threadIdx.x);
        factors[threadIdx.x] = rsqrtf(sum / hidden + eps);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ROW_GROUPS; ++j) {
        float4 sum = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
        if (SPLITS > 1) {
            sum = __ldcg(lane_sums + j * 32);
#pragma unroll
            for (int s = 1; s < SPLITS; ++s) {
                const float4 more = __ldcg(lane_sums + s * (WORKSPACE_FLOATS / 4) + j * 32);
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
        }
        const float even = factors[j * 8 + lane % 4 * 2], odd = factors[j * 8 + lane % 4 * 2 + 1];
        const u32 low_outputs = transpose(pack(sum.x * even, sum.y * odd));
        const u32 high_outputs = transpose(pack(sum.z * even, sum.w * odd));  // 8 further
        const int x_row = row + j * 8 + lane / 4, output = column + warp * 16 + lane % 4 * 2;
        u32* const address = (u32*)(y + (long long)x_row * outputs + output);
        if (x_row < batch && output < outputs) address[0] = low_outputs;
        if (x_row < batch && output + 8 < outputs) address[4] = high_outputs;
    }
}
