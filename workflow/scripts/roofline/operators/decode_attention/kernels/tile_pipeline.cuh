// Tiles on their way from device memory to the lanes that use them, LOADS x 16 bytes a lane.
//
// With STAGES, several tiles are under way in shared memory (cp.async, compute capability 8.0 and up); with STAGES 0,
// one is, in registers. A feed is two streams in turn, keys and values, so that `arrived` means the older of the two.

#pragma once

#include "../../../devices/gpu/kernels/programmatic_launch.cuh"

#if STAGES
#define AHEAD STAGES
#else
#define AHEAD 1
#endif

// A 16-byte slot of a warp's room in shared memory, or of a lane's registers: LOADS a lane, for each of STAGES tiles.
template <int LOADS>
struct Feed {
    static const int SLOTS = LOADS * 32;
    static const int BYTES_A_WARP = STAGES * SLOTS * 16;
    const unsigned long long policy = leaving_first();
#if STAGES
    unsigned int base;
    int stage;

    __device__ __forceinline__ explicit Feed(char* room) : stage(0) {
        base = (unsigned int)__cvta_generic_to_shared(room) + threadIdx.x / 32 * BYTES_A_WARP;
    }
    // Into a slot of the tile that is `ahead` tiles after the one that is used now.
    __device__ __forceinline__ void fetch(int slot, const void* at, int ahead) const {
        const int of = stage + ahead, tile = of < STAGES ? of : of - STAGES;
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                         base + (tile * SLOTS + slot) * 16),
                     "l"(at), "l"(policy)
                     : "memory");
    }
    __device__ __forceinline__ uint4 get(int slot) const {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(base + (stage * SLOTS + slot) * 16)
                     : "memory");
        return v;
    }
    __device__ __forceinline__ void next() { stage = stage + 1 < STAGES ? stage + 1 : 0; }
#else
    uint4 held[LOADS];

    __device__ __forceinline__ explicit Feed(char*) {}
    __device__ __forceinline__ void fetch(int slot, const void* at, int) { held[slot / 32] = load_once(at, policy); }
    __device__ __forceinline__ uint4 get(int slot) const { return held[slot / 32]; }
    __device__ __forceinline__ void next() {}
#endif
};

__device__ __forceinline__ void fetched() {
#if STAGES
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until the oldest tile that is under way has come, for all lanes of the warp.
__device__ __forceinline__ void arrived_oldest() {
#if STAGES
    asm volatile("cp.async.wait_group %0;" ::"n"(2 * STAGES - 1) : "memory");
    __syncwarp();
#endif
}

// Before a slot that another lane reads is filled again.
__device__ __forceinline__ void all_lanes_have_read() {
#if STAGES
    __syncwarp();
#endif
}

__device__ __forceinline__ void arrived_all() {
#if STAGES
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// A block lets the next kernel begin when the first of its warps has its last tiles under way: a kernel that comes much
// earlier takes room beside blocks that are still busy, and its own blocks end up unevenly on the multiprocessors. With
// several waves it comes to the last wave in any case. (%nsmid may be more than the multiprocessors that there are: then
// some grids count as one wave that are more, which costs a little time.)
__device__ __forceinline__ bool several_waves() {
    unsigned int multiprocessors;
    asm("mov.u32 %0, %nsmid;" : "=r"(multiprocessors));
    return gridDim.x > BLOCKS * multiprocessors;
}
