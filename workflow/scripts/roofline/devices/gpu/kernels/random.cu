// Standard normal numbers: Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011) and
// Box and Muller's transform. Number i follows from the seed and i alone, whatever the grid.
//
// Kernel normal_DTYPE writes `count` numbers to `out`. The threads take the counters in a grid-stride loop; each
// counter gives four numbers, two in fp64.

#include <cuda_fp16.h>

struct RandomBits {
    unsigned int word[4];
};

// 128 random bits for each counter.
__device__ __forceinline__ RandomBits philox(unsigned long long counter, unsigned long long seed) {
    RandomBits x = {{(unsigned int)counter, (unsigned int)(counter >> 32), 0u, 0u}};
    unsigned int key0 = (unsigned int)seed, key1 = (unsigned int)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned int high0 = __umulhi(0xD2511F53u, x.word[0]), low0 = 0xD2511F53u * x.word[0];
        const unsigned int high1 = __umulhi(0xCD9E8D57u, x.word[2]), low1 = 0xCD9E8D57u * x.word[2];
        x = {{high1 ^ x.word[1] ^ key0, low1, high0 ^ x.word[3] ^ key1, low0}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return x;
}

// Two independent normal numbers from 64 random bits.
__device__ __forceinline__ void normal_pair(unsigned int a, unsigned int b, float& first, float& second) {
    const float radius = sqrtf(-2.0f * logf((a + 0.5f) * 0x1p-32f));
    sincospif(b * 0x1p-31f, &second, &first);
    first *= radius;
    second *= radius;
}

// A dtype: how a number is stored, and its conversion from fp32.
struct Fp32 {
    typedef float Stored;
    static __device__ __forceinline__ Stored from(float x) { return x; }
};
struct Fp16 {
    typedef __half Stored;
    static __device__ __forceinline__ Stored from(float x) { return __float2half_rn(x); }
};
struct Bf16 {
    typedef unsigned short Stored;
    static __device__ __forceinline__ Stored from(float x) {  // finite, so rounding to even is enough
        const unsigned int bits = __float_as_uint(x);
        return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    }
};
struct Int8 {  // 32 x, rounded to an integer and clipped
    typedef signed char Stored;
    static __device__ __forceinline__ Stored from(float x) {
        return (signed char)fminf(fmaxf(rintf(32.0f * x), -127.0f), 127.0f);
    }
};
struct Fp8E4m3 {  // cards without the instruction have no fp8 GEMM either: they get zeros
    typedef unsigned char Stored;
    static __device__ __forceinline__ Stored from(float x) {
        unsigned short pair = 0;
#if __CUDA_ARCH__ >= 890
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
#endif
        return (unsigned char)pair;
    }
};

template <typename Dtype>
__device__ void fill(typename Dtype::Stored* out, unsigned long long count, unsigned long long seed) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; 4 * i < count; i += stride) {
        const RandomBits bits = philox(i, seed);
        float x[4];
        normal_pair(bits.word[0], bits.word[1], x[0], x[1]);
        normal_pair(bits.word[2], bits.word[3], x[2], x[3]);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (4 * i + k < count) out[4 * i + k] = Dtype::from(x[k]);
    }
}

extern "C" __global__ void normal_fp32(float* out, unsigned long long count, unsigned long long seed) {
    fill<Fp32>(out, count, seed);
}
extern "C" __global__ void normal_fp16(__half* out, unsigned long long count, unsigned long long seed) {
    fill<Fp16>(out, count, seed);
}
extern "C" __global__ void normal_bf16(unsigned short* out, unsigned long long count, unsigned long long seed) {
    fill<Bf16>(out, count, seed);
}
extern "C" __global__ void normal_int8(signed char* out, unsigned long long count, unsigned long long seed) {
    fill<Int8>(out, count, seed);
}
extern "C" __global__ void normal_fp8_e4m3(unsigned char* out, unsigned long long count, unsigned long long seed) {
    fill<Fp8E4m3>(out, count, seed);
}

// In fp64, with all 53 bits of the significand random.
extern "C" __global__ void normal_fp64(double* out, unsigned long long count, unsigned long long seed) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; 2 * i < count; i += stride) {
        const RandomBits bits = philox(i, seed);
        const double a = (((unsigned long long)bits.word[0] << 21) ^ (bits.word[1] >> 11)) + 0.5;
        const double b = ((unsigned long long)bits.word[2] << 21) ^ (bits.word[3] >> 11);
        const double radius = sqrt(-2.0 * log(a * 0x1p-53));
        double first, second;
        sincospi(b * 0x1p-52, &second, &first);
        out[2 * i] = radius * first;
        if (2 * i + 1 < count) out[2 * i + 1] = radius * second;
    }
}
