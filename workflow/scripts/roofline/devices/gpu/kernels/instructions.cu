// The kernels of the instruction roofline: warp instructions from every scheduler, and loads whose sectors per request
// (global memory) or wavefronts per request (shared memory) are known. Each reports its clock in `cycles_and_ns`.

#include "timers.cuh"
#include "word_sum.cuh"

#define CHAINS_PER_THREAD 8  // independent chains of multiply-adds, and as many of shifts
#ifndef PAIRS_PER_ROUND
#define PAIRS_PER_ROUND 128  // of instructions; the three or four of the loop itself are not counted
#endif
#define LOADS_PER_ROUND 8  // of a warp
#define SHARED_WORDS 2048
#define SECTOR_WORDS 8
#define BANKS 32

#define FACTOR (-1.0f + 1.0f / 65536)
#define OFFSET 0.5f
#define ROTATED_BITS 7

// A multiply-add and a funnel shift in turn: they go to different pipes, and of compute capability 7.5 to 12.0 not
// every GPU has a pipe that takes an instruction of either kind in every cycle. Floats fold as in fma.cu. A word takes
// ROTATED_BITS bits of the next chain's word; the shift is written in PTX, since the compiler would find other
// instructions for it. floats and words [threads of the grid, CHAINS_PER_THREAD] receive the results; a thread's chains
// start from threadIdx.x x CHAINS_PER_THREAD + i.
extern "C" __global__ void issue(float* floats, unsigned int* words, unsigned int rounds,
                                 unsigned long long* cycles_and_ns) {
    float x[CHAINS_PER_THREAD];
    unsigned int y[CHAINS_PER_THREAD];
#pragma unroll
    for (int i = 0; i < CHAINS_PER_THREAD; ++i) {
        y[i] = threadIdx.x * CHAINS_PER_THREAD + i;
        x[i] = (float)y[i];
    }
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int pair = 0; pair < PAIRS_PER_ROUND; ++pair) {
            const int i = pair % CHAINS_PER_THREAD, next = (pair + 1) % CHAINS_PER_THREAD;
            x[i] = fmaf(x[i], FACTOR, OFFSET);
            asm volatile("shf.l.wrap.b32 %0, %1, %0, %2;" : "+r"(y[i]) : "r"(y[next]), "n"(ROTATED_BITS));
        }
    }
    watch.report(cycles_and_ns);
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < CHAINS_PER_THREAD; ++i) {
        floats[thread * CHAINS_PER_THREAD + i] = x[i];
        words[thread * CHAINS_PER_THREAD + i] = y[i];
    }
}

// The lanes of a warp load one word each, `stride` words apart, through L1, which holds all of them. The first lane's
// words begin at multiples of a sector within `set_words` (a power of two), which the rounds go through again and
// again. The sum of all words loaded is added to *word_sum.
extern "C" __global__ void load_strided(const unsigned int* a, unsigned int stride, unsigned int set_words,
                                        unsigned int rounds, unsigned int* word_sum,
                                        unsigned long long* cycles_and_ns) {
    const unsigned int* lane_words = a + threadIdx.x % 32 * stride;
    unsigned int offset = threadIdx.x / 32 * SECTOR_WORDS * LOADS_PER_ROUND % set_words, thread_sum = 0;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
        unsigned int v[LOADS_PER_ROUND];
#pragma unroll
        for (int i = 0; i < LOADS_PER_ROUND; ++i) {
            asm volatile("ld.global.ca.b32 %0, [%1];" : "=r"(v[i]) : "l"(lane_words + offset + SECTOR_WORDS * i));
        }
        offset = (offset + SECTOR_WORDS * LOADS_PER_ROUND) & (set_words - 1);
#pragma unroll
        for (int i = 0; i < LOADS_PER_ROUND; ++i) thread_sum += v[i];
    }
    watch.report(cycles_and_ns);
    add_to_word_sum(thread_sum, word_sum);
}

// The lanes of a warp load one word each from shared memory, `stride` words apart (a power of two): each bank that they
// use is used by `stride` of them. Where a request begins changes with the round, since the compiler would otherwise
// load once. Shared memory is filled from `a`; the sum of all words loaded is added to *word_sum.
extern "C" __global__ void load_conflicting(const unsigned int* a, unsigned int stride, unsigned int rounds,
                                            unsigned int* word_sum, unsigned long long* cycles_and_ns) {
    __shared__ unsigned int set[SHARED_WORDS];
    for (unsigned int i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) set[i] = a[i];
    __syncthreads();
    const unsigned int lane_address = (unsigned int)__cvta_generic_to_shared(set + threadIdx.x % 32 * stride);
    unsigned int offset = 0, thread_sum = 0;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned int round = 0; round < rounds; ++round) {
        unsigned int v[LOADS_PER_ROUND];
#pragma unroll
        for (int i = 0; i < LOADS_PER_ROUND; ++i) {
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v[i]) : "r"(lane_address + 4 * (offset + BANKS * i)));
        }
        offset = (offset + BANKS * LOADS_PER_ROUND) % (SHARED_WORDS / 2);
#pragma unroll
        for (int i = 0; i < LOADS_PER_ROUND; ++i) thread_sum += v[i];
    }
    watch.report(cycles_and_ns);
    add_to_word_sum(thread_sum, word_sum);
}
