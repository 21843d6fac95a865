// y = x W^T of a few rows of x, for one decode step of a model, with what follows it: Hopper's copy engine and wgmma.
//
// W streams through the tensor cores as their large operand, 128 of its rows at a time, and x is the small one. As many
// blocks as the card holds share W evenly: each takes a run of slices of k, which may end in the middle of a tile of
// outputs. The block with a tile's first slice adds up what the others leave of it, in their order, and writes.
//
// A launch may begin while the kernel before it ends: it fetches its first slices of W, and x when that one is done.
//
// Compiled for one dtype, number of rows and what follows: BF16 or fp16, ROWS of x, CHUNK of them whose results are in
// shared memory at once, STAGES under way, WAY (step.cuh), and for queries, keys and values HEAD_SIZE, NORMS of queries
// and keys, and BIAS.

#ifndef BF16
#define BF16 0
#define ROWS 8
#define CHUNK 8
#define STAGES 6
#define WAY 0
#define HEAD_SIZE 128
#define NORMS 1
#define BIAS 1
#endif

#include "../../gemm/kernels/hopper.cuh"
#include "step.cuh"

const int DEPTH = 64;      // of k, a slice: 128 bytes
const int OUTPUTS = 128;   // of a tile: rows of W, 64 for each of two warpgroups
const int W_BYTES = OUTPUTS * DEPTH * 2, X_BYTES = ROWS * DEPTH * 2, STAGE_BYTES = W_BYTES + X_BYTES;
const int MULTIPLYING = 256, THREADS = MULTIPLYING + 64;  // two warps feed, of W and of x
const int ITEMS = (CHUNK * 16 + MULTIPLYING - 1) / MULTIPLYING;  // of eight outputs of a row, that a thread writes
const int PITCH = OUTPUTS + 4;            // floats: lanes that write at a time meet in no bank
const int SUMS = ROWS / 2;                // a thread's, of a tile

// Slices of W, tile by tile, that a block takes.
struct Share {
    long long first, end;
    int slices;  // of a tile
    __device__ __forceinline__ Share(int block, int tiles, int of_a_tile) : slices(of_a_tile) {
        const long long all = (long long)tiles * of_a_tile;
        first = all * block / gridDim.x, end = all * (block + 1) / gridDim.x;
    }
};

__device__ __forceinline__ int first_row(int tile, int half, int outputs) {
    return WAY == GATED ? half * (outputs / 2) + tile * 64 : tile * OUTPUTS + half * 64;
}

__device__ __forceinline__ u32 load_acquired(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ void store_released(u32* to, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Among so many lanes beside one another.
template <int LANES>
__device__ __forceinline__ float sum_among(float value) {
#pragma unroll
    for (int apart = LANES / 2; apart; apart /= 2) value += __shfl_xor_sync(0xffffffff, value, apart);
    return value;
}

struct Eight {
    float of[8];
    __device__ __forceinline__ static Eight of_floats(const float* at, float factor) {
        const float4 low = *(const float4*)at, high = *(const float4*)(at + 4);
        return {{low.x * factor, low.y * factor, low.z * factor, low.w * factor, high.x * factor, high.y * factor,
                 high.z * factor, high.w * factor}};
    }
    __device__ __forceinline__ static Eight of_halves(const uint4& v) {
        return {{lower(v.x), upper(v.x), lower(v.y), upper(v.y), lower(v.z), upper(v.z), lower(v.w), upper(v.w)}};
    }
    __device__ __forceinline__ uint4 rounded() const {
        return make_uint4(packed(of[0], of[1]), packed(of[2], of[3]), packed(of[4], of[5]), packed(of[6], of[7]));
    }
    __device__ __forceinline__ void add(const Eight& other) {
#pragma unroll
        for (int i = 0; i < 8; ++i) of[i] += other.of[i];
    }
    __device__ __forceinline__ void times(const Eight& other, float factor) {
#pragma unroll
        for (int i = 0; i < 8; ++i) of[i] *= other.of[i] * factor;
    }
    __device__ __forceinline__ float squares() const {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(of[i], of[i], sum);
        return sum;
    }
};
__device__ __forceinline__ Eight load_eight(const half_bits* at) { return Eight::of_halves(load_global(at)); }

// ---------------------------------------------------------------- what follows, of CHUNK rows of a tile in `sums`

__device__ __forceinline__ void write_alone(const float* sums, int t, float factor, int row, int tile, Shape shape, Tensors to) {
    const int output = tile * OUTPUTS + t % 16 * 8;
    if (row < shape.rows && output < shape.outputs)
        *(uint4*)(to.y + (long long)row * shape.outputs + output) = Eight::of_floats(sums + t % 16 * 8, factor).rounded();
}

// What is added to, and the next norm's weights: asked for before the sums are there.
struct Held {
    uint4 stream, g;
};

__device__ __forceinline__ int row_of(int t, int item) { return t / 16 + item * (MULTIPLYING / 16); }

__device__ __forceinline__ Held hold(int t, int row, int tile, Shape shape, Tensors to) {
    const int output = tile * OUTPUTS + t % 16 * 8;
    const uint4 none = {0, 0, 0, 0};
    if (WAY != ADDED || row >= shape.rows || output >= shape.outputs) return {none, none};
    return {load_global(to.stream + (long long)row * shape.outputs + output), load_global(to.g + output)};
}

__device__ __forceinline__ void write_added(const float* sums, int t, float factor, int row, int tile, Shape shape, Tensors to,
                                            const Held& held) {
    const int output = tile * OUTPUTS + t % 16 * 8;
    float squares = 0;
    if (row < shape.rows && output < shape.outputs) {
        const long long at = (long long)row * shape.outputs + output;
        Eight sum = Eight::of_floats(sums + t % 16 * 8, factor);
        sum.add(Eight::of_halves(held.stream));
        const uint4 rounded = sum.rounded();
        *(uint4*)(to.stream + at) = rounded;
        Eight scaled = Eight::of_halves(rounded);
        squares = scaled.squares();
        scaled.times(Eight::of_halves(held.g), 1);
        *(uint4*)(to.y + at) = scaled.rounded();
    }
    squares = sum_among<16>(squares);
    if (t % 16 == 0) to.next_squares[tile * ROWS + row] = squares;
}

__device__ __forceinline__ void write_gated(const float* sums, int t, float factor, int row, int tile, Shape shape, Tensors to) {
    const int width = shape.outputs / 2, output = tile * 64 + t % 16 * 8;
    if (t % 16 >= 8 || row >= shape.rows || output >= width) return;
    Eight gate = Eight::of_floats(sums + t % 16 * 8, factor);
    const Eight up = Eight::of_floats(sums + 64 + t % 16 * 8, factor);
#pragma unroll
    for (int i = 0; i < 8; ++i) gate.of[i] *= up.of[i] / (1 + __expf(-gate.of[i]));
    *(uint4*)(to.y + (long long)row * width + output) = gate.rounded();
}

#if WAY == 0
const int PAIRS = HEAD_SIZE / 16;  // threads that have eight pairs each of a head: places i and i + HEAD_SIZE / 2

__device__ __forceinline__ void write_heads(const float* sums, int t, float factor, int row, int tile, Shape shape, Tensors to) {
    const int item = t % 16 % 8, within = item % PAIRS * 8, place = item / PAIRS * HEAD_SIZE + within;
    const int head = (tile * OUTPUTS + place) / HEAD_SIZE, output = head * HEAD_SIZE + within;
    const bool there = t % 16 < 8 && row < shape.rows && output < shape.outputs;
    Eight a = Eight::of_floats(sums + place, factor), b = Eight::of_floats(sums + place + HEAD_SIZE / 2, factor);
    if (BIAS && there) {
        a.add(load_eight(to.bias + output));
        b.add(load_eight(to.bias + output + HEAD_SIZE / 2));
    }
    const bool query = head < shape.heads, key = !query && head < shape.heads + shape.kv_heads;
    if (NORMS) {
        const float mean = sum_among<PAIRS>(a.squares() + b.squares()) / HEAD_SIZE;
        if (query || key) {
            const half_bits* const g = query ? to.query_norm : to.key_norm;
            const float scale = rsqrtf(mean + shape.eps);
            a.times(load_eight(g + within), scale);
            b.times(load_eight(g + within + HEAD_SIZE / 2), scale);
        }
    }
    if (!there) return;
    if (query || key) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float2 turn = to.turns[within + i];
            const float low = a.of[i];
            a.of[i] = low * turn.x - b.of[i] * turn.y;
            b.of[i] = b.of[i] * turn.x + low * turn.y;
        }
    }
    half_bits* at = to.y + ((long long)row * shape.heads + head) * HEAD_SIZE;
    if (!query) {
        const int of_kv = head - shape.heads - (key ? 0 : shape.kv_heads);
        const long long token = ((long long)row * shape.kv_heads + of_kv) * shape.seq_len + shape.seq_len - 1;
        at = (key ? to.keys : to.values) + token * HEAD_SIZE;
    }
    *(uint4*)(at + within) = a.rounded();
    *(uint4*)(at + within + HEAD_SIZE / 2) = b.rounded();
}
#endif

__device__ __forceinline__ void write(const float* sums, int t, float factor, int row, int tile, Shape shape, Tensors to,
                                      const Held& held) {
#if WAY == 0
    write_heads(sums, t, factor, row, tile, shape, to);
#elif WAY == 1
    write_added(sums, t, factor, row, tile, shape, to, held);
#elif WAY == 2
    write_gated(sums, t, factor, row, tile, shape, to);
#else
    write_alone(sums, t, factor, row, tile, shape, to);
#endif
}

// ---------------------------------------------------------------- the kernel

// x [rows, inputs] and w [outputs, inputs] as tensor maps, boxes of ROWS x 64 and 64 x 64; inputs a multiple of 64,
// outputs of 8, gated ones of 128.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const __grid_constant__ Shape shape,
           const __grid_constant__ Tensors to) {
    extern __shared__ char room[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    __shared__ float factors[ROWS];
    __shared__ alignas(16) float results[CHUNK * PITCH];
    const u32 stages = (shared_address(room) + 1023) / 1024 * 1024;
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES;
    const int tiles = (shape.outputs + OUTPUTS - 1) / OUTPUTS, slices = shape.inputs / DEPTH;
    const Share mine(blockIdx.x, tiles, slices);
    const int count = (int)(mine.end - mine.first);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + 8 * i, 2);  // W is asked for, and x
            barrier_init(empty + 8 * i, MULTIPLYING / 32);
        }
        barriers_visible();
    }
    __syncthreads();
    let_next_begin();
    if (threadIdx.x >= MULTIPLYING) {
        int stage = 0, round = 0;
        if (threadIdx.x == MULTIPLYING) {
            int tile = (int)(mine.first / slices), slice = (int)(mine.first % slices);
            for (int i = 0; i < count; ++i) {
                const u32 at = stages + stage * STAGE_BYTES;
                wait(empty + 8 * stage, round ^ 1);
                expect_bytes(full + 8 * stage, W_BYTES);
                for (int half = 0; half < 2; ++half)
                    load_tile_once(at + half * (W_BYTES / 2), w, slice * DEPTH, first_row(tile, half, shape.outputs),
                                   full + 8 * stage);
                if (++slice == slices) slice = 0, ++tile;
                if (++stage == STAGES) stage = 0, round ^= 1;
            }
        } else if (threadIdx.x == MULTIPLYING + 32) {
            wait_for_kernel_before();  // it may have written x; W is a parameter
            int slice = (int)(mine.first % slices);
            for (int i = 0; i < count; ++i) {
                wait(empty + 8 * stage, round ^ 1);
                expect_bytes(full + 8 * stage, X_BYTES);
                load_tile(stages + stage * STAGE_BYTES + W_BYTES, x, slice * DEPTH, 0, full + 8 * stage);
                if (++slice == slices) slice = 0;
                if (++stage == STAGES) stage = 0, round ^= 1;
            }
        }
        return;
    }
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, half = t / 128;
    wait_for_kernel_before();
    // Of x the norm's factors, which only results need.
    float squares = 0;
    for (int part = t / ROWS; part < shape.parts; part += MULTIPLYING / ROWS)
        squares += __ldcg(to.squares + part * ROWS + t % ROWS);
    bool scaled = false;

    int stage = 0, round = 0, from = (int)(mine.first % slices), tile = (int)(mine.first / slices);
    float sums[SUMS];
    for (int done = 0; done < count; from = 0, ++tile) {
        const int steps = min(slices - from, count - done);
        int before = 0;
        for (int step = 0; step < steps; ++step) {
            wait(full + 8 * stage, round);
            const u32 at = stages + stage * STAGE_BYTES;
            const u64 left = described(at + half * (W_BYTES / 2)), right = described(at + W_BYTES);
            products_begin();
#pragma unroll
            for (int part = 0; part < DEPTH / 16; ++part)
                Product<ROWS>::add(sums, left + 2 * part, right + 2 * part, step + part);
            products_queued();
            products_wait<1>();
            if (step > 0 && lane == 0) arrive(empty + 8 * before);
            before = stage;
            if (++stage == STAGES) stage = 0, round ^= 1;
        }
        products_wait<0>();
        if (lane == 0) arrive(empty + 8 * before);
        done += steps;

        if (from > 0) {  // another block has the tile's first slice
            float* const place = to.workspace + (long long)blockIdx.x * (SUMS * MULTIPLYING);
#pragma unroll
            for (int i = 0; i < SUMS; i += 4)
                __stcg((float4*)(place + i * MULTIPLYING) + t, make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
            __threadfence();
            sync_among(MULTIPLYING, 1);
            if (t == 0) store_released(to.arrived + blockIdx.x, 1);
            continue;
        }
        if (!scaled) {
            results[t] = squares;
            sync_among(MULTIPLYING, 1);
            if (t < ROWS) {
                for (int other = t + ROWS; other < MULTIPLYING; other += ROWS) squares += results[other];
                factors[t] = shape.parts ? rsqrtf(squares / shape.inputs + shape.eps) : 1.0f;
            }
            scaled = true;
        }
        Held held[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) held[i] = hold(t, row_of(t, i), tile, shape, to);
        // Blocks that have the rest of this tile: all of them are awaited at once, then their sums asked for at once.
        const long long end = (long long)(tile + 1) * slices;
        int last = blockIdx.x;
        while (last + 1 < gridDim.x && Share(last + 1, tiles, slices).first < end) ++last;
        const int others = last - blockIdx.x;
        for (int other = t; other < others; other += MULTIPLYING) {
            u32* const arrived = to.arrived + blockIdx.x + 1 + other;
            while (!load_acquired(arrived)) {
            }
            *arrived = 0;
        }
        sync_among(MULTIPLYING, 1);
        const float* place = to.workspace + (long long)(blockIdx.x + 1) * (SUMS * MULTIPLYING);
#pragma unroll(SUMS <= 16 ? 4 : 1)
        for (int other = 0; other < others; ++other, place += SUMS * MULTIPLYING) {
#pragma unroll
            for (int i = 0; i < SUMS; i += 4) {
                const float4 more = __ldcg((const float4*)(place + i * MULTIPLYING) + t);
                sums[i] += more.x, sums[i + 1] += more.y, sums[i + 2] += more.z, sums[i + 3] += more.w;
            }
        }
#pragma unroll
        for (int chunk = 0; chunk < ROWS; chunk += CHUNK) {
            sync_among(MULTIPLYING, 1);
#pragma unroll
            for (int i = 0; i < CHUNK / 8; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int row = 8 * i + 2 * (lane % 4) + j % 2, output = 64 * half + 16 * (warp % 4) + 8 * (j / 2) + lane / 4;
                    results[row * PITCH + output] = sums[chunk / 2 + 4 * i + j];
                }
            }
            sync_among(MULTIPLYING, 1);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const int row = row_of(t, i);
                if (row < CHUNK) write(results + row * PITCH, t, factors[chunk + row], chunk + row, tile, shape, to, held[i]);
            }
            if (chunk + CHUNK < ROWS) {
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) held[i] = hold(t, chunk + CHUNK + row_of(t, i), tile, shape, to);
            }
        }
    }
}
