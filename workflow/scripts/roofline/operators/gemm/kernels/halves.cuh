// Numbers of 16 bits, two in a word: fp16, or with BF16 bf16. And shared memory by its address.

#pragma once

#if BF16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

typedef unsigned short half_bits;

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

__device__ __forceinline__ unsigned int times(unsigned int a, unsigned int b) {
#if __CUDA_ARCH__ >= 900 || !BF16
    unsigned int product;
    asm("mul.rn." TYPE "x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
#else
    return packed(lower(a) * lower(b), upper(a) * upper(b));
#endif
}

// Four 8 x 8 matrices, a row of each at the address of one of 8 lanes: of lane l, two numbers of row l / 4 of each.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], unsigned int at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ uint4 load_shared(unsigned int at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
__device__ __forceinline__ void store_shared(unsigned int at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
__device__ __forceinline__ void store_shared(unsigned int at, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
