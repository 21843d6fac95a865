// What the instruction roofline is measured with: warp instructions from every scheduler, loads whose sectors per
// request (global memory) or wavefronts per request (shared memory) are known.

#include "timers.cuh"

#define NUMBERS 8  // independent chains of either kind
#ifndef PAIRS
#define PAIRS 128  // of instructions per round; the loop's own three or four are not counted
#endif
#define LOADS 8  // of a warp per round
#define SHARED_WORDS 2048

// A multiply-add and a funnel shift in turn: they go to different pipes, and of compute capability 7.5 to 12.0 not every
// GPU has a pipe that takes an instruction of either kind in every cycle. Floats fold as in fma.cu; a word takes ROTATED
// bits of its neighbour. The shift is written out, since the compiler would find other instructions for it.
#define FACTOR (-1.0f + 1.0f / 65536)
#define OFFSET 0.5f
#define ROTATED 7

extern "C" __global__ void issue(float* floats, unsigned int* words, unsigned int rounds,
                                 unsigned long long* cycles_and_ns) {
    float x[NUMBERS];
    unsigned int y[NUMBERS];
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) {
        y[i] = threadIdx.x * NUMBERS + i;
        x[i] = (float)y[i];
    }
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            const int i = pair % NUMBERS, next = (pair + 1) % NUMBERS;
            x[i] = fmaf(x[i], FACTOR, OFFSET);
            asm volatile("shf.l.wrap.b32 %0, %1, %0, %2;" : "+r"(y[i]) : "r"(y[next]), "n"(ROTATED));
        }
    }
    watch.tell(cycles_and_ns);
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < NUMBERS; ++i) {
        floats[thread * NUMBERS + i] = x[i];
        words[thread * NUMBERS + i] = y[i];
    }
}

__device__ __forceinline__ void add_to_total(unsigned int mine, unsigned int* total) {
    for (int lane = 16; lane > 0; lane /= 2) {
        mine += __shfl_down_sync(0xffffffffu, mine, lane);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, mine);
    }
}

// Lanes load one word each, `stride` words from one another, through L1, which holds them all. Requests begin at
// multiples of a sector, `set_words` (a power of two) is gone round again and again.
extern "C" __global__ void load_strided(const unsigned int* a, unsigned int stride, unsigned int set_words,
                                        unsigned int rounds, unsigned int* total, unsigned long long* cycles_and_ns) {
    const unsigned int* own = a + threadIdx.x % 32 * stride;
    unsigned int at = threadIdx.x / 32 * 8 * LOADS % set_words, sum = 0;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
        unsigned int v[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            asm volatile("ld.global.ca.b32 %0, [%1];" : "=r"(v[i]) : "l"(own + at + 8 * i));
        }
        at = (at + 8 * LOADS) & (set_words - 1);
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            sum += v[i];
        }
    }
    watch.tell(cycles_and_ns);
    add_to_total(sum, total);
}

// Lanes load one word each from shared memory, `ways` words from one another: so many lanes want each bank they use.
// Where a request begins changes with the round: else the compiler would load once.
extern "C" __global__ void load_conflicting(const unsigned int* a, unsigned int ways, unsigned int rounds,
                                            unsigned int* total, unsigned long long* cycles_and_ns) {
    __shared__ unsigned int set[SHARED_WORDS];
    for (unsigned int i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) {
        set[i] = a[i];
    }
    __syncthreads();
    const unsigned int own = (unsigned int)__cvta_generic_to_shared(set + threadIdx.x % 32 * ways);
    unsigned int at = 0, sum = 0;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
        unsigned int v[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v[i]) : "r"(own + 4 * (at + 32 * i)));
        }
        at = (at + 32 * LOADS) % (SHARED_WORDS / 2);
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            sum += v[i];
        }
    }
    watch.tell(cycles_and_ns);
    add_to_total(sum, total);
}
