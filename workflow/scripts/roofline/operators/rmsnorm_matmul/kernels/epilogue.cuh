// What follows a product: its outputs are stored. A kernel with another epilogue includes its own in place of this one,
// which defines the same names.

#pragma once

#include "numbers.cuh"

struct Shape {
    int rows, outputs, inputs;  // of x, of W, and of both
    float eps;
};

struct Tensors {
    half_bits* y;           // [rows, outputs]
    const half_bits* norm;  // [inputs], weights of x's norm, where this kernel takes it
};

enum {
    LEAVES_SQUARES = 0,  // whether it leaves sums of squares of what it stores
    UNITS_PER_ITEM = 1,  // that are finished together
    SCALES_ITEMS = 0     // whether it scales an item by its squares
};

// Outputs come in two halves that a lane has side by side: half 1 follows half 0 in a tile. A unit is 8 outputs of half
// 0 and 8 of half 1. Returns the first row of W of a unit's outputs of one half, for tiles of UNITS units.
template <int UNITS>
__device__ __forceinline__ int first_w_row(int tile, int unit, int half, Shape) {
    return (tile * 2 + half) * UNITS * 8 + unit * 8;
}

// The sums of squares of each row of x that the kernel before left: none.
__device__ __forceinline__ int squares_parts(Shape) { return 0; }
__device__ __forceinline__ const float* squares_before(Tensors) { return nullptr; }
__device__ __forceinline__ void leave_squares(Tensors, int, float) {}

// What an epilogue loads before the sums are complete: nothing.
template <int N>
struct Preloaded {};
template <int N>
__device__ __forceinline__ Preloaded<N> preload(int, Outputs, Shape, Tensors) {
    return {};
}

// Returns the sums as they enter apply_epilogue.
template <int N>
__device__ __forceinline__ Numbers<N> adjust_sums(Numbers<N> sums, int, Shape, Tensors) {
    return sums;
}
// Scales a row's outputs of both halves by the factor that the squares of the row in the item give.
__device__ __forceinline__ float item_factor(float, const Shape&) { return 1; }
template <int N>
__device__ __forceinline__ void scale_item(Numbers<N>&, Numbers<N>&, float, int, const Shape&, const Tensors&) {}

// Finishes a row's outputs of both halves, a and b. Returns the sum of the squares of what it leaves squares of, or 0.
template <int N>
__device__ __forceinline__ float apply_epilogue(Numbers<N> a, Numbers<N> b, int row, Outputs outputs, Shape shape,
                                                Tensors tensors, const Preloaded<N>&) {
    if (row >= shape.rows) return 0;
    half_bits* const y_row = tensors.y + (long long)row * shape.outputs;
    if (outputs.first[0] < shape.outputs) a.store(y_row + outputs.first[0]);
    if (outputs.first[1] < shape.outputs) b.store(y_row + outputs.first[1]);
    return 0;
}
