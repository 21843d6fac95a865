// Reads one working set again and again, so that it comes from the cache that holds it.
//
// A vector is 16 bytes: that is what one lane of L1 and shared memory serves at a time.

#include "timers.cuh"

#define DEPTH 8

struct __align__(16) Vector {
    unsigned int word[4];
};

// volatile: else the compiler would read once and keep it.
__device__ __forceinline__ Vector load_l1(const Vector* at) {
    Vector v;
    asm volatile("ld.global.ca.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(at));
    return v;
}

__device__ __forceinline__ Vector load_l2(const Vector* at) {
    Vector v;
    asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(at));
    return v;
}

__device__ __forceinline__ Vector load_shared(unsigned int at) {
    Vector v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(at));
    return v;
}

__device__ __forceinline__ void add(unsigned int& sum, const Vector& v) {
    sum += v.word[0] + v.word[1] + v.word[2] + v.word[3];
}

__device__ __forceinline__ void add_to_total(unsigned int mine, unsigned int* total) {
    for (int lane = 16; lane > 0; lane /= 2) {
        mine += __shfl_down_sync(0xffffffffu, mine, lane);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, mine);
    }
}

// One pass of a block over `vectors` vectors: full rounds with DEPTH loads in flight, then the rest.
template <typename Load>
__device__ __forceinline__ void one_pass(Load load, unsigned int vectors, unsigned int& sum) {
    unsigned int i = threadIdx.x;
    for (; i + (DEPTH - 1) * blockDim.x < vectors; i += DEPTH * blockDim.x) {
        Vector v[DEPTH];
#pragma unroll
        for (int j = 0; j < DEPTH; ++j) {
            v[j] = load(i + j * blockDim.x);
        }
#pragma unroll
        for (int j = 0; j < DEPTH; ++j) {
            add(sum, v[j]);
        }
    }
    for (; i < vectors; i += blockDim.x) {
        add(sum, load(i));
    }
}

// Each block reads a set of its own, `apart` vectors from the next block's; all the same one where that is 0. L1 holds it
// while it is small, L2 after that.
extern "C" __global__ void read_l1(const Vector* a, unsigned int vectors, unsigned int apart, unsigned int passes,
                                   unsigned int* total, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    const Vector* own = a + (unsigned long long)blockIdx.x * apart;
    unsigned int sum = 0;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass) {
        one_pass([&](unsigned int i) { return load_l1(own + i); }, vectors, sum);
    }
    add_to_total(sum, total);
    watch.tell(cycles_and_ns);
}

// The blocks share the set out among them, past L1: in each pass block b takes the tiles b + pass x `shift`, so that
// it is not always the same multiprocessor that reads a line.
extern "C" __global__ void read_l2(const Vector* a, unsigned long long vectors, unsigned int passes,
                                   unsigned int shift, unsigned int* total, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    unsigned int sum = 0;
    const unsigned long long tile = (unsigned long long)blockDim.x * DEPTH;
    const unsigned long long full = vectors / tile;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass) {
        const unsigned int block = (blockIdx.x + pass * shift) % gridDim.x;
        unsigned long long t = block;
        for (; t < full; t += gridDim.x) {
            const Vector* at = a + t * tile + threadIdx.x;
            Vector v[DEPTH];
#pragma unroll
            for (int j = 0; j < DEPTH; ++j) {
                v[j] = load_l2(at + j * blockDim.x);
            }
#pragma unroll
            for (int j = 0; j < DEPTH; ++j) {
                add(sum, v[j]);
            }
        }
        if (t == full) {
            for (unsigned long long i = full * tile + threadIdx.x; i < vectors; i += blockDim.x) {
                add(sum, load_l2(a + i));
            }
        }
    }
    add_to_total(sum, total);
    watch.tell(cycles_and_ns);
}

// Every block reads the whole set, past L1, all in the same order and so at about the same time.
extern "C" __global__ void read_l2_broadcast(const Vector* a, unsigned int vectors, unsigned int passes,
                                             unsigned int* total, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    unsigned int sum = 0;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass) {
        one_pass([&](unsigned int i) { return load_l2(a + i); }, vectors, sum);
    }
    add_to_total(sum, total);
    watch.tell(cycles_and_ns);
}

// Every block reads its own shared memory, filled from `a`.
extern "C" __global__ void read_shared(const Vector* a, unsigned int vectors, unsigned int passes, unsigned int* total,
                                       unsigned long long* cycles_and_ns) {
    extern __shared__ Vector set[];
    for (unsigned int i = threadIdx.x; i < vectors; i += blockDim.x) {
        set[i] = a[i];
    }
    __syncthreads();
    const unsigned int start = (unsigned int)__cvta_generic_to_shared(set);
    const Stopwatch watch;
    unsigned int sum = 0;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass) {
        one_pass([&](unsigned int i) { return load_shared(start + i * (unsigned int)sizeof(Vector)); }, vectors, sum);
    }
    add_to_total(sum, total);
    watch.tell(cycles_and_ns);
}
