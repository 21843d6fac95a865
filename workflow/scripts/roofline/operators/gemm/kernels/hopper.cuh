// Hopper's asynchronous units from PTX: barriers in shared memory, the tensor copy engine (TMA) and warpgroup products
// (wgmma). Compute capability 9.0, compiled as sm_90a.
//
// Tiles are rows of 128 bytes in the copy engine's 128-byte swizzle: its 16-byte chunk c of row r lies at c ^ (r % 8).
// A tile begins at a multiple of 1024 bytes.

#pragma once

#include "half_types.cuh"

typedef unsigned long long u64;

struct alignas(64) TensorMap {
    u64 words[16];
};

// ---------------------------------------------------------------- barriers

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barriers_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// At the same barrier of another block of the cluster.
__device__ __forceinline__ void arrive_at(u32 barrier, u32 block) {
    asm volatile(
        "{.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
        "r"(block)
        : "memory");
}

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Where nothing was written that others read: a release would wait for memory that is busy.
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

// In another block of the cluster, or in this one.
__device__ __forceinline__ u32 in_block(u32 at, u32 block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}
// Arrives with its bytes at the receiver's barrier: no fence is needed, nor a barrier of the cluster.
__device__ __forceinline__ void send(u32 to, u32 barrier, float a, float b, float c, float d) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(to),
                 "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

// Among so many threads of a block; barrier 0 is __syncthreads'.
__device__ __forceinline__ void sync_among(int threads, int which) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}

// What ordinary stores wrote to shared memory, for the copy engine and for products.
__device__ __forceinline__ void stores_visible_to_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---------------------------------------------------------------- copy engine

__device__ __forceinline__ void load_tile(u32 to, const TensorMap& map, int column, int row, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                     "r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

// A multiple of 16 bytes, as they are.
__device__ __forceinline__ void load_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// With a policy of the L2 for what is read once.
__device__ __forceinline__ void load_tile_once(u32 to, const TensorMap& map, int column, int row, u32 barrier) {
    const u64 leaving_first = 0x12F0000000000000;
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], "
        "[%4], %5;" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(leaving_first)
        : "memory");
}

// Into the same place of every block of the cluster whose bit is set, each of whose barriers is told.
__device__ __forceinline__ void load_tile_for(unsigned short blocks, u32 to, const TensorMap& map, int column, int row,
                                              u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
        "%3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
        : "memory");
}

__device__ __forceinline__ void store_tile(const TensorMap& map, int column, int row, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column),
                 "r"(row), "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but so many of this thread's stores have read their tiles.
template <int LEFT>
__device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---------------------------------------------------------------- registers and products

template <int COUNT>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Of a tile whose rows run along k: 8 rows of 128 bytes are 1024 bytes apart from the next 8. 16 of k further are 32
// bytes: 2 more.
__device__ __forceinline__ u64 described(u32 tile) {
    return (u64)((tile & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_queued() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// d += A B^T of A [64, 16] and B [N, 16] in shared memory, d in fp32: of lane l in warp w, d[4 i + 2 h + j] is in row
// 16 w + 8 h + l / 4 and column 8 i + 2 (l % 4) + j. Not `add`: d = A B^T.
template <int N>
struct Product;

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

#define PRODUCT(N, LIST, A, B, C, ...)                                                                               \
    template <>                                                                                                      \
    struct Product<N> {                                                                                              \
        static __device__ __forceinline__ void add(float (&d)[N / 2], u64 a, u64 b, int add) {                       \
            asm volatile("{.reg .pred add;\nsetp.ne.b32 add, " C ", 0;\n"                                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" LIST "}, " A ", " B      \
                         ", add, 1, 1, 0, 0;}"                                                                       \
                         : __VA_ARGS__                                                                               \
                         : "l"(a), "l"(b), "r"(add));                                                                \
        }                                                                                                            \
    };
PRODUCT(16, L8, "%8", "%9", "%10", F8(d, 0))
PRODUCT(32, L16, "%16", "%17", "%18", F16(d, 0))
PRODUCT(48, L24, "%24", "%25", "%26", F16(d, 0), F8(d, 16))
PRODUCT(64, L32, "%32", "%33", "%34", F32(d, 0))
PRODUCT(80, L40, "%40", "%41", "%42", F32(d, 0), F8(d, 32))
PRODUCT(96, L48, "%48", "%49", "%50", F32(d, 0), F16(d, 32))
PRODUCT(112, L56, "%56", "%57", "%58", F32(d, 0), F16(d, 32), F8(d, 48))
PRODUCT(128, L64, "%64", "%65", "%66", F64(d, 0))
PRODUCT(144, L72, "%72", "%73", "%74", F64(d, 0), F8(d, 64))
PRODUCT(160, L80, "%80", "%81", "%82", F64(d, 0), F16(d, 64))
PRODUCT(176, L88, "%88", "%89", "%90", F64(d, 0), F16(d, 64), F8(d, 80))
PRODUCT(192, L96, "%96", "%97", "%98", F64(d, 0), F32(d, 64))
PRODUCT(208, L104, "%104", "%105", "%106", F64(d, 0), F32(d, 64), F8(d, 96))
PRODUCT(224, L112, "%112", "%113", "%114", F64(d, 0), F32(d, 64), F16(d, 96))
PRODUCT(240, L120, "%120", "%121", "%122", F64(d, 0), F32(d, 64), F16(d, 96), F8(d, 112))
PRODUCT(256, L128, "%128", "%129", "%130", F64(d, 0), F64(d, 64))
