// C = A B^T of matrices whose rows run along k, summed in fp32: on Hopper by the copy engine and wgmma, elsewhere by
// mma.sync. Compiled for one dtype at a time: fp16, or with BF16 bf16 (compute capability 8.0 and up).

#ifndef BF16
#define BF16 0
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "matmul_wgmma.cuh"
#else
#include "matmul_mma.cuh"
#endif
