// Tensor cores by mma.sync, and copies to the shared memory that feeds them: by cp.async from compute capability 8.0
// on, through registers before.

#pragma once

#include "half_types.cuh"

// A copy of 16 bytes from device memory to shared memory, past the L1: zeros where the source is not valid. Before
// compute capability 8.0 begin() loads to registers and end() stores; from it on begin() does all.
struct AsyncCopy {
#if __CUDA_ARCH__ >= 800
    __device__ __forceinline__ void begin(u32 destination, const void* source, bool is_valid) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
                     "r"(is_valid ? 16 : 0)
                     : "memory");
    }
    __device__ __forceinline__ void end() const {}
#else
    u32 stored_to;
    uint4 registers;
    __device__ __forceinline__ void begin(u32 destination, const void* source, bool is_valid) {
        stored_to = destination;
        registers = is_valid ? load_past_l1(source) : make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void end() const { store_shared(stored_to, registers); }
#endif
};

// Makes one group of this thread's copies that began since the last call.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all groups of this thread but the newest PENDING have arrived.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// C += A B of A [16, 16] and B [16, 8]. With g = lane / 4 and t = lane % 4, c[0] to c[3] are the elements (g, 2 t),
// (g, 2 t + 1), (g + 8, 2 t) and (g + 8, 2 t + 1) of C.
__device__ __forceinline__ void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32." PTX_TYPE "." PTX_TYPE
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%7, %8}, {%9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0), "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// Transposes an 8 x 8 matrix of 16-bit numbers among the lanes, each of which has a pair of it.
__device__ __forceinline__ u32 transpose(u32 pair) {
    u32 transposed;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
    return transposed;
}
