// What follows a GEMM of a decode step, in the registers that hold its sums: EPILOGUE. And the arguments of such a
// GEMM.

#pragma once

// The values of EPILOGUE, 0 to 3.
//   QKV    the outputs are queries, keys and values of heads: a bias is added, queries and keys are rotated
//   ADDED  the outputs are added to the stream, which is also stored scaled by the next norm's weights
//   GATED  the outputs are gate and up: silu(gate) x up is stored
//   NONE   the outputs are stored
enum { QKV, ADDED, GATED, NONE };

struct Shape {
    int rows, outputs, inputs;  // of x, of W, and of both
    int heads, key_heads, context;
    int parts;                  // sums of squares of each row of x, where the kernel before left them
    float eps;
};

struct Tensors {
    half_bits* y;              // [rows, outputs]; QKV: queries; GATED: [rows, outputs / 2]; ADDED: the scaled stream
    half_bits* stream;         // [rows, outputs], added to
    const half_bits* g;        // [outputs], weights of the next norm
    const float* squares;      // [parts, PADDED], sums of squares of x
    float* next_squares;       // [tiles, PADDED], sums of squares of the stream
    half_bits *keys, *values;  // [rows, key_heads, context, HEAD_SIZE], FP8 with FP8_CACHE; the last token is written
    const float *keys_scales, *values_scales;  // with FP8_CACHE [rows, key_heads]
    const float2* turns;       // [HEAD_SIZE / 2], cosine and sine of the rotation of the last token
    const half_bits *bias, *query_norm, *key_norm;  // [outputs], [HEAD_SIZE], [HEAD_SIZE]
    const half_bits* norm;     // [inputs], weights of x's norm, where this kernel takes it
};

// Outputs come in two halves that a lane has side by side: the two dimensions of a head that a rotation mixes, or gate
// and up. Where nothing belongs together, half 1 follows half 0 in a tile. A unit is 8 outputs of half 0 and 8 of half
// 1. Returns the first row of W of a unit's outputs of one half, for tiles of UNITS units.
template <int UNITS>
__device__ __forceinline__ int first_w_row(int tile, int unit, int half, Shape shape) {
    const int index_in_half = (tile * UNITS + unit) * 8;  // among all outputs of this half
    if (EPILOGUE == QKV)
        return index_in_half / (HEAD_SIZE / 2) * HEAD_SIZE + index_in_half % (HEAD_SIZE / 2) + half * (HEAD_SIZE / 2);
    if (EPILOGUE == GATED) return half * (shape.outputs / 2) + index_in_half;
    return (tile * 2 + half) * UNITS * 8 + unit * 8;
}

// The first of a lane's neighbouring outputs, in half 0 and in half 1.
struct Outputs {
    int first[2];
};

// N neighbouring numbers of a row in fp32: one, or two.
template <int N>
struct Numbers {
    float value[N];
    __device__ __forceinline__ static Numbers load(const half_bits* address) {
        Numbers loaded;
        if (N == 1) {
            half_bits bits;
            asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
            loaded.value[0] = lower(bits);
        } else {
            u32 pair;
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(pair) : "l"(address) : "memory");
            loaded.value[0] = lower(pair), loaded.value[N - 1] = upper(pair);
        }
        return loaded;
    }
    // Returns the numbers as they were rounded to be stored.
    __device__ __forceinline__ Numbers store(half_bits* address) const {
        const u32 pair = pack(value[0], N == 1 ? 0 : value[N - 1]);
        if (N == 1)
            *address = (half_bits)pair;
        else
            *(u32*)address = pair;
        Numbers stored;
        stored.value[0] = lower(pair);
        if (N > 1) stored.value[N - 1] = upper(pair);
        return stored;
    }
    // Stores the numbers times `factor` as FP8 (e4m3).
    __device__ __forceinline__ void store_fp8(unsigned char* address, float factor) const {
        unsigned short pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(N == 1 ? 0 : value[N - 1] * factor), "f"(value[0] * factor));
        if (N == 1)
            *address = (unsigned char)pair;
        else
            *(unsigned short*)address = pair;
    }
    __device__ __forceinline__ Numbers operator+(const Numbers& addend) const {
        Numbers sum;
#pragma unroll
        for (int i = 0; i < N; ++i) sum.value[i] = value[i] + addend.value[i];
        return sum;
    }
    __device__ __forceinline__ Numbers operator*(const Numbers& factors) const {
        Numbers product;
#pragma unroll
        for (int i = 0; i < N; ++i) product.value[i] = value[i] * factors.value[i];
        return product;
    }
    __device__ __forceinline__ Numbers operator*(float factor) const {
        Numbers product;
#pragma unroll
        for (int i = 0; i < N; ++i) product.value[i] = value[i] * factor;
        return product;
    }
    __device__ __forceinline__ float sum_of_squares() const {
        return value[0] * value[0] + (N > 1 ? value[N - 1] * value[N - 1] : 0);
    }
};

// For both halves the stream that outputs are added to, and the next norm's weights: loaded before the sums are
// complete.
template <int N>
struct Preloaded {
    Numbers<N> stream[2], g[2];
};

// Zeros but for EPILOGUE ADDED.
template <int N>
__device__ __forceinline__ Preloaded<N> preload(int row, Outputs outputs, Shape shape, Tensors tensors) {
    Preloaded<N> preloaded = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (EPILOGUE != ADDED || row >= shape.rows || outputs.first[half] >= shape.outputs) continue;
        const half_bits* stream_row = tensors.stream + (long long)row * shape.outputs;
        preloaded.stream[half] = Numbers<N>::load(stream_row + outputs.first[half]);
        preloaded.g[half] = Numbers<N>::load(tensors.g + outputs.first[half]);
    }
    return preloaded;
}

template <int N>
__device__ __forceinline__ Numbers<N> add_bias(Numbers<N> sums, int output, Shape shape, Tensors tensors) {
    const bool has_bias = EPILOGUE == QKV && BIAS && output < shape.outputs;
    return has_bias ? sums + Numbers<N>::load(tensors.bias + output) : sums;
}

// Finishes a row's outputs of both halves, a and b, which are scaled and biased. Returns the sum of the squares of what
// is added to the stream, or 0.
template <int N>
__device__ __forceinline__ float apply_epilogue(Numbers<N> a, Numbers<N> b, int row, Outputs outputs, Shape shape,
                                                Tensors tensors, const Preloaded<N>& preloaded) {
    if (row >= shape.rows || outputs.first[0] >= shape.outputs) return 0;
    const int output = outputs.first[0];
    if constexpr (EPILOGUE == QKV) {  // queries and keys are rotated; keys and values become the last token's
        const int head = output / HEAD_SIZE, dimension = output % HEAD_SIZE;
        const bool is_query = head < shape.heads, is_key = !is_query && head < shape.heads + shape.key_heads;
        if (is_query || is_key) {
            const Numbers<N> unrotated = a;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const float2 turn = tensors.turns[dimension + i];
                a.value[i] = unrotated.value[i] * turn.x - b.value[i] * turn.y;
                b.value[i] = b.value[i] * turn.x + unrotated.value[i] * turn.y;
            }
        }
        half_bits* address = tensors.y + ((long long)row * shape.heads + head) * HEAD_SIZE + dimension;
        if (!is_query) {
            const int key_head = head - shape.heads - (is_key ? 0 : shape.key_heads);
            const long long token = ((long long)row * shape.key_heads + key_head) * shape.context + shape.context - 1;
            const long long offset = token * HEAD_SIZE + dimension;
            address = (is_key ? tensors.keys : tensors.values) + offset;
#if FP8_CACHE
            const float scale = (is_key ? tensors.keys_scales : tensors.values_scales)[row * shape.key_heads + key_head];
            unsigned char* const bytes = (unsigned char*)(is_key ? tensors.keys : tensors.values) + offset;
            a.store_fp8(bytes, 1 / scale), b.store_fp8(bytes + HEAD_SIZE / 2, 1 / scale);
            return 0;
#endif
        }
        a.store(address), b.store(address + HEAD_SIZE / 2);
        return 0;
    } else if constexpr (EPILOGUE == GATED) {  // a is gate, b is up
        const int width = shape.outputs / 2;
        if (output >= width) return 0;
#pragma unroll
        for (int i = 0; i < N; ++i) a.value[i] *= b.value[i] / (1 + __expf(-a.value[i]));
        a.store(tensors.y + (long long)row * width + output);
        return 0;
    } else {
        const long long row_offset = (long long)row * shape.outputs;
        float squares = 0;
        if constexpr (EPILOGUE == ADDED) {
            a = (a + preloaded.stream[0]).store(tensors.stream + row_offset + output);
            squares = a.sum_of_squares(), a = a * preloaded.g[0];
            if (outputs.first[1] < shape.outputs) {
                b = (b + preloaded.stream[1]).store(tensors.stream + row_offset + outputs.first[1]);
                squares += b.sum_of_squares(), b = b * preloaded.g[1];
            }
        }
        a.store(tensors.y + row_offset + output);
        if (outputs.first[1] < shape.outputs) b.store(tensors.y + row_offset + outputs.first[1]);
        return squares;
    }
}
