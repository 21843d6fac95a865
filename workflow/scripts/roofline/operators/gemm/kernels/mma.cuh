// Tensor cores by mma.sync, fed through shared memory: cp.async from compute capability 8.0 on, before it registers.

#pragma once

#include "half_types.cuh"

// 16 bytes on their way from device memory to shared memory, past the L1; zeros where nothing is there.
struct Transfer {
#if __CUDA_ARCH__ >= 800
    __device__ __forceinline__ void begin(u32 to, const void* at, bool there) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(at), "r"(there ? 16 : 0)
                     : "memory");
    }
    __device__ __forceinline__ void end() const {}
#else
    u32 to;
    uint4 held;
    __device__ __forceinline__ void begin(u32 place, const void* at, bool there) {
        to = place;
        held = there ? load_global(at) : make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void end() const { store_shared(to, held); }
#endif
};

// Of this thread's transfers those that began since the last call are one group.
__device__ __forceinline__ void transfers_queued() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until all but the last so many groups have come.
template <int LEFT>
__device__ __forceinline__ void transfers_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// c += A B of A [16, 16] and B [16, 8]. With g = lane / 4 and t = lane % 4 a lane has of c rows g, g, g + 8, g + 8 and
// columns 2 t, 2 t + 1 in turn.
__device__ __forceinline__ void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%7, %8}, {%9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0), "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// An 8 x 8 matrix of 16-bit numbers, a pair a lane, transposed among the lanes.
__device__ __forceinline__ u32 transposed(u32 pair) {
    u32 found;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(found) : "r"(pair));
    return found;
}
