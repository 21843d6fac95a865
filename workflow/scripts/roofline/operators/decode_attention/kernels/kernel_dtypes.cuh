// Vectors of 16 bytes of keys, values and queries: their loads, and conversions from and to fp32, without CUDA's own
// headers.

#pragma once

typedef unsigned short half_bits;

// Loads data that one multiprocessor reads, or a few at about the same time: it need not stay in L1, and may leave L2
// first.
__device__ __forceinline__ uint4 load_once(const void* address, unsigned long long policy) {
    uint4 v;
#if __CUDA_ARCH__ >= 800
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address), "l"(policy));
#else
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
#endif
    return v;
}

// The L2 policy for lines that are the first to leave it (compute capability 8.0 and up).
__device__ __forceinline__ unsigned long long evict_first_policy() {
    unsigned long long policy = 0;
#if __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

// Past L1, which may hold an older value than the one that another kernel wrote.
__device__ __forceinline__ uint4 load_past_l1(const void* address) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

// The dtypes of the kernel: how a number is stored, and conversions.
struct Fp32 {
    typedef float stored;
    static const int numbers_per_vector = 4;
    static __device__ __forceinline__ float round(float value) { return value; }
    static __device__ __forceinline__ void unpack(const uint4& v, float (&numbers)[numbers_per_vector]) {
        numbers[0] = __uint_as_float(v.x);
        numbers[1] = __uint_as_float(v.y);
        numbers[2] = __uint_as_float(v.z);
        numbers[3] = __uint_as_float(v.w);
    }
};

struct Fp16 {
    typedef half_bits stored;
    static const int numbers_per_vector = 8;
    static __device__ __forceinline__ half_bits round(float value) {
        half_bits bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
    static __device__ __forceinline__ float widen(half_bits bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    static __device__ __forceinline__ unsigned int pack(float low, float high) {
        return round(low) | (unsigned int)round(high) << 16;
    }
    static __device__ __forceinline__ void unpack(const uint4& v, float (&numbers)[numbers_per_vector]) {
        const unsigned int words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            numbers[2 * i] = widen((half_bits)words[i]);
            numbers[2 * i + 1] = widen((half_bits)(words[i] >> 16));
        }
    }
};

struct Bf16 {
    typedef half_bits stored;
    static const int numbers_per_vector = 8;
    // Rounds to nearest even; a NaN stays a NaN.
    static __device__ __forceinline__ half_bits round(float value) {
        const unsigned int bits = __float_as_uint(value);
        return value != value ? 0x7fff : (half_bits)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    static __device__ __forceinline__ unsigned int pack(float low, float high) {
#if __CUDA_ARCH__ >= 800
        unsigned int pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
#else
        return round(low) | (unsigned int)round(high) << 16;
#endif
    }
    static __device__ __forceinline__ void unpack(const uint4& v, float (&numbers)[numbers_per_vector]) {
        const unsigned int words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            numbers[2 * i] = __uint_as_float(words[i] << 16);
            numbers[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
};
