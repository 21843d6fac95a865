// Numbers of 16 bits, two in a word: fp16, or with BF16 bf16. And shared memory by its address.

#pragma once

#ifndef HALVES  // where two headers include it, either may be left out by the architecture
#define HALVES

#include "../../../devices/gpu/kernels/programmatic_launch.cuh"

#if BF16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

typedef unsigned short half_bits;
typedef unsigned int u32;

__device__ __forceinline__ float lower(unsigned int pair) {
#if BF16
    return __uint_as_float(pair << 16);
#else
    float value;
    asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;}" : "=f"(value) : "r"(pair));
    return value;
#endif
}

__device__ __forceinline__ float upper(unsigned int pair) {
#if BF16
    return __uint_as_float(pair & 0xffff0000);
#else
    return lower(pair >> 16);
#endif
}

__device__ __forceinline__ unsigned int packed(float low, float high) {
    unsigned int pair;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    asm("{.reg .b16 low, high;\ncvt.rn.f16.f32 low, %1;\ncvt.rn.f16.f32 high, %2;\nmov.b32 %0, {low, high};}"
        : "=r"(pair)
        : "f"(low), "f"(high));
#endif
    return pair;
}

// Rounded once. Before compute capability 9.0 bf16 has no product alone: there with -0 added, which changes nothing.
__device__ __forceinline__ unsigned int times(unsigned int a, unsigned int b) {
    unsigned int product;
#if __CUDA_ARCH__ >= 900 || !BF16
    asm("mul.rn." TYPE "x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000));
#endif
    return product;
}

// The sum of both numbers' squares.
__device__ __forceinline__ float square(unsigned int pair) {
    return fmaf(lower(pair), lower(pair), upper(pair) * upper(pair));
}
__device__ __forceinline__ float square(uint4 v) { return square(v.x) + square(v.y) + (square(v.z) + square(v.w)); }

// Four 8 x 8 matrices, a row of each at the address of one of 8 lanes: of lane l, two numbers of row l / 4 of each.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], unsigned int at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ uint4 load_shared(unsigned int at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
__device__ __forceinline__ u32 load_word(unsigned int at) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
    return word;
}
__device__ __forceinline__ void store_shared(unsigned int at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// Past the L1, which may hold what stood there before another block or kernel wrote it.
__device__ __forceinline__ uint4 load_global(const void* at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

#endif
