// Decode attention whose keys and values are FP8 (e4m3): they become fp16 on their way to a tensor core. Each K/V head
// of a sequence has a scale for its keys and one for its values. Query and result are of DTYPE. For compute capability
// 8.9 and up; the other macros are those of decode_attention.cu, with BY_MMA and STAGES above 0.

#ifndef DTYPE
#define DTYPE Fp16
#define HEAD_SIZE 64
#define QUERIES 8
#define WARPS 4
#define BLOCKS 3
#define STAGES 2
#define BY_MMA (__CUDA_ARCH__ >= 890)
#endif

#include "attention_block.cuh"

#if BY_MMA
typedef ByMma<DTYPE, Fp8Cache, HEAD_SIZE> Method;
#endif

// attention_block.cuh says what the arguments are; scales [batch, kv_heads].
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    decode_attention_fp8(const DTYPE::stored* query, const unsigned char* keys, const unsigned char* values,
                         DTYPE::stored* out, float* workspace, unsigned int* arrived, int seq_len, int group,
                         int splits, const float* key_scales, const float* value_scales) {
#if BY_MMA
    attend_block<Method>(query, keys, values, out, workspace, arrived, seq_len, group, splits, [&](long long kv_head) {
        return make_float2(key_scales[kv_head], value_scales[kv_head]);
    });
#endif
}
