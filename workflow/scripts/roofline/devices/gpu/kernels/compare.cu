// Comparisons on the device. The threads take the numbers one by one in a grid-stride loop.

// Adds the number of 32-bit words in which a and b differ to *differences. Bits are compared: NaN equals itself, and -0
// does not equal 0.
extern "C" __global__ void count_differences(const unsigned int* a, const unsigned int* b, unsigned long long words,
                                             unsigned long long* differences) {
    unsigned long long thread_count = 0;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        thread_count += a[i] != b[i];
    if (thread_count) atomicAdd(differences, thread_count);
}

// Adds the number of i < count for which c[i] is not a[i] + scale b[i], rounded once, to *wrong.
extern "C" __global__ void count_wrong_triads(const float* a, const float* b, const float* c, float scale,
                                              unsigned long long count, unsigned long long* wrong) {
    unsigned long long thread_count = 0;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        thread_count += c[i] != fmaf(scale, b[i], a[i]);
    if (thread_count) atomicAdd(wrong, thread_count);
}
