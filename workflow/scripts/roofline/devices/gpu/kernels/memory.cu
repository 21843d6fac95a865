// Streams through memory in wide accesses, several per thread in flight: the rate of the memory, not of a plain loop.
//
// A vector is 16 bytes, and 32 on the cards that have such accesses (compute capability 10.0 and up). DEPTH is the
// number of accesses that a thread has in flight. The blocks take tiles of blockDim.x x DEPTH vectors in a grid-stride
// loop; the incomplete last tile is checked vector by vector. The kernels are read_1, write_1, copy_1 and triad_1, and
// the same with a DEPTH of 2, 4 and 8; each reports its clock in `cycles_and_ns` (timers.cuh).

#include "timers.cuh"

#if __CUDA_ARCH__ >= 1000
#define WORDS 8
#else
#define WORDS 4
#endif

struct __align__(4 * WORDS) Vector {
    unsigned int word[WORDS];
};

// Streaming accesses (.cs): the data is used once and is the first to leave the cache.
__device__ __forceinline__ Vector load_streaming(const Vector* address) {
    Vector v;
#if WORDS == 8
    asm volatile("ld.global.L1::no_allocate.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]), "=r"(v.word[4]),
                   "=r"(v.word[5]), "=r"(v.word[6]), "=r"(v.word[7])
                 : "l"(address));
#else
    asm volatile("ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
#endif
    return v;
}

__device__ __forceinline__ void store_streaming(Vector* address, const Vector& v) {
#if WORDS == 8
    asm volatile("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(address), "r"(v.word[0]),
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]), "r"(v.word[4]), "r"(v.word[5]), "r"(v.word[6]),
                 "r"(v.word[7])
                 : "memory");
#else
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.word[0]), "r"(v.word[1]),
                 "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
#endif
}

__device__ __forceinline__ void add(Vector& sum, const Vector& v) {
#pragma unroll
    for (int i = 0; i < WORDS; ++i) sum.word[i] += v.word[i];
}

// Adds a thread's words to *word_sum, the sum of all 32-bit words, which wraps: that it is right shows that every byte
// was read. A timed launch does not report it (*report_sum is 0), since a million warps would queue at one address; the
// comparison with an arbitrary number keeps the compiler from leaving the sum out.
__device__ __forceinline__ void add_to_word_sum(const Vector& sum, unsigned int* word_sum,
                                                const unsigned int* report_sum) {
    unsigned int thread_sum = 0;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) thread_sum += sum.word[i];
    if (*report_sum || thread_sum == 0x9e3779b9u) atomicAdd(word_sum, thread_sum);
}

// Calls on_tile(first) for each full tile of the block, `first` being the thread's first vector in it, and on_vector(i)
// for each vector of the thread in the last tile.
template <int DEPTH, typename OnTile, typename OnVector>
__device__ __forceinline__ void for_each_tile(unsigned long long vectors, OnTile on_tile, OnVector on_vector) {
    const unsigned long long tile_vectors = (unsigned long long)blockDim.x * DEPTH;
    unsigned long long first = blockIdx.x * tile_vectors + threadIdx.x;
    const unsigned long long full_tiles_end = vectors / tile_vectors * tile_vectors;
    for (; first < full_tiles_end; first += gridDim.x * tile_vectors) on_tile(first);
    for (unsigned long long i = first; i < vectors && i < first + tile_vectors; i += blockDim.x) on_vector(i);
}

// Reads `vectors` vectors of a. *word_sum and *report_sum are those of add_to_word_sum.
template <int DEPTH>
__device__ void read_all(const Vector* a, unsigned long long vectors, unsigned int* word_sum,
                         const unsigned int* report_sum, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    Vector sum = {};
    for_each_tile<DEPTH>(
        vectors,
        [&](unsigned long long first) {
            Vector v[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) v[i] = load_streaming(a + first + i * blockDim.x);
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) add(sum, v[i]);
        },
        [&](unsigned long long i) { add(sum, load_streaming(a + i)); });
    add_to_word_sum(sum, word_sum, report_sum);
    watch.report(cycles_and_ns);
}

// Writes `vectors` vectors of c: word i becomes start + i.
template <int DEPTH>
__device__ void write_all(Vector* c, unsigned long long vectors, unsigned int start,
                          unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    const auto store = [&](unsigned long long i) {
        Vector v;
#pragma unroll
        for (int word = 0; word < WORDS; ++word) v.word[word] = start + (unsigned int)(i * WORDS) + word;
        store_streaming(c + i, v);
    };
    for_each_tile<DEPTH>(
        vectors,
        [&](unsigned long long first) {
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) store(first + i * blockDim.x);
        },
        store);
    watch.report(cycles_and_ns);
}

// Copies `vectors` vectors of a to c.
template <int DEPTH>
__device__ void copy_all(const Vector* a, Vector* c, unsigned long long vectors, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    for_each_tile<DEPTH>(
        vectors,
        [&](unsigned long long first) {
            Vector v[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) v[i] = load_streaming(a + first + i * blockDim.x);
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) store_streaming(c + first + i * blockDim.x, v[i]);
        },
        [&](unsigned long long i) { store_streaming(c + i, load_streaming(a + i)); });
    watch.report(cycles_and_ns);
}

__device__ __forceinline__ Vector scaled_sum(const Vector& a, const Vector& b, float scale) {
    Vector v;
#pragma unroll
    for (int i = 0; i < WORDS; ++i)
        v.word[i] = __float_as_uint(fmaf(scale, __uint_as_float(b.word[i]), __uint_as_float(a.word[i])));
    return v;
}

// c = a + scale b in fp32, over `vectors` vectors (the triad of McCalpin's STREAM).
template <int DEPTH>
__device__ void triad_all(const Vector* a, const Vector* b, Vector* c, unsigned long long vectors, float scale,
                          unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    for_each_tile<DEPTH>(
        vectors,
        [&](unsigned long long first) {
            Vector v[DEPTH], w[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                v[i] = load_streaming(a + first + i * blockDim.x);
                w[i] = load_streaming(b + first + i * blockDim.x);
            }
#pragma unroll
            for (int i = 0; i < DEPTH; ++i)
                store_streaming(c + first + i * blockDim.x, scaled_sum(v[i], w[i], scale));
        },
        [&](unsigned long long i) {
            store_streaming(c + i, scaled_sum(load_streaming(a + i), load_streaming(b + i), scale));
        });
    watch.report(cycles_and_ns);
}

#define AT_DEPTH(DEPTH)                                                                                                \
    extern "C" __global__ void read_##DEPTH(const Vector* a, unsigned long long vectors, unsigned int* word_sum,       \
                                            const unsigned int* report_sum, unsigned long long* cycles_and_ns) {       \
        read_all<DEPTH>(a, vectors, word_sum, report_sum, cycles_and_ns);                                              \
    }                                                                                                                  \
    extern "C" __global__ void write_##DEPTH(Vector* c, unsigned long long vectors, unsigned int start,                \
                                             unsigned long long* cycles_and_ns) {                                      \
        write_all<DEPTH>(c, vectors, start, cycles_and_ns);                                                            \
    }                                                                                                                  \
    extern "C" __global__ void copy_##DEPTH(const Vector* a, Vector* c, unsigned long long vectors,                    \
                                            unsigned long long* cycles_and_ns) {                                       \
        copy_all<DEPTH>(a, c, vectors, cycles_and_ns);                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void triad_##DEPTH(const Vector* a, const Vector* b, Vector* c, unsigned long long vectors,  \
                                             float scale, unsigned long long* cycles_and_ns) {                         \
        triad_all<DEPTH>(a, b, c, vectors, scale, cycles_and_ns);                                                      \
    }

AT_DEPTH(1)
AT_DEPTH(2)
AT_DEPTH(4)
AT_DEPTH(8)
