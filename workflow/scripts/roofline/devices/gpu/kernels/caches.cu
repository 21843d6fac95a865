// Reads a working set again and again, so that the cache that holds it serves the reads.
//
// A vector is 16 bytes: L1 and shared memory serve a lane that much at a time. Every kernel reads its vectors `passes`
// times, adds the sum of all words that it read to *word_sum, and reports its clock in `cycles_and_ns` (timers.cuh).

#include "timers.cuh"
#include "word_sum.cuh"

#define LOADS_IN_FLIGHT 8  // of a thread

struct __align__(16) Vector {
    unsigned int word[4];
};

// The loads are volatile: otherwise the compiler would read once and keep the result.
__device__ __forceinline__ Vector load_l1(const Vector* address) {
    Vector v;
    asm volatile("ld.global.ca.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
    return v;
}

__device__ __forceinline__ Vector load_l2(const Vector* address) {
    Vector v;
    asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
    return v;
}

__device__ __forceinline__ Vector load_shared(unsigned int address) {
    Vector v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(address));
    return v;
}

__device__ __forceinline__ void add(unsigned int& sum, const Vector& v) {
    sum += v.word[0] + v.word[1] + v.word[2] + v.word[3];
}

// One pass of a block over `vectors` vectors, `load(i)` being the i-th: full rounds with LOADS_IN_FLIGHT loads of each
// thread, then the rest one by one.
template <typename Load>
__device__ __forceinline__ void read_once(Load load, unsigned int vectors, unsigned int& sum) {
    unsigned int i = threadIdx.x;
    for (; i + (LOADS_IN_FLIGHT - 1) * blockDim.x < vectors; i += LOADS_IN_FLIGHT * blockDim.x) {
        Vector v[LOADS_IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < LOADS_IN_FLIGHT; ++j) v[j] = load(i + j * blockDim.x);
#pragma unroll
        for (int j = 0; j < LOADS_IN_FLIGHT; ++j) add(sum, v[j]);
    }
    for (; i < vectors; i += blockDim.x) add(sum, load(i));
}

// Each block reads a set of `vectors` vectors, and the sets of neighbouring blocks begin `set_stride` vectors apart:
// with 0 all blocks read the same set. L1 serves the reads while a set is small, L2 after that.
extern "C" __global__ void read_l1(const Vector* words, unsigned int vectors, unsigned int set_stride,
                                   unsigned int passes, unsigned int* word_sum, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    const Vector* set_of_block = words + (unsigned long long)blockIdx.x * set_stride;
    unsigned int thread_sum = 0;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass)
        read_once([&](unsigned int i) { return load_l1(set_of_block + i); }, vectors, thread_sum);
    add_to_word_sum(thread_sum, word_sum);
    watch.report(cycles_and_ns);
}

// The blocks divide one set among them and read it past L1, in tiles of blockDim.x x LOADS_IN_FLIGHT vectors. In each
// pass block b takes the tiles t, t + gridDim.x, ... with t = (b + pass x `shift`) % gridDim.x, so that a line is not
// always read by the same multiprocessor. The incomplete last tile has its turn like the others.
extern "C" __global__ void read_l2(const Vector* words, unsigned long long vectors, unsigned int passes,
                                   unsigned int shift, unsigned int* word_sum, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    unsigned int thread_sum = 0;
    const unsigned long long tile_vectors = (unsigned long long)blockDim.x * LOADS_IN_FLIGHT;
    const unsigned long long full_tiles = vectors / tile_vectors;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass) {
        const unsigned int first_tile = (blockIdx.x + pass * shift) % gridDim.x;
        unsigned long long tile = first_tile;
        for (; tile < full_tiles; tile += gridDim.x) {
            const Vector* address = words + tile * tile_vectors + threadIdx.x;
            Vector v[LOADS_IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < LOADS_IN_FLIGHT; ++j) v[j] = load_l2(address + j * blockDim.x);
#pragma unroll
            for (int j = 0; j < LOADS_IN_FLIGHT; ++j) add(thread_sum, v[j]);
        }
        if (tile == full_tiles)
            for (unsigned long long i = full_tiles * tile_vectors + threadIdx.x; i < vectors; i += blockDim.x)
                add(thread_sum, load_l2(words + i));
    }
    add_to_word_sum(thread_sum, word_sum);
    watch.report(cycles_and_ns);
}

// Every block reads the whole set past L1, all in the same order and so at about the same time.
extern "C" __global__ void read_l2_broadcast(const Vector* words, unsigned int vectors, unsigned int passes,
                                             unsigned int* word_sum, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    unsigned int thread_sum = 0;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass)
        read_once([&](unsigned int i) { return load_l2(words + i); }, vectors, thread_sum);
    add_to_word_sum(thread_sum, word_sum);
    watch.report(cycles_and_ns);
}

// Every block copies the set to its shared memory, and reads it from there.
extern "C" __global__ void read_shared(const Vector* words, unsigned int vectors, unsigned int passes,
                                       unsigned int* word_sum, unsigned long long* cycles_and_ns) {
    extern __shared__ Vector set[];
    for (unsigned int i = threadIdx.x; i < vectors; i += blockDim.x) set[i] = words[i];
    __syncthreads();
    const unsigned int start = (unsigned int)__cvta_generic_to_shared(set);
    const Stopwatch watch;
    unsigned int thread_sum = 0;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes; ++pass) {
        read_once([&](unsigned int i) { return load_shared(start + i * (unsigned int)sizeof(Vector)); }, vectors,
                  thread_sum);
    }
    add_to_word_sum(thread_sum, word_sum);
    watch.report(cycles_and_ns);
}

#if __CUDA_ARCH__ >= 900
// Distributed shared memory: the blocks of a cluster lie on multiprocessors of their own and read one another's.
__device__ __forceinline__ Vector load_cluster(unsigned int address) {
    Vector v;
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(address));
    return v;
}

__device__ __forceinline__ unsigned int rank_in_cluster() {
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The address, for all blocks of the cluster, of what begins at `shared` in the block of that rank.
__device__ __forceinline__ unsigned int address_in_block(const void* shared, unsigned int rank) {
    unsigned int address;
    const unsigned int own = (unsigned int)__cvta_generic_to_shared(shared);
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
    return address;
}

__device__ __forceinline__ Vector marked(Vector v, unsigned int mark) { return v.word[0] += mark, v; }

// Also keeps a block, whose shared memory others read, until all have read.
__device__ __forceinline__ void wait_for_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Every block copies the set, marked with its rank, and reads the copy of the block with the next rank. Sums count by the
// rank of the reader, so that the total shows who read what.
#define READ_CLUSTER(BLOCKS)                                                                                       \
    extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1)                                                      \
        read_dsmem_##BLOCKS(const Vector* words, unsigned int vectors, unsigned int passes,                        \
                            unsigned int* word_sum, unsigned long long* cycles_and_ns) {                           \
        extern __shared__ Vector set[];                                                                            \
        const unsigned int rank = rank_in_cluster(), start = address_in_block(set, (rank + 1) % BLOCKS);           \
        for (unsigned int i = threadIdx.x; i < vectors; i += blockDim.x) set[i] = marked(words[i], rank);           \
        const auto load = [=](unsigned int i) { return load_cluster(start + i * (unsigned int)sizeof(Vector)); };  \
        wait_for_cluster();                                                                                        \
        const Stopwatch watch;                                                                                     \
        unsigned int thread_sum = 0;                                                                               \
        for (unsigned int pass = 0; pass < passes; ++pass) read_once(load, vectors, thread_sum);                   \
        add_to_word_sum((rank + 1) * thread_sum, word_sum);                                                        \
        watch.report(cycles_and_ns);                                                                               \
        wait_for_cluster();                                                                                        \
    }
READ_CLUSTER(2)
READ_CLUSTER(4)
READ_CLUSTER(8)
READ_CLUSTER(16)

// The first of two blocks follows a chain of offsets through the shared memory of the second.
extern "C" __global__ void __cluster_dims__(2, 1, 1)
    chase_dsmem(const unsigned long long* links, unsigned int count, unsigned long long first_offset,
                unsigned int steps, unsigned long long* last_offset) {
    extern __shared__ unsigned long long lines[];
    const unsigned int rank = rank_in_cluster(), start = address_in_block(lines, 1);
    for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) lines[i] = rank ? start + links[i] : 0;
    wait_for_cluster();
    if (rank == 0 && threadIdx.x == 0) {
        unsigned long long address = start + first_offset;
        for (unsigned int step = 0; step < steps; ++step)
            asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(address) : "r"((unsigned int)address));
        *last_offset = address - start;
    }
    wait_for_cluster();
}
#endif
