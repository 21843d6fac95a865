// Hopper's asynchronous units from PTX: barriers in shared memory, the tensor copy engine (TMA) and warpgroup products
// (wgmma). Compute capability 9.0, compiled as sm_90a.
//
// Tiles have rows of 128 bytes in the copy engine's 128-byte swizzle (swizzled_offset). A tile begins at a multiple of
// 1024 bytes.
//
// A barrier of PTX (mbarrier) has phases. A phase ends when all its arrivals have come, and all bytes that the arrivals
// announced; then the next one begins. Who waits names the phase by its parity: 0 for the first, third, ...; and
// waiting for parity 1 of a new barrier returns at once.

#pragma once

#include "half_types.cuh"

typedef unsigned long long u64;

struct alignas(64) TensorMap {
    u64 words[16];
};

// ---------------------------------------------------------------- barriers

__device__ __forceinline__ void init_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to the copy engine.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Arrives, and announces bytes that the copy engine or another block will bring before the phase ends.
__device__ __forceinline__ void arrive_expecting_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the same barrier of another block of the cluster.
__device__ __forceinline__ void arrive_at_block(u32 barrier, u32 block) {
    asm volatile(
        "{.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
        "r"(block)
        : "memory");
}

// Waits for the end of the barrier's phase of this parity.
__device__ __forceinline__ void wait_for_phase(u32 barrier, u32 parity) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Goes on to the next of COUNT stages. Each time that the stages begin anew, so does a phase of their barriers.
template <int COUNT>
__device__ __forceinline__ void to_next_stage(int& stage, int& parity) {
    if (++stage == COUNT) stage = 0, parity ^= 1;
}

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// For use where nothing was written that other blocks read: a release would wait for memory that is busy.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The address, in the cluster, of what lies at `address` in a block of it.
__device__ __forceinline__ u32 map_to_block(u32 address, u32 block) {
    u32 remote_address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_address) : "r"(address), "r"(block));
    return remote_address;
}
// Stores 16 bytes in another block, and counts them at its barrier: no fence is needed, nor a barrier of the cluster.
// Both addresses are map_to_block's.
__device__ __forceinline__ void store_remote(u32 destination, u32 barrier, float a, float b, float c, float d) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];"
        ::"r"(destination), "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
        : "memory");
}

// Synchronises `threads` threads of a block by one of its 16 named barriers; number 0 is that of __syncthreads.
__device__ __forceinline__ void sync_named_barrier(int threads, int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Makes ordinary stores to shared memory visible to the copy engine and to wgmma.
__device__ __forceinline__ void publish_shared_stores() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---------------------------------------------------------------- copy engine

// Loads the map's box at (row, column) to shared memory; its bytes count at `barrier`.
__device__ __forceinline__ void load_tile(u32 destination, const TensorMap& map, int column, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(destination), "l"(&map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
}

// Loads a multiple of 16 bytes in their order.
__device__ __forceinline__ void load_bytes(u32 destination, const void* source, u32 bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(destination), "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}

// The same for data that is read once: its lines are the first to leave the L2.
__device__ __forceinline__ void load_tile_once(u32 destination, const TensorMap& map, int column, int row,
                                               u32 barrier) {
    const u64 evict_first = 0x12F0000000000000;
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;"
        ::"r"(destination), "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(evict_first)
        : "memory");
}

// Loads to the same address of every block of the cluster whose bit is set; the bytes count at the barrier of each.
__device__ __forceinline__ void load_tile_to_blocks(unsigned short block_bits, u32 destination, const TensorMap& map,
                                                    int column, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;"
        ::"r"(destination), "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(block_bits)
        : "memory");
}

// Begins to store a box from shared memory, as a group of this thread.
__device__ __forceinline__ void store_tile(const TensorMap& map, int column, int row, u32 source) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column),
                 "r"(row), "r"(source)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all of this thread's stores but the newest PENDING have read their tiles.
template <int PENDING>
__device__ __forceinline__ void wait_for_stores_to_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---------------------------------------------------------------- registers and wgmma

template <int COUNT>
__device__ __forceinline__ void raise_register_limit() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void lower_register_limit() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// The descriptor of a tile whose rows run along k: each 8 rows of 128 bytes begin 1024 bytes after the 8 before.
// Addresses are in units of 16 bytes, so that the next 16 of k (32 bytes) are at the descriptor plus 2.
__device__ __forceinline__ u64 matrix_descriptor(u32 tile) {
    return (u64)((tile & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all of this warp's committed groups but the newest PENDING are done.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// D += A B^T by a warpgroup, of A [64, 16] and B [N, 16] in shared memory. D is in fp32: in lane l of the warpgroup's
// warp w, d[4 i + 2 h + j] is in row 16 w + 8 h + l / 4 and column 8 i + 2 (l % 4) + j. Where `accumulate` is 0, D = A
// B^T.
template <int N>
struct Wgmma;

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F8(d, i) F4(d, i), F4(d, i + 4)
#define F16(d, i) F8(d, i), F8(d, i + 8)
#define F32(d, i) F16(d, i), F16(d, i + 16)
#define F64(d, i) F32(d, i), F32(d, i + 32)
#define L4 "%0, %1, %2, %3"
#define L8 L4 ", %4, %5, %6, %7"
#define L16 L8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define L24 L16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define L32 L24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define L40 L32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define L48 L40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define L56 L48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define L64 L56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define L72 L64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define L80 L72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define L88 L80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define L96 L88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define L104 L96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define L112 L104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define L120 L112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define L128 L120 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA(N, LIST, A, B, C, ...)                                                                           \
    template <>                                                                                                \
    struct Wgmma<N> {                                                                                          \
        static __device__ __forceinline__ void multiply_add(float (&d)[N / 2], u64 a, u64 b, int accumulate) { \
            asm volatile("{.reg .pred accumulate;\nsetp.ne.b32 accumulate, " C ", 0;\n"                        \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." PTX_TYPE "." PTX_TYPE               \
                         " {" LIST "}, " A ", " B ", accumulate, 1, 1, 0, 0;}"                                 \
                         : __VA_ARGS__                                                                         \
                         : "l"(a), "l"(b), "r"(accumulate));                                                   \
        }                                                                                                      \
    };
WGMMA(16, L8, "%8", "%9", "%10", F8(d, 0))
WGMMA(32, L16, "%16", "%17", "%18", F16(d, 0))
WGMMA(48, L24, "%24", "%25", "%26", F16(d, 0), F8(d, 16))
WGMMA(64, L32, "%32", "%33", "%34", F32(d, 0))
WGMMA(80, L40, "%40", "%41", "%42", F32(d, 0), F8(d, 32))
WGMMA(96, L48, "%48", "%49", "%50", F32(d, 0), F16(d, 32))
WGMMA(112, L56, "%56", "%57", "%58", F32(d, 0), F16(d, 32), F8(d, 48))
WGMMA(128, L64, "%64", "%65", "%66", F64(d, 0))
WGMMA(144, L72, "%72", "%73", "%74", F64(d, 0), F8(d, 64))
WGMMA(160, L80, "%80", "%81", "%82", F64(d, 0), F16(d, 64))
WGMMA(176, L88, "%88", "%89", "%90", F64(d, 0), F16(d, 64), F8(d, 80))
WGMMA(192, L96, "%96", "%97", "%98", F64(d, 0), F32(d, 64))
WGMMA(208, L104, "%104", "%105", "%106", F64(d, 0), F32(d, 64), F8(d, 96))
WGMMA(224, L112, "%112", "%113", "%114", F64(d, 0), F32(d, 64), F16(d, 96))
WGMMA(240, L120, "%120", "%121", "%122", F64(d, 0), F32(d, 64), F16(d, 96), F8(d, 112))
WGMMA(256, L128, "%128", "%129", "%130", F64(d, 0), F64(d, 64))
