// What follows a product of a decode step, in the registers that hold its sums, and the arguments of its kernel. The
// library's kernels include it in place of their own epilogue.cuh, whose names it defines. Besides their macros it
// takes EPILOGUE, and for queries, keys and values HEAD_SIZE, HEAD_NORMS, BIAS and FP8_CACHE.

#pragma once

#include "../../../workflow/scripts/roofline/operators/rmsnorm_matmul/kernels/numbers.cuh"

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
    const half_bits* norm;     // of the library's kernel that takes x's norm itself
};

// An item is a head where queries and keys are normalised.
enum {
    LEAVES_SQUARES = EPILOGUE == ADDED,
    UNITS_PER_ITEM = HEAD_NORMS ? HEAD_SIZE / 16 : 1,
    SCALES_ITEMS = HEAD_NORMS
};

// Sums of squares of each row of x, which the kernel before left.
__device__ __forceinline__ int squares_parts(Shape shape) { return shape.parts; }
__device__ __forceinline__ const float* squares_before(Tensors tensors) { return tensors.squares; }
__device__ __forceinline__ void leave_squares(Tensors tensors, int index, float sum) {
    tensors.next_squares[index] = sum;
}

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

// Stores numbers times `factor` as FP8 (e4m3).
template <int N>
__device__ __forceinline__ void store_fp8(Numbers<N> numbers, unsigned char* address, float factor) {
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(pair)
        : "f"(N == 1 ? 0 : numbers.value[N - 1] * factor), "f"(numbers.value[0] * factor));
    if (N == 1)
        *address = (unsigned char)pair;
    else
        *(unsigned short*)address = pair;
}

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

// Adds the bias.
template <int N>
__device__ __forceinline__ Numbers<N> adjust_sums(Numbers<N> sums, int output, Shape shape, Tensors tensors) {
    const bool has_bias = EPILOGUE == QKV && BIAS && output < shape.outputs;
    return has_bias ? sums + Numbers<N>::load(tensors.bias + output) : sums;
}

// Normalises queries and keys of a head by the factor that its squares give.
__device__ __forceinline__ float item_factor(float squares, const Shape& shape) {
    return rsqrtf(squares / HEAD_SIZE + shape.eps);
}
template <int N>
__device__ __forceinline__ void scale_item(Numbers<N>& a, Numbers<N>& b, float factor, int output, const Shape& shape,
                                           const Tensors& tensors) {
    const int head = output / HEAD_SIZE, dimension = output % HEAD_SIZE;
    if (head < shape.heads + shape.key_heads) {
        const half_bits* const g = (head < shape.heads ? tensors.query_norm : tensors.key_norm) + dimension;
        a = a * factor * Numbers<N>::load(g);
        b = b * factor * Numbers<N>::load(g + HEAD_SIZE / 2);
    }
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
            const float* const scales = is_key ? tensors.keys_scales : tensors.values_scales;
            const float scale = scales[row * shape.key_heads + key_head];
            unsigned char* const bytes = (unsigned char*)(is_key ? tensors.keys : tensors.values) + offset;
            store_fp8(a, bytes, 1 / scale), store_fp8(b, bytes + HEAD_SIZE / 2, 1 / scale);
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
