// y = (x / sqrt(mean(x^2) + eps) * g) W^T in one kernel, summed in fp32: on Hopper by the copy engine and wgmma,
// elsewhere by mma.sync.
//
// Compiled for one dtype, division of the work and number of rows at a time: BF16 or fp16, BATCH rows of x and COLUMNS
// outputs a block, SPLITS of k, STAGES under way, at least BLOCKS resident per multiprocessor. SHARED (Hopper): blocks
// share the squares of x, and all of them are resident at once.

#ifndef BF16
#define BF16 0
#define BATCH 8
#define COLUMNS 128
#define SPLITS 4
#define STAGES 3
#define BLOCKS 2
#define SHARED 0
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "fused_wgmma.cuh"
#else
#include "fused_mma.cuh"
#endif
