// y = x W^T of up to 32 rows of x, for one decode step of a model, with what follows it: Hopper's copy engine, mma.sync.
//
// A block takes whole outputs, so that nothing is handed from block to block: 16 to a group, 8 of them `half` 0 and 8
// half 1, which stand beside one another in a lane: the two places that a rotation mixes, or gate and up. Eight warps
// share a slice of k: four parts of 16 of k, by two halves of the groups; their sums meet in shared memory.
//
// A launch may begin while the kernel before it ends: it fetches its first stages of W, and x when that one is done.
//
// Compiled for one dtype, number of rows and what follows: BF16 or fp16, ROWS of x, GROUPS of a tile, SLICES of 64 of k
// to a stage, STAGES under way, WAY (step.cuh), and for queries, keys and values HEAD_SIZE and BIAS.

#ifndef BF16
#define BF16 0
#define ROWS 8
#define GROUPS 3
#define SLICES 2
#define STAGES 8
#define WAY 0
#define HEAD_SIZE 128
#define BIAS 1
#endif

#include "../../gemm/kernels/hopper.cuh"
#include "../../gemm/kernels/mma.cuh"
#include "step.cuh"

const int DEPTH = 64;                                       // of k, a slice: 128 bytes
const int HALF_BYTES = GROUPS * 8 * DEPTH * 2;              // of a slice of W
const int W_BYTES = SLICES * 2 * HALF_BYTES, X_BYTES = SLICES * ROWS * DEPTH * 2, STAGE_BYTES = W_BYTES + X_BYTES;
const int BOX = WAY == QKV ? 8 : GROUPS * 8;                // rows of W that come at once
const int MULTIPLYING = 256, THREADS = MULTIPLYING + 64;    // two warps feed, of W and of x
const int PARTS = 4, EIGHTS = ROWS / 8, MINE = (GROUPS + 1) / 2;
const int ITEMS = GROUPS * EIGHTS * 32, EACH = (ITEMS + MULTIPLYING - 1) / MULTIPLYING;  // of 2 x 2 sums; a thread's

// The first of eight rows of W.
__device__ __forceinline__ int first_row(int tile, int group, int half, Shape shape) {
    const int eight = (tile * GROUPS + group) * 8;
    if (WAY == QKV) return eight / (HEAD_SIZE / 2) * HEAD_SIZE + eight % (HEAD_SIZE / 2) + half * (HEAD_SIZE / 2);
    if (WAY == GATED) return half * (shape.outputs / 2) + eight;
    return tile * GROUPS * 16 + half * GROUPS * 8 + group * 8;
}

__device__ __forceinline__ float load_half(const half_bits* at) {
    half_bits bits;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(at) : "memory");
    return lower(bits);
}

__device__ __forceinline__ void store_both(half_bits* first, half_bits* second, float a, float b) {
    const u32 pair = packed(a, b);
    *first = (half_bits)pair, *second = (half_bits)(pair >> 16);
}

// Where an item stands: a lane of the sums of one group and eight rows of x.
struct Item {
    int group, eight, lane;
    __device__ __forceinline__ explicit Item(int item) : group(item / (32 * EIGHTS)), eight(item / 32 % EIGHTS), lane(item % 32) {}
    __device__ __forceinline__ int row(int j) const { return eight * 8 + lane % 4 * 2 + j; }
};

// What is added to, and the next norm's weights: asked for before the sums are there.
struct Held {
    float stream[2][2], g[2];
};

__device__ __forceinline__ Held hold(Item item, int tile, Shape shape, Tensors to) {
    Held held = {};
    if (WAY != ADDED) return held;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int output = first_row(tile, item.group, half, shape) + item.lane / 4;
        if (output >= shape.outputs) continue;
        held.g[half] = load_half(to.g + output);
#pragma unroll
        for (int j = 0; j < 2; ++j)
            if (item.row(j) < shape.rows)
                held.stream[half][j] = load_half(to.stream + (long long)item.row(j) * shape.outputs + output);
    }
    return held;
}

// The sums of two outputs for two rows of x: a lane's, low[j] and high[j] of row j. Returns both rows' squares.
__device__ __forceinline__ float2 write(Item item, float (&low)[2], float (&high)[2], const float* factors, int tile,
                                        Shape shape, Tensors to, const Held& held) {
    const int of_lane = item.lane / 4;
    const int first = first_row(tile, item.group, 0, shape) + of_lane, second = first_row(tile, item.group, 1, shape) + of_lane;
    float squares[2] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const int row = item.row(j);
        float a = low[j] * factors[row], b = high[j] * factors[row];
        if (row >= shape.rows) continue;
#if WAY == 0
        const int head = first / HEAD_SIZE, place = first % HEAD_SIZE;
        const bool query = head < shape.heads, key = !query && head < shape.heads + shape.kv_heads;
        if (first >= shape.outputs) continue;
        if (BIAS) a += load_half(to.bias + first), b += load_half(to.bias + second);
        if (query || key) {
            const float2 turn = to.turns[place];
            const float turned = a * turn.x - b * turn.y;
            b = b * turn.x + a * turn.y, a = turned;
        }
        half_bits* at = to.y + ((long long)row * shape.heads + head) * HEAD_SIZE;
        if (!query) {
            const int of_kv = head - shape.heads - (key ? 0 : shape.kv_heads);
            const long long token = ((long long)row * shape.kv_heads + of_kv) * shape.seq_len + shape.seq_len - 1;
            at = (key ? to.keys : to.values) + token * HEAD_SIZE;
        }
        store_both(at + place, at + place + HEAD_SIZE / 2, a, b);
#elif WAY == 2
        const int width = shape.outputs / 2;
        if (first < width) to.y[(long long)row * width + first] = (half_bits)packed(a / (1 + __expf(-a)) * b, 0);
#else
        half_bits* const at = to.y + (long long)row * shape.outputs;
#if WAY == 1
        const u32 pair = packed(a + held.stream[0][j], b + held.stream[1][j]);
        half_bits* const stream = to.stream + (long long)row * shape.outputs;
        if (first < shape.outputs) stream[first] = (half_bits)pair, squares[j] += lower(pair) * lower(pair);
        if (second < shape.outputs) stream[second] = (half_bits)(pair >> 16), squares[j] += upper(pair) * upper(pair);
        a = lower(pair) * held.g[0], b = upper(pair) * held.g[1];
#endif
        const u32 both = packed(a, b);
        if (first < shape.outputs) at[first] = (half_bits)both;
        if (second < shape.outputs) at[second] = (half_bits)(both >> 16);
#endif
    }
    return {squares[0], squares[1]};
}

// x [rows, inputs] and w [outputs, inputs] as tensor maps, boxes of ROWS x 64 and BOX x 64; inputs a multiple of 64,
// outputs of 8.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    few_rows(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const __grid_constant__ Shape shape,
             const __grid_constant__ Tensors to) {
    extern __shared__ char room[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    __shared__ float factors[ROWS], scratch[MULTIPLYING], squares_of[GROUPS][ROWS];
    __shared__ float4 parts[PARTS][ITEMS];
    const u32 stages = (shared_address(room) + 1023) / 1024 * 1024;
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES;
    const int tiles = (shape.outputs + 16 * GROUPS - 1) / (16 * GROUPS);
    const int steps = (shape.inputs + SLICES * DEPTH - 1) / (SLICES * DEPTH);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + 8 * i, 2);  // W is asked for, and x
            barrier_init(empty + 8 * i, MULTIPLYING / 32);
        }
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
                                               (step * SLICES + slice) * DEPTH, first_row(tile, group, half, shape), barrier);
                    if (++stage == STAGES) stage = 0, round ^= 1;
                }
            }
        } else if (threadIdx.x == MULTIPLYING + 32) {
            wait_for_kernel_before();  // it may have written x; W is a parameter
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
    float squares = 0;
    for (int i = t / ROWS; i < shape.parts; i += MULTIPLYING / ROWS) squares += __ldcg(to.squares + i * ROWS + t % ROWS);
    scratch[t] = squares;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Held held[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) held[i] = hold(Item(t + i * MULTIPLYING), tile, shape, to);
        float sums[MINE][EIGHTS][4] = {};
        for (int step = 0; step < steps; ++step) {
            wait(full + 8 * stage, round);
            const u32 at = stages + stage * STAGE_BYTES;
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                const u32 of_x = at + W_BYTES + slice * ROWS * 128, of_w = at + slice * 2 * HALF_BYTES;
                u32 b[(EIGHTS + 1) / 2][4];
#pragma unroll
                for (int i = 0; i < (EIGHTS + 1) / 2; ++i) {
                    const int row = EIGHTS == 1 ? lane % 8 : i * 16 + lane / 16 * 8 + lane % 8;
                    load_matrices(b[i], of_x + row * 128 + ((2 * part + lane / 8 % 2 ^ row & 7) << 4));
                }
#pragma unroll
                for (int i = 0; i < MINE; ++i) {
                    const int group = first_group + 2 * i;
                    if (GROUPS % 2 && group >= GROUPS) continue;
                    u32 a[4];
                    const int half = lane / 8 % 2, row = group * 8 + lane % 8;
                    load_matrices(a, of_w + half * HALF_BYTES + row * 128 + ((2 * part + lane / 16 ^ row & 7) << 4));
#pragma unroll
                    for (int e = 0; e < EIGHTS; ++e) multiply_add(sums[i][e], a, b[e / 2][e % 2 * 2], b[e / 2][e % 2 * 2 + 1]);
                }
            }
            __syncwarp();
            if (lane == 0) arrive(empty + 8 * stage);
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
        sync_among(MULTIPLYING, 1);
        if (tile == blockIdx.x) {
            if (t < ROWS) {
                float sum = 0;
                for (int other = t; other < MULTIPLYING; other += ROWS) sum += scratch[other];
                factors[t] = shape.parts ? rsqrtf(sum / shape.inputs + shape.eps) : 1.0f;
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
            float low[2] = {sum.x, sum.y}, high[2] = {sum.z, sum.w};
            float2 of_rows = write(item, low, high, factors, tile, shape, to, held[i]);
            if (WAY == ADDED) {
#pragma unroll
                for (int apart = 4; apart < 32; apart *= 2) {
                    of_rows.x += __shfl_xor_sync(0xffffffff, of_rows.x, apart);
                    of_rows.y += __shfl_xor_sync(0xffffffff, of_rows.y, apart);
                }
                if (item.lane < 4) squares_of[item.group][item.row(0)] = of_rows.x, squares_of[item.group][item.row(1)] = of_rows.y;
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
