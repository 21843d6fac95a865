// Reads numbers from memory, makes MULTIPLIES multiply-adds on each in registers, and adds the results up: what a byte
// and a FLOP cost in energy (Choi et al., A roofline model of energy, IPDPS 2013). DOUBLE is 1 for fp64, 0 for fp32.

#if DOUBLE
typedef double Number;
typedef double2 Vector;
#define NUMBERS_PER_VECTOR 2
#else
typedef float Number;
typedef float4 Vector;
#define NUMBERS_PER_VECTOR 4
#endif

// sums[thread] becomes the sum of the thread's numbers after MULTIPLIES steps x = x factor + addend. The threads go
// over the `count` vectors of 16 bytes in a grid-stride loop, `passes` times: one short pass would leave the card idle.
// `factor` and `addend` are arguments, so that the compiler computes nothing ahead.
extern "C" __global__ void read_and_multiply(const Vector* numbers, unsigned long long count, unsigned int passes,
                                             Number factor, Number addend, Number* sums) {
    const unsigned long long thread = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    const unsigned long long threads = gridDim.x * (unsigned long long)blockDim.x;
    Number sum = 0;
    for (unsigned int pass = 0; pass < passes; ++pass) {
        for (unsigned long long index = thread; index < count; index += threads) {
            const Vector v = __ldcs(numbers + index);
#if DOUBLE
            Number x[NUMBERS_PER_VECTOR] = {v.x, v.y};
#else
            Number x[NUMBERS_PER_VECTOR] = {v.x, v.y, v.z, v.w};
#endif
#pragma unroll 16
            for (int step = 0; step < MULTIPLIES; ++step)
#pragma unroll
                for (int i = 0; i < NUMBERS_PER_VECTOR; ++i) x[i] = x[i] * factor + addend;
#pragma unroll
            for (int i = 0; i < NUMBERS_PER_VECTOR; ++i) sum += x[i];
        }
    }
    sums[thread] = sum;
}
