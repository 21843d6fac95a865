// Counts the 32-bit words in which two buffers differ: bits, so that NaN equals itself and -0 does not equal 0.

extern "C" __global__ void count_differences(const unsigned int* a, const unsigned int* b, unsigned long long words,
                                             unsigned long long* differences) {
    unsigned long long mine = 0;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
        mine += a[i] != b[i];
    }
    if (mine) {
        atomicAdd(differences, mine);
    }
}

// Counts the numbers of c that are not a + scale b, in plain steps of one number.
extern "C" __global__ void count_wrong_triads(const float* a, const float* b, const float* c, float scale,
                                              unsigned long long count, unsigned long long* wrong) {
    unsigned long long mine = 0;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        mine += c[i] != fmaf(scale, b[i], a[i]);
    }
    if (mine) {
        atomicAdd(wrong, mine);
    }
}
