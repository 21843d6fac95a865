// Programmatic dependent launch, from compute capability 9.0 on. Where a launch asks for it, the next kernel may begin
// as soon as every block of this one has called let_next_begin; there, wait_for_kernel_before returns when this kernel
// has ended and what it wrote can be read. Elsewhere kernels begin one after the other, and both functions do nothing.

#pragma once

__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
