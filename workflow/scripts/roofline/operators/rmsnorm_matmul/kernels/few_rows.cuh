// y = x W^T of up to 32 rows of x, with what follows it (epilogue.cuh), by Hopper's copy engine and mma.sync.
//
// A block computes whole outputs, so that blocks exchange no sums of products. Outputs come in groups of 16, 8 of half
// 0 and 8 of half 1: a group is a unit of epilogue.cuh. The eight multiplying warps divide a slice of 64 of k: a warp
// takes a part of 16 of k, and every other group. Their sums meet in shared memory.
//
// The pipeline of a block: warps 0 to 7 multiply, and one lane each of warps 8 and 9 loads. s is the current stage.
//
//   warp 8: W                    warp 9: x                    warps 0 to 7
//                                load the norm's weights
//                                wait for the kernel before   wait for the kernel before, then for the norm's weights
//   wait for freed[s]            wait for freed[s]            wait for filled[s]
//   arrive at filled[s]          arrive at filled[s]          load stage s to registers
//   copy W to stage s            copy x to stage s            arrive at freed[s], multiply
//   s = next stage               s = next stage               s = next stage
//
// A phase of filled[s] takes both arrivals and the bytes that they announce, one of freed[s] an arrival of each of
// warps 0 to 7. After the steps of a tile these warps write their partial sums, meet at named barrier 1, and each
// thread finishes items of the tile, while the next tile is being loaded.
//
// A launch may begin while the kernel before it ends: it fetches its first stages of W, and x when that kernel is done.
//
// Where the epilogue scales heads by their squares, the tiles of a cluster are one head. Its blocks send one another
// the sums of squares of their parts. Two sets of them take turns, since a block may be a tile ahead of another.
//
// Compiled for one dtype, division of the work and epilogue: BF16 or fp16, ROWS of x, GROUPS of a tile, SLICES of 64 of
// k of a stage, STAGES, BOX rows of W that one copy brings, CLUSTER blocks of a cluster. NORM: this kernel takes the
// norm of x: W is multiplied by its weights in registers, and the squares of x are summed; otherwise the kernel before
// may have left their sums. The epilogue is included before this.

#pragma once

#include "../../gemm/kernels/hopper.cuh"
#include "../../gemm/kernels/mma.cuh"

const int DEPTH = 64;                             // of k, of a slice: 128 bytes of a row
const int W_HALF_BYTES = GROUPS * 8 * DEPTH * 2;  // of a slice
const int W_BYTES = SLICES * 2 * W_HALF_BYTES, X_BYTES = SLICES * ROWS * DEPTH * 2, STAGE_BYTES = W_BYTES + X_BYTES;
const int MULTIPLYING_THREADS = 256, THREADS = MULTIPLYING_THREADS + 64;
const int K_PARTS = 4;  // of a slice: 16 of k each
const int GROUPS_PER_WARP = (GROUPS + 1) / 2;
const int ROW_GROUPS = ROWS / 8;             // of 8 rows of x
const int ROW_PAIRS = (ROW_GROUPS + 1) / 2;  // of row groups: load_matrices loads both, a warp sums the squares of one
// An item is what a thread finishes at once: two rows by an output of either half.
const int ITEMS = GROUPS * ROW_GROUPS * 32, ITEMS_PER_THREAD = (ITEMS + MULTIPLYING_THREADS - 1) / MULTIPLYING_THREADS;
static_assert(GROUPS % (BOX / 8) == 0, "BOX");
const int ROW_QUADS = ROWS / 4;                     // of rows whose squares are sent at once
const u32 HEAD_SQUARES_BYTES = CLUSTER * ROWS * 4;  // that a block receives of each head
#if CLUSTER > 1
#define CLUSTER_DIMENSIONS __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTER_DIMENSIONS
#endif

// Where an item lies in a tile: its numbers are a lane's sums of one group and one row group.
struct Item {
    int group, row_group, lane;
    __device__ __forceinline__ explicit Item(int item)
        : group(item / (32 * ROW_GROUPS)), row_group(item / 32 % ROW_GROUPS), lane(item % 32) {}
    __device__ __forceinline__ int row(int j) const { return row_group * 8 + lane % 4 * 2 + j; }
    __device__ __forceinline__ Outputs outputs(int tile, Shape shape) const {
        const int offset = lane / 4;
        return {{first_w_row<GROUPS>(tile, group, 0, shape) + offset,
                 first_w_row<GROUPS>(tile, group, 1, shape) + offset}};
    }
};

// Loads a stage of W: SLICES of 64 of k of a tile's outputs.
__device__ __forceinline__ void load_w(const TensorMap& w, u32 stages, u32 filled_barriers, u32 freed_barriers,
                                       int step, int tile, Shape shape, int& stage, int& parity) {
    const u32 stage_address = stages + stage * STAGE_BYTES, filled = filled_barriers + 8 * stage;
    wait_for_phase(freed_barriers + 8 * stage, parity ^ 1);
    arrive_expecting_bytes(filled, W_BYTES);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int group = 0; group < GROUPS; group += BOX / 8)
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice)
                load_tile_once(stage_address + (slice * 2 + half) * W_HALF_BYTES + group * 1024, w,
                               (step * SLICES + slice) * DEPTH, first_w_row<GROUPS>(tile, group, half, shape), filled);
    to_next_stage<STAGES>(stage, parity);
}

// Loads x for all tiles of the block, stage by stage.
__device__ __forceinline__ void load_x(const TensorMap& x, u32 stages, u32 filled_barriers, u32 freed_barriers,
                                       int tiles, int steps, int& stage, int& parity) {
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        for (int step = 0; step < steps; ++step) {
            const u32 x_address = stages + stage * STAGE_BYTES + W_BYTES, filled = filled_barriers + 8 * stage;
            wait_for_phase(freed_barriers + 8 * stage, parity ^ 1);
            arrive_expecting_bytes(filled, X_BYTES);
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice)
                load_tile(x_address + slice * ROWS * 128, x, (step * SLICES + slice) * DEPTH, 0, filled);
            to_next_stage<STAGES>(stage, parity);
        }
    }
}

// Loads what the thread's items are added to.
__device__ __forceinline__ void preload_items(Preloaded<1> (&preloaded)[ITEMS_PER_THREAD][2], int thread, int tile,
                                              const Shape& shape, const Tensors& tensors) {
#pragma unroll
    for (int i = 0; i < ITEMS_PER_THREAD; ++i) {
        const Item item(thread + i * MULTIPLYING_THREADS);
        const Outputs outputs = item.outputs(tile, shape);
        for (int j = 0; j < 2; ++j) preloaded[i][j] = preload<1>(item.row(j), outputs, shape, tensors);
    }
}

// Loads the warp's fragments of a stage to registers: a of W, b of x, and with NORM the norm's weights.
__device__ __forceinline__ void load_fragments(u32 (&a)[SLICES][GROUPS_PER_WARP][4], u32 (&b)[SLICES][ROW_PAIRS][4],
                                               u32 (&norm)[SLICES][2], u32 stage_address, u32 norm_weights, int step,
                                               int part, int first_group, int lane) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        const u32 x_slice = stage_address + W_BYTES + slice * ROWS * 128;
        const u32 w_slice = stage_address + slice * 2 * W_HALF_BYTES;
#pragma unroll
        for (int i = 0; i < ROW_PAIRS; ++i) {
            const int row = ROW_GROUPS == 1 ? lane % 8 : i * 16 + lane / 16 * 8 + lane % 8;
            load_matrices(b[slice][i], x_slice + row * 128 + swizzled_chunk(row, 2 * part + lane / 8 % 2));
        }
#pragma unroll
        for (int i = 0; i < GROUPS_PER_WARP; ++i) {
            const int group = min(first_group + 2 * i, GROUPS - 1);
            const int row = group * 8 + lane % 8;
            const u32 w_half = w_slice + lane / 8 % 2 * W_HALF_BYTES;
            load_matrices(a[slice][i], w_half + row * 128 + swizzled_chunk(row, 2 * part + lane / 16));
        }
        const u32 weights = norm_weights + (step * SLICES + slice) * DEPTH * 2 + part * 32 + lane % 4 * 4;
        if (NORM) norm[slice][0] = load_shared_word(weights), norm[slice][1] = load_shared_word(weights + 16);
    }
}

// Multiplies the fragments of a stage. With NORM it multiplies W by the norm's weights first, and sums the squares of x
// as the products of each row group with itself.
__device__ __forceinline__ void multiply(float (&sums)[GROUPS_PER_WARP][ROW_GROUPS][4], float (&squares)[ROW_PAIRS][4],
                                         u32 (&a)[SLICES][GROUPS_PER_WARP][4], u32 (&b)[SLICES][ROW_PAIRS][4],
                                         u32 (&norm)[SLICES][2], int first_group) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        // The fragment of a row group: load_matrices loads two row groups at once.
        const auto x_fragment = [&](int row_group, int word) {
            return b[slice][row_group / 2][row_group % 2 * 2 + word];
        };
#pragma unroll
        for (int i = 0; i < GROUPS_PER_WARP; ++i) {
            if (NORM)
#pragma unroll
                for (int j = 0; j < 4; ++j) a[slice][i][j] = multiply_pairs(a[slice][i][j], norm[slice][j / 2]);
#pragma unroll
            for (int e = 0; e < ROW_GROUPS; ++e)
                multiply_add(sums[i][e], a[slice][i], x_fragment(e, 0), x_fragment(e, 1));
        }
        // The squares of one row group of each pair, chosen by selection: a branch around each would cost more.
#pragma unroll
        for (int i = 0; NORM && i < ROW_PAIRS; ++i) {
            const bool takes_odd = ROW_GROUPS > 1 && first_group;
            const int even = 2 * i, odd = min(even + 1, ROW_GROUPS - 1);
            const u32 low = takes_odd ? x_fragment(odd, 0) : x_fragment(even, 0);
            const u32 high = takes_odd ? x_fragment(odd, 1) : x_fragment(even, 1);
            const u32 rows[4] = {low, low, high, high};
            multiply_add(squares[i], rows, low, high);
        }
    }
}

// Stores a warp's sums, of its part of k, in the order of items.
__device__ __forceinline__ void store_partial_sums(float4 (&partial_sums)[ITEMS],
                                                   float (&sums)[GROUPS_PER_WARP][ROW_GROUPS][4], int first_group,
                                                   int lane) {
#pragma unroll
    for (int i = 0; i < GROUPS_PER_WARP; ++i) {
        const int group = first_group + 2 * i;
        if (GROUPS % 2 && group >= GROUPS) continue;
#pragma unroll
        for (int e = 0; e < ROW_GROUPS; ++e)
            partial_sums[(group * ROW_GROUPS + e) * 32 + lane] =
                make_float4(sums[i][e][0], sums[i][e][1], sums[i][e][2], sums[i][e][3]);
    }
}

// Writes the norm's factors of all rows, from the squares that the threads wrote. Without squares they are 1.
__device__ __forceinline__ void compute_factors(float (&factors)[ROWS], float (&partial_squares)[MULTIPLYING_THREADS],
                                                int thread, Shape shape) {
    if (thread < ROWS) {
        float sum = 0;
        for (int i = thread; i < (NORM ? K_PARTS * ROWS : MULTIPLYING_THREADS); i += ROWS) sum += partial_squares[i];
        factors[thread] = NORM || squares_parts(shape) ? rsqrtf(sum / shape.inputs + shape.eps) : 1.0f;
    }
}

// The sums of an item over all parts of k.
__device__ __forceinline__ float4 add_partial_sums(float4 (&partial_sums)[K_PARTS][ITEMS], int item) {
    float4 sum = partial_sums[0][item];
#pragma unroll
    for (int p = 1; p < K_PARTS; ++p) {
        const float4 more = partial_sums[p][item];
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return sum;
}

// Writes the block's sums of squares of each row and group: those of a part of a head.
__device__ __forceinline__ void square_items(float (&squares_of_group)[GROUPS][ROWS],
                                             float4 (&partial_sums)[K_PARTS][ITEMS], const float (&factors)[ROWS],
                                             int thread, int tile, const Shape& shape, const Tensors& tensors) {
#pragma unroll
    for (int i = 0; i < ITEMS_PER_THREAD; ++i) {
        const int index = thread + i * MULTIPLYING_THREADS;
        if (index >= ITEMS) break;
        const Item item(index);
        const float4 sum = add_partial_sums(partial_sums, index);
        const Outputs outputs = item.outputs(tile, shape);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = item.row(j);
            const Numbers<1> a = {{(j ? sum.y : sum.x) * factors[row]}}, b = {{(j ? sum.w : sum.z) * factors[row]}};
            float squares = adjust_sums(a, outputs.first[0], shape, tensors).sum_of_squares() +
                            adjust_sums(b, outputs.first[1], shape, tensors).sum_of_squares();
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                squares += __shfl_xor_sync(0xffffffff, squares, distance);
            if (item.lane < 4) squares_of_group[item.group][row] = squares;
        }
    }
}

// Sends this block's sums of squares of each row, which are in squares_of_group, to all blocks of the cluster.
__device__ __forceinline__ void send_head_squares(const float (&squares_of_group)[GROUPS][ROWS],
                                                  float (&head_squares)[CLUSTER][ROWS], u32 head_barrier, int thread) {
    if (thread >= CLUSTER * ROW_QUADS) return;
    const int receiver = thread / ROW_QUADS, row = thread % ROW_QUADS * 4;
    float sums[4] = {};
    for (int group = 0; group < GROUPS; ++group)
        for (int i = 0; i < 4; ++i) sums[i] += squares_of_group[group][row + i];
    store_remote(map_to_block(shared_address(&head_squares[rank_in_cluster()][row]), receiver),
                 map_to_block(head_barrier, receiver), sums[0], sums[1], sums[2], sums[3]);
}

// x [rows, inputs] and w [outputs, inputs] as tensor maps, boxes of ROWS x 64 and BOX x 64; inputs a multiple of 64,
// outputs of 8. The blocks take the tiles of 16 x GROUPS outputs in turn.
extern "C" __global__ void CLUSTER_DIMENSIONS __launch_bounds__(THREADS, 1)
    few_rows(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
             const __grid_constant__ Shape shape, const __grid_constant__ Tensors tensors) {
    extern __shared__ char dynamic_shared[];
    __shared__ alignas(8) u64 barriers[2 * STAGES + 1];
    __shared__ float factors[ROWS], partial_squares[MULTIPLYING_THREADS], squares_of_group[GROUPS][ROWS];
    __shared__ float4 partial_sums[K_PARTS][ITEMS];
    __shared__ alignas(16) float head_squares[2][CLUSTER][ROWS];  // this and the next two: with SCALES_ITEMS
    __shared__ float head_factors[ROWS];
    __shared__ alignas(8) u64 head_squares_barriers[2];
    const u32 stages = (shared_address(dynamic_shared) + 1023) / 1024 * 1024;
    // Barriers of 8 bytes: of each stage, filled by the copy engine and freed by the multiplying warps; of the weights.
    const u32 filled_barriers = shared_address(barriers);
    const u32 freed_barriers = filled_barriers + 8 * STAGES;
    const u32 norm_barrier = freed_barriers + 8 * STAGES;
    const u32 head_barriers = SCALES_ITEMS ? shared_address(head_squares_barriers) : 0;  // of either set
    const int tiles = (shape.outputs + 16 * GROUPS - 1) / (16 * GROUPS);
    const int steps = (shape.inputs + SLICES * DEPTH - 1) / (SLICES * DEPTH);
    // The norm's weights of all inputs, which the copy engine brings, then zeros to the end of the last stage.
    const u32 norm_weights = stages + STAGES * STAGE_BYTES;
    u32* const norm_words = (u32*)(dynamic_shared + (norm_weights - shared_address(dynamic_shared)));
    for (int i = shape.inputs / 2 + threadIdx.x; NORM && i < steps * SLICES * DEPTH / 2; i += THREADS)
        norm_words[i] = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(filled_barriers + 8 * i, 2);  // arrivals of the lanes that load W and x
            init_barrier(freed_barriers + 8 * i, MULTIPLYING_THREADS / 32);
        }
        init_barrier(norm_barrier, 1);
        for (int set = 0; SCALES_ITEMS && set < 2; ++set) init_barrier(head_barriers + 8 * set, 1);
        publish_barriers();
        for (int set = 0; SCALES_ITEMS && set < 2; ++set)
            arrive_expecting_bytes(head_barriers + 8 * set, HEAD_SQUARES_BYTES);
    }
    __syncthreads();
    if (SCALES_ITEMS) cluster_arrive_relaxed();
    let_next_begin();
    int stage = 0, parity = 0;
    if (threadIdx.x >= MULTIPLYING_THREADS) {
        if (threadIdx.x == MULTIPLYING_THREADS) {  // a lane of warp 8
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
                for (int step = 0; step < steps; ++step)
                    load_w(w, stages, filled_barriers, freed_barriers, step, tile, shape, stage, parity);
        } else if (threadIdx.x == MULTIPLYING_THREADS + 32) {  // a lane of warp 9
            if (NORM) {
                arrive_expecting_bytes(norm_barrier, shape.inputs * 2);
                load_bytes(norm_weights, tensors.norm, shape.inputs * 2, norm_barrier);
            }
            wait_for_kernel_before();  // it may have written x; weights are parameters
            load_x(x, stages, filled_barriers, freed_barriers, tiles, steps, stage, parity);
        }
        return;
    }
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int part = warp % K_PARTS, first_group = warp / K_PARTS;
    wait_for_kernel_before();
    // With NORM: products of row groups with themselves, whose diagonals are the squares. Otherwise [0][0] alone is
    // used.
    float squares[ROW_PAIRS][4] = {};
    for (int i = thread / ROWS; !NORM && i < squares_parts(shape); i += MULTIPLYING_THREADS / ROWS)
        squares[0][0] += __ldcg(squares_before(tensors) + i * ROWS + thread % ROWS);
    if (NORM) wait_for_phase(norm_barrier, 0);
    if (SCALES_ITEMS) cluster_wait();  // the barriers of the other blocks are ready
    int head_set = 0, head_parity = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Preloaded<1> preloaded[ITEMS_PER_THREAD][2];
        preload_items(preloaded, thread, tile, shape, tensors);
        float sums[GROUPS_PER_WARP][ROW_GROUPS][4] = {};
        for (int step = 0; step < steps; ++step) {
            wait_for_phase(filled_barriers + 8 * stage, parity);
            const u32 stage_address = stages + stage * STAGE_BYTES;
            u32 a[SLICES][GROUPS_PER_WARP][4], b[SLICES][ROW_PAIRS][4], norm[SLICES][2];  // of W, of x, of the norm
            load_fragments(a, b, norm, stage_address, norm_weights, step, part, first_group, lane);
            __syncwarp();
            if (lane == 0) arrive(freed_barriers + 8 * stage);
            multiply(sums, squares, a, b, norm, first_group);
            to_next_stage<STAGES>(stage, parity);
        }
        store_partial_sums(partial_sums[part], sums, first_group, lane);
        if (!NORM) partial_squares[thread] = squares[0][0];
#pragma unroll
        for (int i = 0; NORM && i < ROW_PAIRS; ++i) {  // the diagonals, once: each tile has the same x
            const int row = lane / 4, row_group = 2 * i + first_group;
            if (tile == blockIdx.x && row_group < ROW_GROUPS && lane % 4 == row / 2)
                partial_squares[part * ROWS + row_group * 8 + row] = row % 2 ? squares[i][1] : squares[i][0];
        }
        sync_named_barrier(MULTIPLYING_THREADS, 1);
        if (tile == blockIdx.x) {
            compute_factors(factors, partial_squares, thread, shape);
            sync_named_barrier(MULTIPLYING_THREADS, 1);
        }
        if (SCALES_ITEMS) {
            square_items(squares_of_group, partial_sums, factors, thread, tile, shape, tensors);
            sync_named_barrier(MULTIPLYING_THREADS, 1);
            const u32 head_barrier = head_barriers + 8 * head_set;
            send_head_squares(squares_of_group, head_squares[head_set], head_barrier, thread);
            wait_for_phase(head_barrier, head_parity);
            if (thread == 0) arrive_expecting_bytes(head_barrier, HEAD_SQUARES_BYTES);  // of the next but one tile
            if (thread < ROWS) {
                float sum = 0;
                for (int block = 0; block < CLUSTER; ++block) sum += head_squares[head_set][block][thread];
                head_factors[thread] = item_factor(sum, shape);
            }
            to_next_stage<2>(head_set, head_parity);
            sync_named_barrier(MULTIPLYING_THREADS, 1);
        }
#pragma unroll
        for (int i = 0; i < ITEMS_PER_THREAD; ++i) {
            const int index = thread + i * MULTIPLYING_THREADS;
            if (index >= ITEMS) break;
            const Item item(index);
            const float4 sum = add_partial_sums(partial_sums, index);
            const Outputs outputs = item.outputs(tile, shape);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int row = item.row(j);
                Numbers<1> a = {{(j ? sum.y : sum.x) * factors[row]}}, b = {{(j ? sum.w : sum.z) * factors[row]}};
                a = adjust_sums(a, outputs.first[0], shape, tensors);
                b = adjust_sums(b, outputs.first[1], shape, tensors);
                if (SCALES_ITEMS) scale_item(a, b, head_factors[row], outputs.first[0], shape, tensors);
                float squares = apply_epilogue(a, b, row, outputs, shape, tensors, preloaded[i][j]);
#pragma unroll
                for (int distance = 4; LEAVES_SQUARES && distance < 32; distance *= 2)
                    squares += __shfl_xor_sync(0xffffffff, squares, distance);
                if (LEAVES_SQUARES && item.lane < 4) squares_of_group[item.group][row] = squares;
            }
        }
        sync_named_barrier(MULTIPLYING_THREADS, 1);
        if (LEAVES_SQUARES && thread < ROWS) {
            float sum = 0;
            for (int group = 0; group < GROUPS; ++group) sum += squares_of_group[group][thread];
            leave_squares(tensors, tile * ROWS + thread, sum);
        }
    }
}
