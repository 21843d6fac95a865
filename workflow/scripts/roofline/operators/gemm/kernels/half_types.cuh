// Numbers of 16 bits, two in a word (a pair): fp16, or with BF16 bf16. And loads and stores by addresses in shared
// memory.

#pragma once

#ifndef HALF_TYPES  // a header's text is put into the kernel's, where `#pragma once` has no effect
#define HALF_TYPES

#include "../../../devices/gpu/kernels/programmatic_launch.cuh"

#if BF16
#define PTX_TYPE "bf16"
#else
#define PTX_TYPE "f16"
#endif

typedef unsigned short half_bits;
typedef unsigned int u32;

// The lower number of a pair, in fp32.
__device__ __forceinline__ float lower(u32 pair) {
#if BF16
    return __uint_as_float(pair << 16);
#else
    float value;
    asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;}" : "=f"(value) : "r"(pair));
    return value;
#endif
}

__device__ __forceinline__ float upper(u32 pair) {
#if BF16
    return __uint_as_float(pair & 0xffff0000);
#else
    return lower(pair >> 16);
#endif
}

// A pair of numbers, each rounded to nearest even.
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 pair;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn." PTX_TYPE "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    asm("{.reg .b16 low, high;\ncvt.rn.f16.f32 low, %1;\ncvt.rn.f16.f32 high, %2;\nmov.b32 %0, {low, high};}"
        : "=r"(pair)
        : "f"(low), "f"(high));
#endif
    return pair;
}

// The products of two pairs, rounded once. Before compute capability 9.0 bf16 has no multiplication without an
// addition: there -0 is added, which changes nothing.
__device__ __forceinline__ u32 multiply_pairs(u32 a, u32 b) {
    u32 product;
#if __CUDA_ARCH__ >= 900 || !BF16
    asm("mul.rn." PTX_TYPE "x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000));
#endif
    return product;
}

__device__ __forceinline__ float sum_of_squares(u32 pair) {
    return fmaf(lower(pair), lower(pair), upper(pair) * upper(pair));
}
__device__ __forceinline__ float sum_of_squares(uint4 v) {
    return sum_of_squares(v.x) + sum_of_squares(v.y) + (sum_of_squares(v.z) + sum_of_squares(v.w));
}

// Tiles have rows of 128 bytes, of which chunk c of row r, 16 bytes, lies at c ^ (r % 8): the same chunk of 8 rows in
// turn lies in 8 different sets of banks. It is the copy engine's 128-byte swizzle too, for a tile that begins at a
// multiple of 1024 bytes. Returns the place of a chunk in bytes, in its row and in its tile.
__device__ __forceinline__ int swizzled_chunk(int row, int chunk) { return (chunk ^ (row & 7)) << 4; }
__device__ __forceinline__ u32 swizzled_offset(int row, int chunk) { return row * 128 + swizzled_chunk(row, chunk); }

// Four 8 x 8 matrices: lane l gives the address of row l % 8 of matrix l / 8, and receives two numbers of row l / 4 of
// each.
__device__ __forceinline__ void load_matrices(u32 (&words)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ uint4 load_shared(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}
__device__ __forceinline__ u32 load_shared_word(u32 address) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}
__device__ __forceinline__ void store_shared(u32 address, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// Past the L1, which may hold an older value than the one that another block or kernel wrote.
__device__ __forceinline__ uint4 load_past_l1(const void* address) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

#endif
