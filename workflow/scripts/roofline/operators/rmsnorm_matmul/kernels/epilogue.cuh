// What follows a product in a decode step, in the registers that hold its sums: WAY. And what a product is told.

#pragma once

enum { QKV, ADDED, GATED, ALONE };  // 0 to 3, as WAY is given

struct Shape {
    int rows, outputs, inputs;  // of x, of W, and of both
    int heads, key_heads, context;
    int parts;                  // sums of squares of each row of x, where the kernel before left them
    float eps;
};

struct Tensors {
    half_bits* y;            // [rows, outputs]; queries alone; gated [rows, outputs / 2]; added: scaled by g, for the next norm
    half_bits* stream;       // [rows, outputs], added to
    const half_bits* g;      // [outputs] of the next norm
    const float* squares;    // [parts, PADDED] of x
    float* next_squares;     // [tiles, PADDED] of what is added
    half_bits *keys, *values;  // [rows, key_heads, context, HEAD_SIZE]; the last token is written
    const float2* turns;     // [HEAD_SIZE / 2] cosine and sine of the last token's place
    const half_bits *bias, *query_norm, *key_norm;  // [outputs], [HEAD_SIZE] twice
    const half_bits* norm;   // [inputs] of x's norm, where this kernel takes it
};

// The first row of W of the `unit`-th eight of half 0 or 1. Halves hold what belongs together: the two places that a
// rotation mixes, or gate and up; else those of half 1 follow the UNITS of half 0 in a tile.
template <int UNITS>
__device__ __forceinline__ int first_row(int tile, int unit, int half, Shape shape) {
    const int eight = (tile * UNITS + unit) * 8;
    if (WAY == QKV) return eight / (HEAD_SIZE / 2) * HEAD_SIZE + eight % (HEAD_SIZE / 2) + half * (HEAD_SIZE / 2);
    if (WAY == GATED) return half * (shape.outputs / 2) + eight;
    return (tile * 2 + half) * UNITS * 8 + unit * 8;
}

// The first of a lane's outputs in either half.
struct Outputs {
    int of[2];
};

// N numbers beside one another: one, or two.
template <int N>
struct Numbers {
    float of[N];
    __device__ __forceinline__ static Numbers load(const half_bits* at) {
        Numbers found;
        if (N == 1) {
            half_bits bits;
            asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(at) : "memory");
            found.of[0] = lower(bits);
        } else {
            u32 pair;
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(pair) : "l"(at) : "memory");
            found.of[0] = lower(pair), found.of[N - 1] = upper(pair);
        }
        return found;
    }
    // What is stored, as it is read again.
    __device__ __forceinline__ Numbers store(half_bits* at) const {
        const u32 pair = packed(of[0], N == 1 ? 0 : of[N - 1]);
        if (N == 1)
            *at = (half_bits)pair;
        else
            *(u32*)at = pair;
        Numbers stored;
        stored.of[0] = lower(pair);
        if (N > 1) stored.of[N - 1] = upper(pair);
        return stored;
    }
    __device__ __forceinline__ Numbers operator+(const Numbers& other) const {
        Numbers sum;
#pragma unroll
        for (int i = 0; i < N; ++i) sum.of[i] = of[i] + other.of[i];
        return sum;
    }
    __device__ __forceinline__ Numbers operator*(const Numbers& other) const {
        Numbers product;
#pragma unroll
        for (int i = 0; i < N; ++i) product.of[i] = of[i] * other.of[i];
        return product;
    }
    __device__ __forceinline__ Numbers operator*(float factor) const {
        Numbers product;
#pragma unroll
        for (int i = 0; i < N; ++i) product.of[i] = of[i] * factor;
        return product;
    }
    __device__ __forceinline__ float squares() const { return of[0] * of[0] + (N > 1 ? of[N - 1] * of[N - 1] : 0); }
};

// Of both halves what is added to, and the next norm's weights: asked for before the sums are there.
template <int N>
struct Held {
    Numbers<N> stream[2], g[2];
};

template <int N>
__device__ __forceinline__ Held<N> hold(int row, Outputs outputs, Shape shape, Tensors to) {
    Held<N> held = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (WAY != ADDED || row >= shape.rows || outputs.of[half] >= shape.outputs) continue;
        held.stream[half] = Numbers<N>::load(to.stream + (long long)row * shape.outputs + outputs.of[half]);
        held.g[half] = Numbers<N>::load(to.g + outputs.of[half]);
    }
    return held;
}

// Sums of both halves' outputs of a row, scaled. Returns the squares of what is added.
template <int N>
__device__ __forceinline__ float finish(Numbers<N> a, Numbers<N> b, int row, Outputs outputs, Shape shape, Tensors to,
                                        const Held<N>& held) {
    if (row >= shape.rows || outputs.of[0] >= shape.outputs) return 0;
    const int first = outputs.of[0];
#if WAY == 0
    const int head = first / HEAD_SIZE, place = first % HEAD_SIZE;
    const bool query = head < shape.heads, key = !query && head < shape.heads + shape.key_heads;
    if (query || key) {
        const Numbers<N> low = a;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float2 turn = to.turns[place + i];
            a.of[i] = low.of[i] * turn.x - b.of[i] * turn.y;
            b.of[i] = b.of[i] * turn.x + low.of[i] * turn.y;
        }
    }
    half_bits* at = to.y + ((long long)row * shape.heads + head) * HEAD_SIZE + place;
    if (!query) {
        const int of_head = head - shape.heads - (key ? 0 : shape.key_heads);
        const long long token = ((long long)row * shape.key_heads + of_head) * shape.context + shape.context - 1;
        at = (key ? to.keys : to.values) + token * HEAD_SIZE + place;
    }
    a.store(at), b.store(at + HEAD_SIZE / 2);
    return 0;
#elif WAY == 2
    const int width = shape.outputs / 2;
    if (first >= width) return 0;
#pragma unroll
    for (int i = 0; i < N; ++i) a.of[i] *= b.of[i] / (1 + __expf(-a.of[i]));
    a.store(to.y + (long long)row * width + first);
    return 0;
#else
    const long long from = (long long)row * shape.outputs;
    float squares = 0;
#if WAY == 1
    a = (a + held.stream[0]).store(to.stream + from + first);
    squares = a.squares(), a = a * held.g[0];
    if (outputs.of[1] < shape.outputs) {
        b = (b + held.stream[1]).store(to.stream + from + outputs.of[1]);
        squares += b.squares(), b = b * held.g[1];
    }
#endif
    a.store(to.y + from + first);
    if (outputs.of[1] < shape.outputs) b.store(to.y + from + outputs.of[1]);
    return squares;
#endif
}

template <int N>
__device__ __forceinline__ Numbers<N> biased(Numbers<N> sums, int output, Shape shape, Tensors to) {
    return WAY == QKV && BIAS && output < shape.outputs ? sums + Numbers<N>::load(to.bias + output) : sums;
}
