// The numbers of a cache, 16 bytes at a time: loads, and conversions from and to fp32, without CUDA's own headers.

#pragma once

typedef unsigned short half_bits;

// Read by one multiprocessor, or by few at about the same time: it need not stay in L1, and may leave L2 first.
__device__ __forceinline__ uint4 load_once(const void* at, unsigned long long policy) {
    uint4 v;
#if __CUDA_ARCH__ >= 800
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at), "l"(policy));
#else
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
#endif
    return v;
}

// The L2's policy for lines that leave it first (compute capability 8.0 and up).
__device__ __forceinline__ unsigned long long leaving_first() {
    unsigned long long policy = 0;
#if __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

// Past L1, which may hold what stood there before another kernel wrote it.
__device__ __forceinline__ uint4 load_now(const void* at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

struct Fp32 {
    typedef float stored;
    static const int in_vector = 4;
    static __device__ __forceinline__ float rounded(float value) { return value; }
    static __device__ __forceinline__ void unpack(const uint4& v, float (&to)[in_vector]) {
        to[0] = __uint_as_float(v.x);
        to[1] = __uint_as_float(v.y);
        to[2] = __uint_as_float(v.z);
        to[3] = __uint_as_float(v.w);
    }
};

struct Fp16 {
    typedef half_bits stored;
    static const int in_vector = 8;
    static __device__ __forceinline__ half_bits rounded(float value) {
        half_bits bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
    static __device__ __forceinline__ float widened(half_bits bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    static __device__ __forceinline__ unsigned int pair(float low, float high) {
        return rounded(low) | (unsigned int)rounded(high) << 16;
    }
    static __device__ __forceinline__ void unpack(const uint4& v, float (&to)[in_vector]) {
        const unsigned int words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            to[2 * i] = widened((half_bits)words[i]);
            to[2 * i + 1] = widened((half_bits)(words[i] >> 16));
        }
    }
};

struct Bf16 {
    typedef half_bits stored;
    static const int in_vector = 8;
    // To nearest even; a NaN stays one.
    static __device__ __forceinline__ half_bits rounded(float value) {
        const unsigned int bits = __float_as_uint(value);
        return value != value ? 0x7fff : (half_bits)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    static __device__ __forceinline__ unsigned int pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
        unsigned int both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
#else
        return rounded(low) | (unsigned int)rounded(high) << 16;
#endif
    }
    static __device__ __forceinline__ void unpack(const uint4& v, float (&to)[in_vector]) {
        const unsigned int words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            to[2 * i] = __uint_as_float(words[i] << 16);
            to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
};
