// y = x W^T of up to 32 rows of x with what follows it (epilogue.cuh): Hopper's copy engine and mma.sync.
//
// A block takes whole outputs, so that nothing is handed from block to block: 16 to a group, 8 of them `half` 0 and 8
// half 1, which stand beside one another in a lane: the two places that a rotation mixes, or gate and up. Eight warps
// share a slice of k: four parts of 16 of k, by two halves of the groups; their sums meet in shared memory.
//
// A launch may begin while the kernel before it ends: it fetches its first stages of W, and x when that one is done.
//
// Compiled for one dtype, division of the work and what follows: BF16 or fp16, ROWS of x, GROUPS of a tile, SLICES of 64
// of k to a stage, STAGES under way, BOX rows of W that come at once, WAY (epilogue.cuh). NORM: x's norm is taken here: W is
// multiplied by its weights in registers, and x's squares are summed; else the kernel before may have left their sums.
// For queries, keys and values HEAD_SIZE and BIAS.

#ifndef BF16
#define BF16 0
#define ROWS 8
#define GROUPS 3
#define SLICES 2
#define STAGES 8
#define BOX 8
#define WAY 0
#define NORM 0
#define HEAD_SIZE 128
#define BIAS 1
#endif

#include "../../gemm/kernels/hopper.cuh"
#include "../../gemm/kernels/mma.cuh"
#include "epilogue.cuh"

const int DEPTH = 64;                                       // of k, a slice: 128 bytes
const int HALF_BYTES = GROUPS * 8 * DEPTH * 2;              // of a slice of W
const int W_BYTES = SLICES * 2 * HALF_BYTES, X_BYTES = SLICES * ROWS * DEPTH * 2, STAGE_BYTES = W_BYTES + X_BYTES;
const int MULTIPLYING = 256, THREADS = MULTIPLYING + 64;    // two warps feed, of W and of x
const int PARTS = 4, EIGHTS = ROWS / 8, MINE = (GROUPS + 1) / 2;
const int ITEMS = GROUPS * EIGHTS * 32, EACH = (ITEMS + MULTIPLYING - 1) / MULTIPLYING;  // of 2 x 2 sums; a thread's
static_assert(GROUPS % (BOX / 8) == 0, "BOX");
const int SQUARED = (EIGHTS + 1) / 2;  // eights of rows whose squares a warp sums

// Where an item stands: a lane of the sums of one group and eight rows of x.
struct Item {
    int group, eight, lane;
    __device__ __forceinline__ explicit Item(int item) : group(item / (32 * EIGHTS)), eight(item / 32 % EIGHTS), lane(item % 32) {}
    __device__ __forceinline__ int row(int j) const { return eight * 8 + lane % 4 * 2 + j; }
    __device__ __forceinline__ Outputs outputs(int tile, Shape shape) const {
        const int within = lane / 4;
        return {{first_row<GROUPS>(tile, group, 0, shape) + within, first_row<GROUPS>(tile, group, 1, shape) + within}};
    }
};

// x [rows, inputs] and w [outputs, inputs] as tensor maps, boxes of ROWS x 64 and BOX x 64; inputs a multiple of 64,
// outputs of 8.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    few_rows(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const __grid_constant__ Shape shape,
             const __grid_constant__ Tensors to) {
    extern __shared__ char room[];
    __shared__ alignas(8) u64 barriers[2 * STAGES + 1];
    __shared__ float factors[ROWS], scratch[MULTIPLYING], squares_of[GROUPS][ROWS];
    __shared__ float4 parts[PARTS][ITEMS];
    const u32 stages = (shared_address(room) + 1023) / 1024 * 1024;
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES, norm_full = empty + 8 * STAGES;
    const int tiles = (shape.outputs + 16 * GROUPS - 1) / (16 * GROUPS);
    const int steps = (shape.inputs + SLICES * DEPTH - 1) / (SLICES * DEPTH);
    const u32 norms = stages + STAGES * STAGE_BYTES;  // the norm's weights of all inputs, then zeros: the copy engine's are
    u32* const words = (u32*)(room + (norms - shared_address(room)));
    for (int i = shape.inputs / 2 + threadIdx.x; NORM && i < steps * SLICES * DEPTH / 2; i += THREADS) words[i] = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + 8 * i, 2);  // W is asked for, and x
            barrier_init(empty + 8 * i, MULTIPLYING / 32);
        }
        barrier_init(norm_full, 1);
        barriers_visible();
    }
    __syncthreads();
    let_next_begin();
    int stage = 0, round = 0;
    if (threadIdx.x >= MULTIPLYING) {
        if (threadIdx.x == MULTIPLYING) {
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                for (int step = 0; step < steps; ++step) {
                    const u32 at = stages + stage * STAGE_BYTES, barrier = full + 8 * stage;
                    wait(empty + 8 * stage, round ^ 1);
                    expect_bytes(barrier, W_BYTES);
#pragma unroll
                    for (int half = 0; half < 2; ++half)
#pragma unroll
                        for (int group = 0; group < GROUPS; group += BOX / 8)
#pragma unroll
                            for (int slice = 0; slice < SLICES; ++slice)
                                load_tile_once(at + (slice * 2 + half) * HALF_BYTES + group * 1024, w,
                                               (step * SLICES + slice) * DEPTH, first_row<GROUPS>(tile, group, half, shape), barrier);
                    if (++stage == STAGES) stage = 0, round ^= 1;
                }
            }
        } else if (threadIdx.x == MULTIPLYING + 32) {
            if (NORM) {
                expect_bytes(norm_full, shape.inputs * 2);
                load_bytes(norms, to.norm, shape.inputs * 2, norm_full);
            }
            wait_for_kernel_before();  // it may have written x; weights are parameters
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                for (int step = 0; step < steps; ++step) {
                    const u32 at = stages + stage * STAGE_BYTES + W_BYTES, barrier = full + 8 * stage;
                    wait(empty + 8 * stage, round ^ 1);
                    expect_bytes(barrier, X_BYTES);
#pragma unroll
                    for (int slice = 0; slice < SLICES; ++slice)
                        load_tile(at + slice * ROWS * 128, x, (step * SLICES + slice) * DEPTH, 0, barrier);
                    if (++stage == STAGES) stage = 0, round ^= 1;
                }
            }
        }
        return;
    }
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, part = warp % PARTS, first_group = warp / PARTS;
    wait_for_kernel_before();
    float squares[SQUARED][4] = {};  // of NORM products of eight rows with themselves, whose diagonal counts
    for (int i = t / ROWS; !NORM && i < shape.parts; i += MULTIPLYING / ROWS)
        squares[0][0] += __ldcg(to.squares + i * ROWS + t % ROWS);
    if (NORM) wait(norm_full, 0);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Held<1> held[EACH][2];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const Item item(t + i * MULTIPLYING);
            const Outputs outputs = item.outputs(tile, shape);
            for (int j = 0; j < 2; ++j) held[i][j] = hold<1>(item.row(j), outputs, shape, to);
        }
        float sums[MINE][EIGHTS][4] = {};
        for (int step = 0; step < steps; ++step) {
            wait(full + 8 * stage, round);
            const u32 at = stages + stage * STAGE_BYTES;
            u32 a[SLICES][MINE][4], b[SLICES][(EIGHTS + 1) / 2][4], norm[SLICES][2];
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                const u32 of_x = at + W_BYTES + slice * ROWS * 128, of_w = at + slice * 2 * HALF_BYTES;
#pragma unroll
                for (int i = 0; i < (EIGHTS + 1) / 2; ++i) {
                    const int row = EIGHTS == 1 ? lane % 8 : i * 16 + lane / 16 * 8 + lane % 8;
                    load_matrices(b[slice][i], of_x + row * 128 + ((2 * part + lane / 8 % 2 ^ row & 7) << 4));
                }
#pragma unroll
                for (int i = 0; i < MINE; ++i) {
                    const int group = min(first_group + 2 * i, GROUPS - 1);
                    const int half = lane / 8 % 2, row = group * 8 + lane % 8;
                    load_matrices(a[slice][i], of_w + half * HALF_BYTES + row * 128 + ((2 * part + lane / 16 ^ row & 7) << 4));
                }
                const u32 weights = norms + (step * SLICES + slice) * DEPTH * 2 + part * 32 + lane % 4 * 4;
                if (NORM) norm[slice][0] = load_word(weights), norm[slice][1] = load_word(weights + 16);
            }
            __syncwarp();
            if (lane == 0) arrive(empty + 8 * stage);
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                const auto of = [&](int eight, int word) { return b[slice][eight / 2][eight % 2 * 2 + word]; };
#pragma unroll
                for (int i = 0; i < MINE; ++i) {
                    if (NORM)
#pragma unroll
                        for (int j = 0; j < 4; ++j) a[slice][i][j] = times(a[slice][i][j], norm[slice][j / 2]);
#pragma unroll
                    for (int e = 0; e < EIGHTS; ++e) multiply_add(sums[i][e], a[slice][i], of(e, 0), of(e, 1));
                }
                // Either half of the warps takes every other eight rows, by selection: a branch around each would cost more.
#pragma unroll
                for (int i = 0; NORM && i < SQUARED; ++i) {
                    const bool odd = EIGHTS > 1 && first_group;
                    const int e = 2 * i, other = min(e + 1, EIGHTS - 1);
                    const u32 low = odd ? of(other, 0) : of(e, 0), high = odd ? of(other, 1) : of(e, 1);
                    const u32 rows[4] = {low, low, high, high};
                    multiply_add(squares[i], rows, low, high);
                }
            }
            if (++stage == STAGES) stage = 0, round ^= 1;
        }
#pragma unroll
        for (int i = 0; i < MINE; ++i) {
            const int group = first_group + 2 * i;
            if (GROUPS % 2 && group >= GROUPS) continue;
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e)
                parts[part][(group * EIGHTS + e) * 32 + lane] = make_float4(sums[i][e][0], sums[i][e][1], sums[i][e][2], sums[i][e][3]);
        }
        if (!NORM) scratch[t] = squares[0][0];
#pragma unroll
        for (int i = 0; NORM && i < SQUARED; ++i) {
            const int row = lane / 4, e = 2 * i + first_group;
            if (tile == blockIdx.x && e < EIGHTS && lane % 4 == row / 2)
                scratch[part * ROWS + e * 8 + row] = row % 2 ? squares[i][1] : squares[i][0];
        }
        sync_among(MULTIPLYING, 1);
        if (tile == blockIdx.x) {
            if (t < ROWS) {
                float sum = 0;
                for (int other = t; other < (NORM ? PARTS * ROWS : MULTIPLYING); other += ROWS) sum += scratch[other];
                factors[t] = NORM || shape.parts ? rsqrtf(sum / shape.inputs + shape.eps) : 1.0f;
            }
            sync_among(MULTIPLYING, 1);
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int at = t + i * MULTIPLYING;
            if (at >= ITEMS) break;
            const Item item(at);
            float4 sum = parts[0][at];
#pragma unroll
            for (int from = 1; from < PARTS; ++from) {
                const float4 more = parts[from][at];
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
            const Outputs outputs = item.outputs(tile, shape);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int row = item.row(j);
                Numbers<1> a = {{(j ? sum.y : sum.x) * factors[row]}}, b = {{(j ? sum.w : sum.z) * factors[row]}};
                a = biased(a, outputs.of[0], shape, to), b = biased(b, outputs.of[1], shape, to);
                float squares = finish(a, b, row, outputs, shape, to, held[i][j]);
#pragma unroll
                for (int apart = 4; WAY == ADDED && apart < 32; apart *= 2)
                    squares += __shfl_xor_sync(0xffffffff, squares, apart);
                if (WAY == ADDED && item.lane < 4) squares_of[item.group][row] = squares;
            }
        }
        sync_among(MULTIPLYING, 1);
        if (WAY == ADDED && t < ROWS) {
            float sum = 0;
            for (int group = 0; group < GROUPS; ++group) sum += squares_of[group][t];
            to.next_squares[tile * ROWS + t] = sum;
        }
    }
}
