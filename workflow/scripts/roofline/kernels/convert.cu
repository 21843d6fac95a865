// Operands of the dtypes that CuPy has no arrays of, from standard normal fp32 numbers.

// 32 x, rounded to the nearest whole number and clipped.
extern "C" __global__ void to_int8(const float* x, signed char* y, unsigned long long count) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        y[i] = (signed char)fminf(fmaxf(rintf(32.0f * x[i]), -127.0f), 127.0f);
    }
}

// Two numbers at a time, which is what the instruction takes; `count` is even. Cards without it have no fp8 products.
extern "C" __global__ void to_fp8_e4m3(const float* x, unsigned short* y, unsigned long long count) {
#if __CUDA_ARCH__ >= 890
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count / 2; i += stride) {
        unsigned short both;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
        y[i] = both;
    }
#endif
}
