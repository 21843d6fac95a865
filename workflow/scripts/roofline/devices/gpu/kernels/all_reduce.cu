// All-reduce of bf16 between two cards, over pointers into each other's memory: every number becomes the sum of both
// cards' numbers, rounded once. A vector is 16 bytes. A launch on one card works with a launch of the same grid on the
// other; launches on a card are in one stream.
//
// A wait ends after TIMEOUT_NS. *failed is set then, and every later wait ends at once: the host finds it.

#include "programmatic_launch.cuh"
#include "timers.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;

#define TIMEOUT_NS 1000000000ull
#define POLLS_PER_LOOK 1024
#define EMPTY 0xffffffffu  // the last word of a slot without a packet
#if __CUDA_ARCH__ == 700 || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || \
    __CUDA_ARCH__ == 1030
#define LARGEST_BLOCKS 2  // of 1024 threads that a multiprocessor holds
#else
#define LARGEST_BLOCKS 1
#endif
#define LEAD 4             // tiles that are sent before the first is received

// The bits of a number whose upper half is the nearest bf16; of two that are equally near, the even one.
__device__ __forceinline__ u32 nearest_bf16(float x) {
    const u32 bits = __float_as_uint(x);
    return bits + 0x7fffu + (bits >> 16 & 1u);
}

__device__ __forceinline__ u32 add_pairs(u32 a, u32 b) {
    const float low = __uint_as_float(a << 16) + __uint_as_float(b << 16);
    const float high = __uint_as_float(a & 0xffff0000u) + __uint_as_float(b & 0xffff0000u);
#if __CUDA_ARCH__ >= 800
    u32 sum;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(sum) : "f"(high), "f"(low));
    return sum;
#else
    return (nearest_bf16(high) & 0xffff0000u) | nearest_bf16(low) >> 16;
#endif
}

__device__ __forceinline__ uint4 add(uint4 a, uint4 b) {
    return make_uint4(add_pairs(a.x, b.x), add_pairs(a.y, b.y), add_pairs(a.z, b.z), add_pairs(a.w, b.w));
}

// Loads and stores of 16 bytes that other cards see whole or not at all.
__device__ __forceinline__ uint4 load_whole(const uint4* address) {
    u64 low, high;
    asm volatile("{.reg .b128 v;\nld.relaxed.sys.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;}"
                 : "=l"(low), "=l"(high)
                 : "l"(address)
                 : "memory");
    return make_uint4((u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32));
}

__device__ __forceinline__ void store_whole(uint4* address, uint4 v) {
    const u64 low = v.x | (u64)v.y << 32, high = v.z | (u64)v.w << 32;
    asm volatile("{.reg .b128 v;\nmov.b128 v, {%1, %2};\nst.relaxed.sys.global.b128 [%0], v;}" ::"l"(address), "l"(low),
                 "l"(high)
                 : "memory");
}

// Whether a wait has lasted too long, on this card or since an earlier one did; asked once for every look.
class Patience {
    volatile u32* failed;
    u64 start_ns = 0;
    u32 polls = 0;

public:
    __device__ __forceinline__ explicit Patience(u32* failed) : failed(failed) {}
    __device__ __forceinline__ bool is_over() {
        if (++polls % POLLS_PER_LOOK) return false;
        if (!start_ns) start_ns = now_ns();
        if (now_ns() - start_ns > TIMEOUT_NS) *failed = 1;
        return *failed;
    }
};

// A vector as a packet, which is its own flag: what would be taken for an empty slot is another NaN.
__device__ __forceinline__ uint4 make_packet(uint4 v) {
    if (v.w == EMPTY) v.w = 0xfffeffffu;
    return v;
}

// Waits for a packet, and empties its slot for the launch after the next.
__device__ __forceinline__ uint4 receive(uint4* slot, u32* failed) {
    Patience patience(failed);
    uint4 packet;
    do {
        packet = load_whole(slot);
    } while (packet.w == EMPTY && !patience.is_over());
    *slot = make_uint4(EMPTY, EMPTY, EMPTY, EMPTY);
    return packet;
}

// One-shot: each card sends all its vectors into the slots of the other, and adds what arrives in its own slots. Data
// and flag are one store. The slots are two sets of `slots_per_set`, used in turn: a card sends its next launch's
// packets when it has all of this one's, so that the other has begun this launch and has emptied the set before. The
// number of launches, which chooses the set, is in device memory, a word for each block, since arguments in a graph
// are fixed. waits[i % 64] becomes the cycles from the start of launch i to its first packet.
extern "C" __global__ void __launch_bounds__(1024, LARGEST_BLOCKS)
    one_shot(const uint4* in, uint4* out, unsigned int vectors, uint4* own_slots, uint4* peer_slots,
             unsigned int slots_per_set, unsigned int* launches, unsigned int* failed, unsigned long long* waits) {
    wait_for_kernel_before();
    let_next_begin();
    const long long start = clock64();
    const u32 launch = *(volatile u32*)(launches + blockIdx.x);
    const u64 set = launch % 2 * (u64)slots_per_set;
    uint4 *const slots = own_slots + set, *const remote = peer_slots + set;
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, tile = (u64)gridDim.x * blockDim.x;
    const auto send = [&](u64 i) {
        if (i < vectors) store_whole(remote + i, make_packet(__ldcs(in + i)));
    };
    for (int i = 0; i < LEAD; ++i) send(first + i * tile);
    for (u64 i = first; i < vectors; i += tile) {
        send(i + LEAD * tile);
        const uint4 own = __ldcs(in + i);
        const uint4 packet = receive(slots + i, failed);
        __stcs(out + i, add(own, packet));
        if (i == 0) waits[launch % 64] = clock64() - start;
    }
    __syncthreads();
    if (threadIdx.x == 0) launches[blockIdx.x] = launch + 1;
}

// Waits until the same block of the other card has come as far; what the block wrote before is visible there then.
__device__ __forceinline__ void meet(u32* own_flags, u32* peer_flags, u32 value, u32* failed) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(peer_flags + blockIdx.x), "r"(value) : "memory");
        Patience patience(failed);
        u32 seen;
        do {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(own_flags + blockIdx.x) : "memory");
        } while ((int)(seen - value) < 0 && !patience.is_over());
    }
    __syncthreads();
}

// Two-shot: a card reads the other's vectors from `begin` to `end`, and writes their sums to both cards.
extern "C" __global__ void __launch_bounds__(1024, LARGEST_BLOCKS)
    two_shot(const uint4* in, const uint4* peer_in, uint4* out, uint4* peer_out, unsigned int begin, unsigned int end,
             unsigned int* own_flags, unsigned int* peer_flags, unsigned int* launches, unsigned int* failed) {
    wait_for_kernel_before();
    let_next_begin();
    const u32 launch = *(volatile u32*)(launches + blockIdx.x);
    meet(own_flags, peer_flags, 2 * launch + 1, failed);
    const u64 tile = (u64)gridDim.x * blockDim.x;
#pragma unroll 2
    for (u64 i = begin + blockIdx.x * (u64)blockDim.x + threadIdx.x; i < end; i += tile) {
        const uint4 sum = add(__ldcs(in + i), __ldcv(peer_in + i));
        __stcs(peer_out + i, sum);
        __stcs(out + i, sum);
    }
    meet(own_flags, peer_flags, 2 * launch + 2, failed);
    if (threadIdx.x == 0) launches[blockIdx.x] = launch + 1;
}

// Compares sums with those in fp64 and with the other card's. *worst is the largest relative error, in the bits of a
// float; *differing counts words that differ between the cards; *checksum is the same for the same words.
extern "C" __global__ void check_sums(const uint4* in, const uint4* peer_in, const uint4* out, const uint4* peer_out,
                                      unsigned int vectors, unsigned int* worst, unsigned long long* differing,
                                      unsigned long long* checksum) {
    const u32 *const a = (const u32*)in, *const b = (const u32*)peer_in, *const sums = (const u32*)out;
    double largest = 0;
    u64 different = 0, weighted = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < 4ull * vectors; i += (u64)gridDim.x * blockDim.x) {
        different += sums[i] != ((const u32*)peer_out)[i];
        weighted += sums[i] * (2 * i + 1);
#pragma unroll
        for (int shift = 0; shift < 32; shift += 16) {
            const double expected = (double)__uint_as_float(a[i] >> shift << 16) + __uint_as_float(b[i] >> shift << 16);
            const double error = fabs(__uint_as_float(sums[i] >> shift << 16) - expected) / (fabs(expected) + 1e-30);
            largest = error <= 1e30 ? fmax(largest, error) : 1e30;  // of NaN too
        }
    }
    atomicMax(worst, __float_as_uint((float)largest));
    if (different) atomicAdd(differing, different);
    atomicAdd(checksum, weighted);
}
