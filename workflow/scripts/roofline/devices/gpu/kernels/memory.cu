// Streams through memory in wide accesses, several in flight a thread: what the memory gives, not what a plain loop asks.
//
// A vector is 16 bytes, and 32 on the cards that have such accesses (compute capability 10.0 and up). A block takes
// tiles of blockDim x DEPTH vectors, a grid apart; the last tile is checked vector by vector, so that no end is left out.

#include "timers.cuh"

#if __CUDA_ARCH__ >= 1000
#define WORDS 8
#else
#define WORDS 4
#endif

struct __align__(4 * WORDS) Vector {
    unsigned int word[WORDS];
};

// .cs: read or written once, and first to leave the cache.
__device__ __forceinline__ Vector load_streaming(const Vector* at) {
    Vector v;
#if WORDS == 8
    asm volatile("ld.global.L1::no_allocate.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]), "=r"(v.word[4]),
                   "=r"(v.word[5]), "=r"(v.word[6]), "=r"(v.word[7])
                 : "l"(at));
#else
    asm volatile("ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(at));
#endif
    return v;
}

__device__ __forceinline__ void store_streaming(Vector* at, const Vector& v) {
#if WORDS == 8
    asm volatile("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(at), "r"(v.word[0]), "r"(v.word[1]),
                 "r"(v.word[2]), "r"(v.word[3]), "r"(v.word[4]), "r"(v.word[5]), "r"(v.word[6]), "r"(v.word[7])
                 : "memory");
#else
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.word[0]), "r"(v.word[1]),
                 "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
#endif
}

__device__ __forceinline__ void add(Vector& sum, const Vector& v) {
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        sum.word[i] += v.word[i];
    }
}

// The sum of all 32-bit words, wrapping: that it is right shows that every byte was read. It is only told when asked for
// (else a million warps would queue at one address); the comparison keeps the compiler from leaving the sum out.
__device__ __forceinline__ void add_to_total(const Vector& sum, unsigned int* total, const unsigned int* tell) {
    unsigned int mine = 0;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        mine += sum.word[i];
    }
    if (*tell || mine == 0x9e3779b9u) {
        atomicAdd(total, mine);
    }
}

// Calls `whole(first)` for each full tile, at the thread's first vector, and `single(i)` for each vector of the last.
template <int DEPTH, typename Whole, typename Single>
__device__ __forceinline__ void over_tiles(unsigned long long vectors, Whole whole, Single single) {
    const unsigned long long tile = (unsigned long long)blockDim.x * DEPTH;
    unsigned long long first = blockIdx.x * tile + threadIdx.x;
    const unsigned long long full = vectors / tile * tile;
    for (; first < full; first += gridDim.x * tile) {
        whole(first);
    }
    for (unsigned long long i = first; i < vectors && i < first + tile; i += blockDim.x) {
        single(i);
    }
}

template <int DEPTH>
__device__ void read_all(const Vector* a, unsigned long long vectors, unsigned int* total, const unsigned int* tell,
                         unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    Vector sum = {};
    over_tiles<DEPTH>(
        vectors,
        [&](unsigned long long first) {
            Vector v[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                v[i] = load_streaming(a + first + i * blockDim.x);
            }
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                add(sum, v[i]);
            }
        },
        [&](unsigned long long i) { add(sum, load_streaming(a + i)); });
    add_to_total(sum, total, tell);
    watch.tell(cycles_and_ns);
}

// Every word becomes its number plus `start`.
template <int DEPTH>
__device__ void write_all(Vector* c, unsigned long long vectors, unsigned int start,
                          unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    const auto store = [&](unsigned long long i) {
        Vector v;
#pragma unroll
        for (int word = 0; word < WORDS; ++word) {
            v.word[word] = start + (unsigned int)(i * WORDS) + word;
        }
        store_streaming(c + i, v);
    };
    over_tiles<DEPTH>(
        vectors,
        [&](unsigned long long first) {
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                store(first + i * blockDim.x);
            }
        },
        store);
    watch.tell(cycles_and_ns);
}

template <int DEPTH>
__device__ void copy_all(const Vector* a, Vector* c, unsigned long long vectors, unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    over_tiles<DEPTH>(
        vectors,
        [&](unsigned long long first) {
            Vector v[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                v[i] = load_streaming(a + first + i * blockDim.x);
            }
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                store_streaming(c + first + i * blockDim.x, v[i]);
            }
        },
        [&](unsigned long long i) { store_streaming(c + i, load_streaming(a + i)); });
    watch.tell(cycles_and_ns);
}

__device__ __forceinline__ Vector scaled_sum(const Vector& a, const Vector& b, float scale) {
    Vector v;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        v.word[i] = __float_as_uint(fmaf(scale, __uint_as_float(b.word[i]), __uint_as_float(a.word[i])));
    }
    return v;
}

// c = a + scale b in fp32 (the triad of McCalpin's STREAM).
template <int DEPTH>
__device__ void triad_all(const Vector* a, const Vector* b, Vector* c, unsigned long long vectors, float scale,
                          unsigned long long* cycles_and_ns) {
    const Stopwatch watch;
    over_tiles<DEPTH>(
        vectors,
        [&](unsigned long long first) {
            Vector v[DEPTH], w[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                v[i] = load_streaming(a + first + i * blockDim.x);
                w[i] = load_streaming(b + first + i * blockDim.x);
            }
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                store_streaming(c + first + i * blockDim.x, scaled_sum(v[i], w[i], scale));
            }
        },
        [&](unsigned long long i) {
            store_streaming(c + i, scaled_sum(load_streaming(a + i), load_streaming(b + i), scale));
        });
    watch.tell(cycles_and_ns);
}

#define AT_DEPTH(DEPTH)                                                                                                \
    extern "C" __global__ void read_##DEPTH(const Vector* a, unsigned long long vectors, unsigned int* total,          \
                                            const unsigned int* tell, unsigned long long* cycles_and_ns) {             \
        read_all<DEPTH>(a, vectors, total, tell, cycles_and_ns);                                                       \
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
