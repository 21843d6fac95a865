// y = x W^T of many rows of x, with what follows it (epilogue.cuh), by Hopper's copy engine and wgmma.
//
// x is the tensor cores' large operand, 64 of its rows at a time, and W the other. A tile of y has ROWS rows and any
// multiple of 16 outputs, so that nearly every multiprocessor gets an equal part of W. The blocks of a cluster divide
// k; they send one another their sums, and each of them finishes some of the rows. Where x is to be normalised by the
// squares that the kernel before left, the norm's factor is applied last, to the sums.
//
// The pipeline of a block: warps 0 to 7 multiply, and one lane each of warps 8 and 9 loads. s is the current stage.
//
//   warp 8: W                    warp 9: x                    warps 0 to 7
//                                wait for the kernel before   wait for the kernel before
//   wait for freed[s]            wait for freed[s]            wait for filled[s]
//   arrive at filled[s]          arrive at filled[s]          queue wgmma on stage s
//   copy W to stage s            copy x to stage s            wait for wgmma on the stage before, arrive at its freed
//   s = next stage               s = next stage               s = next stage
//
// A phase of filled[s] takes both arrivals and the bytes that they announce, one of freed[s] an arrival of each of
// warps 0 to 7. With SPLITS 1, warps 0 to 7 finish a tile from their registers while the next tile is being loaded.
// Otherwise a block has one tile, and its stages become its inbox once the cluster is done with them (a barrier of the
// cluster): each warp stores its sums in the inbox of the block that finishes them, waits for the inbox barrier, which
// counts the bytes from the other blocks, and finishes items of its own block.
//
// A launch may begin while the kernel before it ends: it fetches its first stages of W, and x when that kernel is done.
//
// Compiled for one dtype, division of the work and epilogue: BF16 or fp16, ROWS of x, OUTPUTS of a tile, SPLITS of k,
// STAGES, BOX rows of W that one copy brings. The kernel before may have left sums of squares of PADDED rows. The
// epilogue is included before this.

#pragma once

#include "../../gemm/kernels/hopper.cuh"

const int DEPTH = 64;  // of k, of a stage: 128 bytes of a row
const int W_BYTES = OUTPUTS * DEPTH * 2, X_BYTES = ROWS * DEPTH * 2, STAGE_BYTES = W_BYTES + X_BYTES;
const int MULTIPLYING_THREADS = 256, THREADS = MULTIPLYING_THREADS + 64;

// Where a tile has 64 rows, each multiplying warpgroup takes a part of its outputs. UNITS: epilogue.cuh.
const int OUTPUT_PARTS = ROWS == 64 ? 2 : 1;
const int PART_OUTPUTS = OUTPUTS / OUTPUT_PARTS, UNITS = PART_OUTPUTS / 16;
const int ROW_TILES_PER_WARPGROUP = ROWS > 128 ? 2 : 1;  // of 64 rows

// A strip is 16 rows by a part's outputs: what a warp multiplies of a row tile. A block finishes OWNED_STRIPS of them.
const int STRIPS = 8 * ROW_TILES_PER_WARPGROUP, OWNED_STRIPS = STRIPS / SPLITS;
// An item is what a warp finishes at once: UNITS_PER_ITEM units of a strip.
const int ITEMS = OWNED_STRIPS * (UNITS / UNITS_PER_ITEM), ITEMS_PER_WARP = (ITEMS + 7) / 8;
const int ROW_QUADS = PADDED / 4;  // of four rows, whose sums of squares a thread reads at once

static_assert(UNITS % (BOX / 8) == 0 && UNITS % UNITS_PER_ITEM == 0 && STRIPS % SPLITS == 0 && STAGES > 1, "division");

// The sums that the blocks of a cluster send to one block, for the strips that it finishes.
struct Inbox {
    float4 sums[SPLITS][OWNED_STRIPS][PART_OUTPUTS / 8][32];
};
const int RECEIVED_BYTES = (SPLITS - 1) * OWNED_STRIPS * PART_OUTPUTS / 8 * 512;  // from the other blocks

// Where a strip lies in the tile.
struct Strip {
    int row, part;
    __device__ __forceinline__ explicit Strip(int strip) {
        const int warp = strip / ROW_TILES_PER_WARPGROUP, warpgroup = OUTPUT_PARTS == 2 ? 0 : warp / 4;
        part = OUTPUT_PARTS == 2 ? warp / 4 : 0;
        row = (warpgroup * ROW_TILES_PER_WARPGROUP + strip % ROW_TILES_PER_WARPGROUP) * 64 + warp % 4 * 16;
    }
};

// The norm's factors of a lane's two rows of a strip.
struct RowFactors {
    float factor[2];
};

__device__ __forceinline__ RowFactors row_factors_of_lane(float (&factors)[ROWS], Strip strip, int lane) {
    RowFactors row_factors;
#pragma unroll
    for (int h = 0; h < 2; ++h) row_factors.factor[h] = factors[strip.row + 8 * h + lane / 4];
    return row_factors;
}

// Lane l has of an item rows l / 4 and l / 4 + 8 of the strip, and of them two outputs of either half in each unit.
struct Item {
    int strip, unit;  // the first of UNITS_PER_ITEM units
    __device__ __forceinline__ Item(int item, int first_strip)
        : strip(first_strip + item / (UNITS / UNITS_PER_ITEM)),
          unit(item % (UNITS / UNITS_PER_ITEM) * UNITS_PER_ITEM) {}
};

__device__ __forceinline__ Outputs outputs_of_lane(int part, int unit, Shape shape) {
    const int offset = threadIdx.x % 4 * 2;
    return {{first_w_row<UNITS>(part, unit, 0, shape) + offset, first_w_row<UNITS>(part, unit, 1, shape) + offset}};
}

// Sums over the four neighbouring lanes that have the numbers of a row.
__device__ __forceinline__ float sum_of_row(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
}

// The squares of four rows that the kernel before left, over each 1024 / PADDED parts.
__device__ __forceinline__ float4 sum_squares_of_quad(Shape shape, Tensors tensors) {
    float4 sum = {};
#pragma unroll 4
    for (int part = threadIdx.x / ROW_QUADS; part < squares_parts(shape); part += MULTIPLYING_THREADS / ROW_QUADS) {
        const float4 more = __ldcg((const float4*)(squares_before(tensors) + part * PADDED) + threadIdx.x % ROW_QUADS);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return sum;
}

// Loads a stage of W: 64 of k of a tile's outputs.
__device__ __forceinline__ void load_w(const TensorMap& w, u32 stages, u32 filled_barriers, u32 freed_barriers, int k,
                                       int tile, Shape shape, int& stage, int& parity) {
    const u32 stage_address = stages + stage * STAGE_BYTES, filled = filled_barriers + 8 * stage;
    wait_for_phase(freed_barriers + 8 * stage, parity ^ 1);
    arrive_expecting_bytes(filled, W_BYTES);
#pragma unroll
    for (int half = 0; half < 2 * OUTPUT_PARTS; ++half)
#pragma unroll
        for (int unit = 0; unit < UNITS; unit += BOX / 8)
            load_tile_once(stage_address + (half * UNITS + unit) * 1024, w, k,
                           first_w_row<UNITS>(tile * OUTPUT_PARTS + half / 2, unit, half % 2, shape), filled);
    to_next_stage<STAGES>(stage, parity);
}

// Loads x for all tiles of the block, stage by stage.
__device__ __forceinline__ void load_x(const TensorMap& x, u32 stages, u32 filled_barriers, u32 freed_barriers,
                                       int first_tile, int tiles, int tile_stride, int first_slice, int steps,
                                       int first_row, int& stage, int& parity) {
    for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        for (int step = 0; step < steps; ++step) {
            wait_for_phase(freed_barriers + 8 * stage, parity ^ 1);
            arrive_expecting_bytes(filled_barriers + 8 * stage, X_BYTES);
            load_tile(stages + stage * STAGE_BYTES + W_BYTES, x, (first_slice + step) * DEPTH, first_row,
                      filled_barriers + 8 * stage);
            to_next_stage<STAGES>(stage, parity);
        }
    }
}

// Queues the products of a stage: 64 of k, 16 at a time, for each of the warpgroup's row tiles.
__device__ __forceinline__ void queue_products(float (&sums)[ROW_TILES_PER_WARPGROUP][PART_OUTPUTS / 2], u32 x_address,
                                               u32 w_address, int step) {
    const u64 x_rows = matrix_descriptor(x_address), w_rows = matrix_descriptor(w_address);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int tile = 0; tile < ROW_TILES_PER_WARPGROUP; ++tile)
            Wgmma<PART_OUTPUTS>::multiply_add(sums[tile], x_rows + tile * 512 + 2 * i, w_rows + 2 * i, step + i);
}

// Writes the norm's factors of all rows, from each thread's squares of four rows; without squares they are 1.
__device__ __forceinline__ void compute_factors(float (&factors)[ROWS], float4 (&scratch)[MULTIPLYING_THREADS],
                                                float4 quad_squares, Shape shape) {
    scratch[threadIdx.x] = quad_squares;
    sync_named_barrier(MULTIPLYING_THREADS, 1);
    for (int row = threadIdx.x; row < PADDED; row += MULTIPLYING_THREADS) {
        float sum = 0;
        for (int i = row; i < 4 * MULTIPLYING_THREADS; i += PADDED) sum += ((const float*)scratch)[i];
        factors[row] = squares_parts(shape) ? rsqrtf(sum / shape.inputs + shape.eps) : 1.0f;
    }
}

// Puts a lane's sums of a strip into the inbox of its owner, the block that finishes it. `slot` is their place in an
// inbox, given as an address of this block's.
__device__ __forceinline__ void send_sums(const float (&sums)[PART_OUTPUTS / 2], float4* slot, u32 inbox_barrier,
                                          int owner, bool is_owner) {
    if (is_owner) {
#pragma unroll
        for (int i = 0; i < PART_OUTPUTS / 8; ++i)
            slot[i * 32] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    } else {
        const u32 remote_slot = map_to_block(shared_address(slot), owner);
        const u32 remote_barrier = map_to_block(inbox_barrier, owner);
#pragma unroll
        for (int i = 0; i < PART_OUTPUTS / 8; ++i)
            store_remote(remote_slot + i * 512, remote_barrier, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2],
                         sums[4 * i + 3]);
    }
}

// Finishes an item. sums_of(u, half) gives lane l's sums of its u-th unit: x and y are in row l / 4 of the strip, z and
// w in row l / 4 + 8. `owned_strip` is the strip's index among those that the block finishes. With LEAVES_SQUARES those
// of each row go to squares_of_unit.
template <class SumsOf>
__device__ __forceinline__ void finish_item(SumsOf sums_of, Item item, Strip strip, RowFactors factors, int tile,
                                            Shape shape, Tensors tensors, const Preloaded<2> (&preloaded)[2],
                                            float (*squares_of_unit)[OWNED_STRIPS * 16], int owned_strip) {
    const int lane = threadIdx.x % 32, part = tile * OUTPUT_PARTS + strip.part;
    const auto scaled_row = [&](float4 sums, int h) {
        return Numbers<2>{{(h ? sums.z : sums.x) * factors.factor[h], (h ? sums.w : sums.y) * factors.factor[h]}};
    };
    float item_factors[2] = {};  // of the lane's two rows; first the sum of squares
#pragma unroll
    for (int u = 0; SCALES_ITEMS && u < UNITS_PER_ITEM; ++u) {
        const Outputs outputs = outputs_of_lane(part, item.unit + u, shape);
        const float4 low = sums_of(u, 0), high = sums_of(u, 1);
#pragma unroll
        for (int h = 0; h < 2; ++h)
            item_factors[h] += adjust_sums(scaled_row(low, h), outputs.first[0], shape, tensors).sum_of_squares() +
                               adjust_sums(scaled_row(high, h), outputs.first[1], shape, tensors).sum_of_squares();
    }
#pragma unroll
    for (int h = 0; SCALES_ITEMS && h < 2; ++h) item_factors[h] = item_factor(sum_of_row(item_factors[h]), shape);
#pragma unroll
    for (int u = 0; u < UNITS_PER_ITEM; ++u) {
        const Outputs outputs = outputs_of_lane(part, item.unit + u, shape);
        const float4 low = sums_of(u, 0), high = sums_of(u, 1);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            Numbers<2> a = adjust_sums(scaled_row(low, h), outputs.first[0], shape, tensors);
            Numbers<2> b = adjust_sums(scaled_row(high, h), outputs.first[1], shape, tensors);
            if (SCALES_ITEMS) scale_item(a, b, item_factors[h], outputs.first[0], shape, tensors);
            const int row = strip.row + 8 * h + lane / 4;
            const float squares = apply_epilogue(a, b, row, outputs, shape, tensors, preloaded[h]);
            if (!LEAVES_SQUARES) continue;
            const float row_squares = sum_of_row(squares);
            if (lane % 4 == 0) squares_of_unit[item.unit + u][owned_strip * 16 + 8 * h + lane / 4] = row_squares;
        }
    }
}

// Finishes the strips that the warp has multiplied, from registers: with SPLITS 1.
__device__ __forceinline__ void finish_registers(float (&sums)[ROW_TILES_PER_WARPGROUP][PART_OUTPUTS / 2],
                                                 float (&factors)[ROWS], int warp, int lane, int tile, Shape shape,
                                                 Tensors tensors, Preloaded<2> (&preloaded)[ITEMS_PER_WARP][2],
                                                 float (*squares_of_unit)[OWNED_STRIPS * 16]) {
#pragma unroll
    for (int row_tile = 0; row_tile < ROW_TILES_PER_WARPGROUP; ++row_tile) {
        const Strip strip(warp * ROW_TILES_PER_WARPGROUP + row_tile);
        const RowFactors row_factors = row_factors_of_lane(factors, strip, lane);
#pragma unroll
        for (int unit = 0; unit < UNITS; unit += UNITS_PER_ITEM) {
            const auto sums_of = [&](int u, int half) {
                const float* const four = sums[row_tile] + (half * UNITS + unit + u) * 4;
                return make_float4(four[0], four[1], four[2], four[3]);
            };
            Item item(0, warp * ROW_TILES_PER_WARPGROUP + row_tile);
            item.unit = unit;
            if (LEAVES_SQUARES) {
                const Outputs outputs = outputs_of_lane(tile * OUTPUT_PARTS + strip.part, unit, shape);
                for (int h = 0; h < 2; ++h)
                    preloaded[0][h] = preload<2>(strip.row + 8 * h + lane / 4, outputs, shape, tensors);
            }
            finish_item(sums_of, item, strip, row_factors, tile, shape, tensors, preloaded[0], squares_of_unit,
                        item.strip);
        }
    }
}

// Loads what the items are added to that the warp will finish: with more SPLITS.
__device__ __forceinline__ void preload_items(Preloaded<2> (&preloaded)[ITEMS_PER_WARP][2], int warp, int lane,
                                              int split, int tile, Shape shape, Tensors tensors) {
#pragma unroll
    for (int i = 0; i < ITEMS_PER_WARP; ++i) {
        const Item item(min(warp + 8 * i, ITEMS - 1), split * OWNED_STRIPS);
        const Strip strip(item.strip);
        const Outputs outputs = outputs_of_lane(tile * OUTPUT_PARTS + strip.part, item.unit, shape);
        for (int h = 0; h < 2; ++h)
            preloaded[i][h] = preload<2>(strip.row + 8 * h + lane / 4, outputs, shape, tensors);
    }
}

// Finishes the warp's items with the sums in the block's inbox: with more SPLITS.
__device__ __forceinline__ void finish_inbox(Inbox& inbox, int split, float (&factors)[ROWS], int warp, int lane,
                                             int tile, Shape shape, Tensors tensors,
                                             Preloaded<2> (&preloaded)[ITEMS_PER_WARP][2],
                                             float (*squares_of_unit)[OWNED_STRIPS * 16]) {
#pragma unroll
    for (int i = 0; i < ITEMS_PER_WARP; ++i) {
        if (warp + 8 * i >= ITEMS) break;
        const Item item(warp + 8 * i, split * OWNED_STRIPS);
        const Strip strip(item.strip);
        const int owned_strip = item.strip - split * OWNED_STRIPS;
        const RowFactors row_factors = row_factors_of_lane(factors, strip, lane);
        const auto sums_of = [&](int u, int half) {
            float4 sum = {};
#pragma unroll
            for (int sender = 0; sender < SPLITS; ++sender) {
                const float4 more = inbox.sums[sender][owned_strip][half * UNITS + item.unit + u][lane];
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
            return sum;
        };
        finish_item(sums_of, item, strip, row_factors, tile, shape, tensors, preloaded[i], squares_of_unit,
                    owned_strip);
    }
}

// Stores the tile's sums of squares of each row that the block finished.
__device__ __forceinline__ void store_next_squares(const float (*squares_of_unit)[OWNED_STRIPS * 16], int split,
                                                   int tile, Tensors tensors) {
    for (int i = threadIdx.x; i < OWNED_STRIPS * 16; i += MULTIPLYING_THREADS) {
        const Strip strip(split * OWNED_STRIPS + i / 16);
        float sum = 0;
        for (int unit = 0; unit < UNITS; ++unit) sum += squares_of_unit[unit][i];
        const int row = strip.row + i % 16;
        if (row < PADDED) leave_squares(tensors, (tile * OUTPUT_PARTS + strip.part) * PADDED + row, sum);
    }
}

// x [rows, inputs] and w [outputs, inputs] as tensor maps, boxes of ROWS x 64 and BOX x 64; inputs a multiple of 64,
// outputs of 8. The grid has SPLITS blocks for each tile in x, and a block for each ROWS rows in y. With SPLITS 1 it
// may have fewer blocks than tiles, which then take them in turn.
extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS, 1)
    many_rows(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
              const __grid_constant__ Shape shape, const __grid_constant__ Tensors tensors) {
    extern __shared__ char dynamic_shared[];
    Shape block_shape = shape;  // both from the block's first row on
    Tensors block_tensors = tensors;
    __shared__ alignas(8) u64 barriers[2 * STAGES + 1];
    __shared__ float factors[ROWS];
    __shared__ float4 scratch[MULTIPLYING_THREADS];
    __shared__ float squares_of_unit[LEAVES_SQUARES ? UNITS : 1][OWNED_STRIPS * 16];
    const u32 stages = (shared_address(dynamic_shared) + 1023) / 1024 * 1024;
    Inbox& inbox = *(Inbox*)(dynamic_shared + (stages - shared_address(dynamic_shared)));
    // Barriers of 8 bytes: of each stage, filled by the copy engine and freed by the multiplying warps; of the inbox.
    const u32 filled_barriers = shared_address(barriers);
    const u32 freed_barriers = filled_barriers + 8 * STAGES;
    const u32 inbox_barrier = freed_barriers + 8 * STAGES;
    const int tiles = (block_shape.outputs + OUTPUTS - 1) / OUTPUTS, slices = block_shape.inputs / DEPTH;
    const int split = blockIdx.x % SPLITS;
    const int first_slice = slices * split / SPLITS, steps = slices * (split + 1) / SPLITS - first_slice;
    const int first_tile = blockIdx.x / SPLITS, tile_stride = gridDim.x / SPLITS, first_row = blockIdx.y * ROWS;
    block_shape.rows -= first_row, block_tensors.y += (long long)first_row * block_shape.outputs;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(filled_barriers + 8 * i, 2);  // arrivals of the lanes that load W and x
            init_barrier(freed_barriers + 8 * i, MULTIPLYING_THREADS / 32);
        }
        init_barrier(inbox_barrier, 1);
        publish_barriers();
        if (SPLITS > 1) arrive_expecting_bytes(inbox_barrier, RECEIVED_BYTES);
    }
    __syncthreads();
    let_next_begin();
    int stage = 0, parity = 0;
    if (threadIdx.x >= MULTIPLYING_THREADS) {
        if (threadIdx.x == MULTIPLYING_THREADS) {  // a lane of warp 8
            for (int tile = first_tile; tile < tiles; tile += tile_stride)
                for (int step = 0; step < steps; ++step)
                    load_w(w, stages, filled_barriers, freed_barriers, (first_slice + step) * DEPTH, tile, block_shape,
                           stage, parity);
        } else if (threadIdx.x == MULTIPLYING_THREADS + 32) {  // a lane of warp 9
            wait_for_kernel_before();  // it may have written x; weights are parameters
            load_x(x, stages, filled_barriers, freed_barriers, first_tile, tiles, tile_stride, first_slice, steps,
                   first_row, stage, parity);
        }
        return;
    }
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const Strip warp_strip(warp * ROW_TILES_PER_WARPGROUP);
    const u32 w_offset = warp_strip.part * UNITS * 2048, x_offset = W_BYTES + warp_strip.row / 64 * 8192;  // in a stage
    wait_for_kernel_before();
    const float4 quad_squares = sum_squares_of_quad(block_shape, block_tensors);
    bool factors_known = false;
    for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        Preloaded<2> preloaded[ITEMS_PER_WARP][2];
        if (SPLITS > 1) preload_items(preloaded, warp, lane, split, tile, block_shape, block_tensors);
        float sums[ROW_TILES_PER_WARPGROUP][PART_OUTPUTS / 2];
        int stage_in_use = 0;
        const auto advance = [&](int step) {  // the products of the step before are done with their stage
            wgmma_commit();
            wgmma_wait<1>();
            if (step > 0 && lane == 0) arrive(freed_barriers + 8 * stage_in_use);
            stage_in_use = stage;
            to_next_stage<STAGES>(stage, parity);
        };
        for (int step = 0; step < steps; ++step) {
            wait_for_phase(filled_barriers + 8 * stage, parity);
            const u32 stage_address = stages + stage * STAGE_BYTES;
            queue_products(sums, stage_address + x_offset, stage_address + w_offset, step);
            advance(step);
        }
        wgmma_wait<0>();
        if (lane == 0) arrive(freed_barriers + 8 * stage_in_use);
        if (!factors_known) {
            compute_factors(factors, scratch, quad_squares, block_shape);
            factors_known = true;
        }
        if (SPLITS == 1) {
            sync_named_barrier(MULTIPLYING_THREADS, 1);  // the factors are written
            finish_registers(sums, factors, warp, lane, tile, block_shape, block_tensors, preloaded, squares_of_unit);
        } else {
            // All blocks are done with their stages. Relaxed is enough: a stage's reads are over when its products are.
            cluster_arrive_relaxed();
            cluster_wait();
#pragma unroll
            for (int row_tile = 0; row_tile < ROW_TILES_PER_WARPGROUP; ++row_tile) {
                const int strip = warp * ROW_TILES_PER_WARPGROUP + row_tile, owner = strip / OWNED_STRIPS;
                send_sums(sums[row_tile], &inbox.sums[split][strip % OWNED_STRIPS][0][lane], inbox_barrier, owner,
                          owner == split);
            }
            sync_named_barrier(MULTIPLYING_THREADS, 1);  // this block's own sums, and the factors, are written
            wait_for_phase(inbox_barrier, 0);            // the sums of the other blocks have arrived
            finish_inbox(inbox, split, factors, warp, lane, tile, block_shape, block_tensors, preloaded,
                         squares_of_unit);
        }
        if (LEAVES_SQUARES) {
            sync_named_barrier(MULTIPLYING_THREADS, 1);
            store_next_squares(squares_of_unit, split, tile, block_tensors);
            sync_named_barrier(MULTIPLYING_THREADS, 1);
        }
    }
}
