// A warp's tiles of keys, or of values, on their way from device memory to its lanes: LOADS x 16 bytes for each lane.
//
// With STAGES above 0, STAGES tiles are under way in shared memory (cp.async, compute capability 8.0 and up); with
// STAGES 0, one tile is, in registers. A warp has two pipelines, of keys and of values, which it uses in turn, so that
// the oldest group of copies is always that of the tile it needs next:
//
//   before the loop: fetch the first TILES_AHEAD tiles of keys and of values
//   for each tile:   wait_for_oldest, read its keys, fetch the keys of the tile TILES_AHEAD further
//                    wait_for_oldest, read its values, fetch the values of the tile TILES_AHEAD further
//
// Each fetch of a tile ends with commit_fetches, also where there is no tile to fetch, so that groups can be counted.

#pragma once

#include "../../../devices/gpu/kernels/programmatic_launch.cuh"

#if STAGES
#define TILES_AHEAD STAGES
#else
#define TILES_AHEAD 1
#endif

// A tile has 32 x LOADS slots of 16 bytes: in the warp's part of shared memory, or in registers of its lanes.
template <int LOADS>
struct TilePipeline {
    static const int SLOTS = LOADS * 32;
    static const int BYTES_PER_WARP = STAGES * SLOTS * 16;
    const unsigned long long policy = evict_first_policy();
#if STAGES
    unsigned int base;
    int stage;

    __device__ __forceinline__ explicit TilePipeline(char* block_memory) : stage(0) {
        base = (unsigned int)__cvta_generic_to_shared(block_memory) + threadIdx.x / 32 * BYTES_PER_WARP;
    }
    // Begins the copy of a slot, in the stage `tiles_ahead` after the current tile's: 0 refills that of the current
    // tile, once it was read, with the tile STAGES further.
    __device__ __forceinline__ void fetch(int slot, const void* source, int tiles_ahead) const {
        const int unwrapped = stage + tiles_ahead, stage_index = unwrapped < STAGES ? unwrapped : unwrapped - STAGES;
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                         base + (stage_index * SLOTS + slot) * 16),
                     "l"(source), "l"(policy)
                     : "memory");
    }
    // Returns a slot of the current tile.
    __device__ __forceinline__ uint4 read(int slot) const {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(base + (stage * SLOTS + slot) * 16)
                     : "memory");
        return v;
    }
    // Returns the first or the second 8 bytes of a slot of the current tile.
    __device__ __forceinline__ uint4 read_half(int slot, int half) const {
        uint4 v = {};
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(v.x), "=r"(v.y)
                     : "r"(base + (stage * SLOTS + slot) * 16 + half * 8)
                     : "memory");
        return v;
    }
    __device__ __forceinline__ void to_next_tile() { stage = stage + 1 < STAGES ? stage + 1 : 0; }
#else
    uint4 registers[LOADS];

    __device__ __forceinline__ explicit TilePipeline(char*) {}
    __device__ __forceinline__ void fetch(int slot, const void* source, int) {
        registers[slot / 32] = load_once(source, policy);
    }
    __device__ __forceinline__ uint4 read(int slot) const { return registers[slot / 32]; }
    __device__ __forceinline__ uint4 read_half(int slot, int) const { return read(slot); }
    __device__ __forceinline__ void to_next_tile() {}
#endif
};

// Brings a tile to the L2, of rows that follow one another: a line of 128 bytes for each lane, up to `end`.
template <int LOADS>
__device__ __forceinline__ void prefetch_tile(const void* tile, const void* end) {
    static_assert(LOADS * 16 == 128, "a line for each lane");
    const char* const line = (const char*)tile + threadIdx.x % 32 * 128;
    if (line < (const char*)end) asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

// Makes one group of a lane's copies that began since the last call.
__device__ __forceinline__ void commit_fetches() {
#if STAGES
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until the oldest of the tiles under way has arrived, for all lanes of the warp.
__device__ __forceinline__ void wait_for_oldest() {
#if STAGES
    asm volatile("cp.async.wait_group %0;" ::"n"(2 * STAGES - 1) : "memory");
    __syncwarp();
#endif
}

// To be called before a slot that another lane reads is filled again.
__device__ __forceinline__ void wait_until_all_lanes_have_read() {
#if STAGES
    __syncwarp();
#endif
}

__device__ __forceinline__ void wait_for_all() {
#if STAGES
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// A block lets the next kernel begin when the first of its warps has its last tiles under way: a kernel that comes much
// earlier takes registers and shared memory next to blocks that are still busy, and its own blocks end up unevenly on
// the multiprocessors. With several waves it comes to the last wave in any case. (%nsmid may be more than the number of
// multiprocessors: then some grids of several waves count as one, which costs a little time.)
__device__ __forceinline__ bool has_several_waves() {
    unsigned int multiprocessors;
    asm("mov.u32 %0, %nsmid;" : "=r"(multiprocessors));
    return gridDim.x > BLOCKS * multiprocessors;
}
