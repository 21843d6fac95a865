// Kernels that do nothing, with two arguments and with twelve: what a launch costs the host.

extern "C" __global__ void of_few(const float* a, int n) {
}

extern "C" __global__ void of_many(const float* a, const float* b, const float* c, const float* d, const float* e,
                                   const float* f, int i, int j, int k, int l, int m, int n) {
}
