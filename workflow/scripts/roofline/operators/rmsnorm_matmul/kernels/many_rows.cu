// y = x W^T of many rows of x with what follows it (epilogue.cuh): Hopper's copy engine and wgmma.
//
// x is the tensor cores' large operand, 64 of its rows at a time, and W the other: a tile has any multiple of 16 outputs,
// so that nearly every multiprocessor gets an equal part of W. The blocks of a cluster share k and send one another their
// sums; each of them finishes some of the rows. Where x is to be normalised by the squares that the kernel before left,
// their factor comes last, on the sums.
//
// A launch may begin while the kernel before it ends: it fetches its first stages of W, and x when that one is done.
//
// Compiled for one dtype, division of the work and what follows: BF16 or fp16, ROWS of x, OUTPUTS of a tile, SPLITS of k,
// STAGES under way, BOX rows of W that come at once, WAY. The kernel before may have left sums of squares of PADDED rows.
// For queries, keys and values HEAD_SIZE, HEAD_NORMS, BIAS.

#ifndef BF16
#define BF16 0
#define ROWS 128
#define PADDED 128
#define OUTPUTS 208
#define SPLITS 2
#define STAGES 5
#define BOX 16
#define WAY 0
#define HEAD_SIZE 128
#define HEAD_NORMS 0
#define BIAS 1
#endif

#include "../../gemm/kernels/hopper.cuh"
#include "epilogue.cuh"

const int DEPTH = 64;                   // of k, a stage: 128 bytes
const int ACROSS = ROWS == 64 ? 2 : 1;  // parts of a tile's outputs: of few rows each warpgroup has its own
const int TALL = ROWS > 128 ? 2 : 1;    // times 64 rows that a warpgroup multiplies
const int PART = OUTPUTS / ACROSS, UNITS = PART / 16;  // outputs of a part; in units of 8 of either half
const int W_BYTES = OUTPUTS * DEPTH * 2, X_BYTES = ROWS * DEPTH * 2, STAGE_BYTES = W_BYTES + X_BYTES;
const int MULTIPLYING = 256, THREADS = MULTIPLYING + 64;  // two warps feed, of W and of x
const int STRIPS = 8 * TALL, OWN = STRIPS / SPLITS;       // of 16 rows by a part's outputs: of a block, and that it finishes
const int TOGETHER = HEAD_NORMS ? HEAD_SIZE / 16 : 1;     // units that are finished together
const int ITEMS = OWN * (UNITS / TOGETHER), EACH = (ITEMS + 7) / 8;  // that a block finishes, and a warp of it
const int QUADS = PADDED / 4;                             // of rows, whose sums of squares are read at once

static_assert(UNITS % (BOX / 8) == 0 && UNITS % TOGETHER == 0 && STRIPS % SPLITS == 0 && STAGES > 1, "division");

// What the blocks of a cluster send one another, in the place of the stages when these are done with.
struct Inbox {
    float4 sums[SPLITS][OWN][PART / 8][32];
};
const int INBOX_BYTES = (SPLITS - 1) * OWN * PART / 8 * 512;  // from others

// Of four lanes beside one another, which have a row's numbers.
__device__ __forceinline__ float sum_of_four(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
}

struct Strip {
    int row, part;
    __device__ __forceinline__ explicit Strip(int strip) {
        const int warp = strip / TALL, group = ACROSS == 2 ? 0 : warp / 4;
        part = ACROSS == 2 ? warp / 4 : 0;
        row = (group * TALL + strip % TALL) * 64 + warp % 4 * 16;
    }
};

// Two rows' factors of the norm.
struct Scales {
    float of[2];
};

// What a warp finishes of a strip, from a unit on: of lane l rows l / 4 and l / 4 + 8, of either half two outputs a unit.
struct Item {
    int strip, unit;
    __device__ __forceinline__ Item(int item, int first_strip)
        : strip(first_strip + item / (UNITS / TOGETHER)), unit(item % (UNITS / TOGETHER) * TOGETHER) {}
};

__device__ __forceinline__ Outputs outputs_of(int part, int unit, Shape shape) {
    const int within = threadIdx.x % 4 * 2;
    return {{first_row<UNITS>(part, unit, 0, shape) + within, first_row<UNITS>(part, unit, 1, shape) + within}};
}

// Of the parts of all rows' squares that the kernel before left: those of four rows, over each 1024 / PADDED parts.
__device__ __forceinline__ float4 squares_before(Shape shape, Tensors to) {
    float4 sum = {};
#pragma unroll 4
    for (int part = threadIdx.x / QUADS; part < shape.parts; part += MULTIPLYING / QUADS) {
        const float4 more = __ldcg((const float4*)(to.squares + part * PADDED) + threadIdx.x % QUADS);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return sum;
}

// TOGETHER units of a strip. `sums_of` a unit and half: of its rows l / 4 and l / 4 + 8 two outputs each.
template <class SumsOf>
__device__ __forceinline__ void finish_item(SumsOf sums_of, Item item, Strip at, Scales scales, int tile, Shape shape,
                                            Tensors to, const Held<2> (&held)[2], float (*squares_of)[OWN * 16], int own) {
    const int lane = threadIdx.x % 32, part = tile * ACROSS + at.part;
    const auto row_of = [&](float4 sums, int h) {
        return Numbers<2>{{(h ? sums.z : sums.x) * scales.of[h], (h ? sums.w : sums.y) * scales.of[h]}};
    };
    float of_head[2] = {};
#pragma unroll
    for (int u = 0; HEAD_NORMS && u < TOGETHER; ++u) {
        const Outputs outputs = outputs_of(part, item.unit + u, shape);
        const float4 low = sums_of(u, 0), high = sums_of(u, 1);
#pragma unroll
        for (int h = 0; h < 2; ++h)
            of_head[h] += biased(row_of(low, h), outputs.of[0], shape, to).squares() +
                          biased(row_of(high, h), outputs.of[1], shape, to).squares();
    }
#pragma unroll
    for (int h = 0; HEAD_NORMS && h < 2; ++h) of_head[h] = rsqrtf(sum_of_four(of_head[h]) / HEAD_SIZE + shape.eps);
#pragma unroll
    for (int u = 0; u < TOGETHER; ++u) {
        const Outputs outputs = outputs_of(part, item.unit + u, shape);
        const float4 low = sums_of(u, 0), high = sums_of(u, 1);
        const int head = outputs.of[0] / HEAD_SIZE, place = outputs.of[0] % HEAD_SIZE;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            Numbers<2> a = biased(row_of(low, h), outputs.of[0], shape, to);
            Numbers<2> b = biased(row_of(high, h), outputs.of[1], shape, to);
            if (HEAD_NORMS && head < shape.heads + shape.key_heads) {
                const half_bits* const g = (head < shape.heads ? to.query_norm : to.key_norm) + place;
                a = a * of_head[h] * Numbers<2>::load(g), b = b * of_head[h] * Numbers<2>::load(g + HEAD_SIZE / 2);
            }
            const float squares = finish(a, b, at.row + 8 * h + lane / 4, outputs, shape, to, held[h]);
            if (WAY != ADDED) continue;
            const float of_row = sum_of_four(squares);
            if (lane % 4 == 0) squares_of[item.unit + u][own * 16 + 8 * h + lane / 4] = of_row;
        }
    }
}

// x [rows, inputs] and w [outputs, inputs] as tensor maps, boxes of ROWS x 64 and BOX x 64; inputs a multiple of 64,
// outputs of 8. Blocks: (SPLITS of each tile, or where k is whole as many as take turns at tiles; ROWS rows of x).
extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS, 1)
    many_rows(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const __grid_constant__ Shape all,
              const __grid_constant__ Tensors tensors) {
    extern __shared__ char room[];
    Shape shape = all;
    Tensors to = tensors;
    __shared__ alignas(8) u64 barriers[2 * STAGES + 1];
    __shared__ float factors[ROWS];
    __shared__ float4 scratch[MULTIPLYING];
    __shared__ float squares_of[WAY == ADDED ? UNITS : 1][OWN * 16];
    const u32 stages = (shared_address(room) + 1023) / 1024 * 1024;
    Inbox& inbox = *(Inbox*)(room + (stages - shared_address(room)));
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES, inbox_full = empty + 8 * STAGES;
    const int tiles = (shape.outputs + OUTPUTS - 1) / OUTPUTS, slices = shape.inputs / DEPTH, split = blockIdx.x % SPLITS;
    const int start = slices * split / SPLITS, steps = slices * (split + 1) / SPLITS - start;
    const int first_tile = blockIdx.x / SPLITS, stride = gridDim.x / SPLITS, chunk = blockIdx.y * ROWS;
    shape.rows -= chunk, to.y += (long long)chunk * shape.outputs;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + 8 * i, 2);  // W is asked for, and x
            barrier_init(empty + 8 * i, MULTIPLYING / 32);
        }
        barrier_init(inbox_full, 1);
        barriers_visible();
        if (SPLITS > 1) expect_bytes(inbox_full, INBOX_BYTES);
    }
    __syncthreads();
    let_next_begin();
    int stage = 0, round = 0;
    if (threadIdx.x >= MULTIPLYING) {
        if (threadIdx.x == MULTIPLYING) {
            for (int tile = first_tile; tile < tiles; tile += stride) {
                for (int step = 0; step < steps; ++step) {
                    const int k = (start + step) * DEPTH;
                    const u32 at = stages + stage * STAGE_BYTES, barrier = full + 8 * stage;
                    wait(empty + 8 * stage, round ^ 1);
                    expect_bytes(barrier, W_BYTES);
#pragma unroll
                    for (int half = 0; half < 2 * ACROSS; ++half)
#pragma unroll
                        for (int unit = 0; unit < UNITS; unit += BOX / 8)
                            load_tile_once(at + (half * UNITS + unit) * 1024, w, k,
                                           first_row<UNITS>(tile * ACROSS + half / 2, unit, half % 2, shape), barrier);
                    if (++stage == STAGES) stage = 0, round ^= 1;
                }
            }
        } else if (threadIdx.x == MULTIPLYING + 32) {
            wait_for_kernel_before();  // it may have written x; weights are parameters
            for (int tile = first_tile; tile < tiles; tile += stride) {
                for (int step = 0; step < steps; ++step) {
                    wait(empty + 8 * stage, round ^ 1);
                    expect_bytes(full + 8 * stage, X_BYTES);
                    load_tile(stages + stage * STAGE_BYTES + W_BYTES, x, (start + step) * DEPTH, chunk, full + 8 * stage);
                    if (++stage == STAGES) stage = 0, round ^= 1;
                }
            }
        }
        return;
    }
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const Strip mine(warp * TALL);
    const u32 of_w = mine.part * UNITS * 2048, of_x = W_BYTES + mine.row / 64 * 8192;  // in a stage
    wait_for_kernel_before();
    const float4 before = squares_before(shape, to);
    bool factors_known = false;
    for (int tile = first_tile; tile < tiles; tile += stride) {
        Held<2> held[EACH][2];
        if (SPLITS > 1) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const Item item(min(warp + 8 * i, ITEMS - 1), split * OWN);
                const Strip at(item.strip);
                const Outputs outputs = outputs_of(tile * ACROSS + at.part, item.unit, shape);
                for (int h = 0; h < 2; ++h) held[i][h] = hold<2>(at.row + 8 * h + lane / 4, outputs, shape, to);
            }
        }
        float sums[TALL][PART / 2];
        int used = 0;
        const auto advance = [&](int step) {  // the products of the step before are done with their stage
            products_queued();
            products_wait<1>();
            if (step > 0 && lane == 0) arrive(empty + 8 * used);
            used = stage;
            if (++stage == STAGES) stage = 0, round ^= 1;
        };
        for (int step = 0; step < steps; ++step) {
            wait(full + 8 * stage, round);
            const u32 at = stages + stage * STAGE_BYTES;
            const u64 left = described(at + of_x), right = described(at + of_w);
            products_begin();
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int tall = 0; tall < TALL; ++tall)
                    Product<PART>::add(sums[tall], left + tall * 512 + 2 * i, right + 2 * i, step + i);
            advance(step);
        }
        products_wait<0>();
        if (lane == 0) arrive(empty + 8 * used);
        if (!factors_known) {
            scratch[t] = before;
            sync_among(MULTIPLYING, 1);
            for (int row = t; row < PADDED; row += MULTIPLYING) {
                float sum = 0;
                for (int i = row; i < 4 * MULTIPLYING; i += PADDED) sum += ((const float*)scratch)[i];
                factors[row] = shape.parts ? rsqrtf(sum / shape.inputs + shape.eps) : 1.0f;
            }
            factors_known = true;
        }
        if (SPLITS == 1) {
            sync_among(MULTIPLYING, 1);
#pragma unroll
            for (int tall = 0; tall < TALL; ++tall) {
                const Strip at(warp * TALL + tall);
                Scales scales;
#pragma unroll
                for (int h = 0; h < 2; ++h)
                    scales.of[h] = factors[at.row + 8 * h + lane / 4];
#pragma unroll
                for (int unit = 0; unit < UNITS; unit += TOGETHER) {
                    const auto sums_of = [&](int u, int half) {
                        const float* const from = sums[tall] + (half * UNITS + unit + u) * 4;
                        return make_float4(from[0], from[1], from[2], from[3]);
                    };
                    Item item(0, warp * TALL + tall);
                    item.unit = unit;
                    if (WAY == ADDED) {
                        const Outputs outputs = outputs_of(tile * ACROSS + at.part, unit, shape);
                        for (int h = 0; h < 2; ++h) held[0][h] = hold<2>(at.row + 8 * h + lane / 4, outputs, shape, to);
                    }
                    finish_item(sums_of, item, at, scales, tile, shape, to, held[0], squares_of, item.strip);
                }
            }
        } else {
            // All blocks are done with their stages. Relaxed is enough: a stage's reads are over when its products are.
            cluster_arrive_relaxed();
            cluster_wait();
#pragma unroll
            for (int tall = 0; tall < TALL; ++tall) {
                const int strip = warp * TALL + tall, owner = strip / OWN;
                float4* const place = &inbox.sums[split][strip % OWN][0][lane];
                const float* const from = sums[tall];
                if (owner == split) {
#pragma unroll
                    for (int i = 0; i < PART / 8; ++i)
                        place[i * 32] = make_float4(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
                } else {
                    const u32 there = in_block(shared_address(place), owner), barrier = in_block(inbox_full, owner);
#pragma unroll
                    for (int i = 0; i < PART / 8; ++i)
                        send(there + i * 512, barrier, from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
                }
            }
            sync_among(MULTIPLYING, 1);  // this block's own, and the factors
            wait(inbox_full, 0);
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                if (warp + 8 * i >= ITEMS) break;
                const Item item(warp + 8 * i, split * OWN);
                const Strip at(item.strip);
                const int own = item.strip - split * OWN;
                Scales scales = {};
#pragma unroll
                for (int h = 0; h < 2; ++h) scales.of[h] = factors[at.row + 8 * h + lane / 4];
                const auto sums_of = [&](int u, int half) {
                    float4 sum = {};
#pragma unroll
                    for (int from = 0; from < SPLITS; ++from) {
                        const float4 more = inbox.sums[from][own][half * UNITS + item.unit + u][lane];
                        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
                    }
                    return sum;
                };
                finish_item(sums_of, item, at, scales, tile, shape, to, held[i], squares_of, own);
            }
        }
        if (WAY == ADDED) {
            sync_among(MULTIPLYING, 1);
            for (int one = t; one < OWN * 16; one += MULTIPLYING) {
                const Strip at(split * OWN + one / 16);
                float sum = 0;
                for (int unit = 0; unit < UNITS; ++unit) sum += squares_of[unit][one];
                const int row = at.row + one % 16;
                if (row < PADDED) to.next_squares[(tile * ACROSS + at.part) * PADDED + row] = sum;
            }
            sync_among(MULTIPLYING, 1);
        }
    }
}
