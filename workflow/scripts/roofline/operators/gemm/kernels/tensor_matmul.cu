// C = A B^T of matrices whose rows run along k, summed in fp32: on Hopper by the copy engine and wgmma, elsewhere by
// mma.sync. Compiled for one dtype at a time: fp16, or with BF16 bf16.

#ifndef BF16
#define BF16 0
#endif

#include "matmul_wgmma.cuh"
