// What the products of a decode step are told: sizes, and where results and what goes with them stand.

#pragma once

enum { QKV, ADDED, GATED, ALONE };  // what follows a product: WAY

struct Shape {
    int rows, outputs, inputs;  // of x, of W, and of both
    int heads, kv_heads, seq_len;
    int parts;                  // sums of squares of each row of x; none: x is taken as it is
    float eps;
};

struct Tensors {
    half_bits* y;            // [rows, outputs]; queries alone; gated [rows, outputs / 2]; added: scaled by g, for the next norm
    half_bits* stream;       // [rows, outputs], added to
    const half_bits* g;      // [outputs] of the next norm
    const float* squares;    // [parts, ROWS] of x
    float* next_squares;     // [tiles, ROWS] of what is added
    half_bits *keys, *values;  // [rows, kv_heads, seq_len, HEAD_SIZE]; the last token is written
    const float2* turns;     // [HEAD_SIZE / 2] cosine and sine of the last token's place
    const half_bits *bias, *query_norm, *key_norm;  // [outputs], [HEAD_SIZE] twice
    float* workspace;        // [blocks, MULTIPLYING x SUMS]
    u32* arrived;            // [blocks], 0 before and after
};
