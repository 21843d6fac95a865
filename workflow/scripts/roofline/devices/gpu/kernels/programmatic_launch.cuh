// Programmatic dependent launch, from compute capability 9.0 on: where a launch asks for it, the kernel after this one
// may begin once every block has let it, and itself waits until this one is done and what it wrote can be read.
// Elsewhere it begins then, and both do nothing.

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
