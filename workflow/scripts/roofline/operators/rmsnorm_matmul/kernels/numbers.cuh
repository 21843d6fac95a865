// Numbers of a row that a thread of a product finishes together, in registers.

#pragma once

// The first of a lane's neighbouring outputs, in half 0 and in half 1.
struct Outputs {
    int first[2];
};

// N neighbouring numbers of a row in fp32: one, or two.
template <int N>
struct Numbers {
    float value[N];
    __device__ __forceinline__ static Numbers load(const half_bits* address) {
        Numbers loaded;
        if (N == 1) {
            half_bits bits;
            asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
            loaded.value[0] = lower(bits);
        } else {
            u32 pair;
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(pair) : "l"(address) : "memory");
            loaded.value[0] = lower(pair), loaded.value[N - 1] = upper(pair);
        }
        return loaded;
    }
    // Returns the numbers as they were rounded to be stored.
    __device__ __forceinline__ Numbers store(half_bits* address) const {
        const u32 pair = pack(value[0], N == 1 ? 0 : value[N - 1]);
        if (N == 1)
            *address = (half_bits)pair;
        else
            *(u32*)address = pair;
        Numbers stored;
        stored.value[0] = lower(pair);
        if (N > 1) stored.value[N - 1] = upper(pair);
        return stored;
    }
    __device__ __forceinline__ Numbers operator+(const Numbers& addend) const {
        Numbers sum;
#pragma unroll
        for (int i = 0; i < N; ++i) sum.value[i] = value[i] + addend.value[i];
        return sum;
    }
    __device__ __forceinline__ Numbers operator*(const Numbers& factors) const {
        Numbers product;
#pragma unroll
        for (int i = 0; i < N; ++i) product.value[i] = value[i] * factors.value[i];
        return product;
    }
    __device__ __forceinline__ Numbers operator*(float factor) const {
        Numbers product;
#pragma unroll
        for (int i = 0; i < N; ++i) product.value[i] = value[i] * factor;
        return product;
    }
    __device__ __forceinline__ float sum_of_squares() const {
        return value[0] * value[0] + (N > 1 ? value[N - 1] * value[N - 1] : 0);
    }
};
