// Tiles on their way from device memory to the lanes that use them: LOADS x 16 bytes a lane, each lane its own.
//
// With STAGES, several tiles are under way in shared memory (cp.async, compute capability 8.0 and up); with STAGES 0,
// one is, in registers. A feed is two streams in turn, keys and values, so that `arrived` means the older of the two.

#pragma once

#if STAGES
#define AHEAD STAGES
#else
#define AHEAD 1
#endif

template <int LOADS>
struct Feed {
    static const int BYTES_A_WARP = STAGES * LOADS * 32 * 16;
#if STAGES
    unsigned int base;
    int stage;

    __device__ __forceinline__ explicit Feed(char* shared) : stage(0) {
        base = (unsigned int)__cvta_generic_to_shared(shared) + threadIdx.x / 32 * BYTES_A_WARP + threadIdx.x % 32 * 16;
    }
    __device__ __forceinline__ unsigned int place(int i, int of) const { return base + (of * LOADS + i) * 32 * 16; }
    // Into the tile `ahead` tiles after the one that is used now.
    __device__ __forceinline__ void fetch(int i, const void* at, int ahead) {
        const int of = stage + ahead;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(i, of < STAGES ? of : of - STAGES)), "l"(at)
                     : "memory");
    }
    __device__ __forceinline__ uint4 get(int i) const {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(place(i, stage)));
        return v;
    }
    __device__ __forceinline__ void next() { stage = stage + 1 < STAGES ? stage + 1 : 0; }
#else
    uint4 held[LOADS];

    __device__ __forceinline__ explicit Feed(char*) {}
    __device__ __forceinline__ void fetch(int i, const void* at, int) { held[i] = load_once(at); }
    __device__ __forceinline__ uint4 get(int i) const { return held[i]; }
    __device__ __forceinline__ void next() {}
#endif
};

__device__ __forceinline__ void fetched() {
#if STAGES
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until the oldest tile that is under way has come.
__device__ __forceinline__ void arrived_oldest() {
#if STAGES
    asm volatile("cp.async.wait_group %0;" ::"n"(2 * STAGES - 1) : "memory");
#endif
}

__device__ __forceinline__ void arrived_all() {
#if STAGES
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Where the launch allows the kernel to begin while the one before it ends (compute capability 9.0 and up): until that
// one is done and what it wrote can be read. Elsewhere it is done already.
__device__ __forceinline__ void after_the_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The kernel after this one may begin as soon as there is room for it.
__device__ __forceinline__ void let_the_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
