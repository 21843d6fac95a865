// Reads numbers from memory, makes MULTIPLIES multiply-adds on each in registers, and adds the results up: what a byte
// and a FLOP cost in energy (Choi et al., A roofline model of energy, IPDPS 2013).
//
// DOUBLE is 1 for fp64. A thread takes 16 bytes at a time, a grid apart. `factor` and `addend` are arguments, so that
// nothing is computed ahead. A launch goes over the numbers `passes` times, since short ones leave the card idle.

#if DOUBLE
typedef double Number;
typedef double2 Wide;
#define NUMBERS 2
#else
typedef float Number;
typedef float4 Wide;
#define NUMBERS 4
#endif

extern "C" __global__ void read_and_multiply(const Wide* words, unsigned long long count, unsigned int passes,
                                             Number factor, Number addend, Number* sums) {
    const unsigned long long thread = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    const unsigned long long threads = gridDim.x * (unsigned long long)blockDim.x;
    Number sum = 0;
    for (unsigned int pass = 0; pass < passes; ++pass) {
        for (unsigned long long place = thread; place < count; place += threads) {
            const Wide word = __ldcs(words + place);
#if DOUBLE
            Number x[NUMBERS] = {word.x, word.y};
#else
            Number x[NUMBERS] = {word.x, word.y, word.z, word.w};
#endif
#pragma unroll 16
            for (int step = 0; step < MULTIPLIES; ++step) {
#pragma unroll
                for (int i = 0; i < NUMBERS; ++i) {
                    x[i] = x[i] * factor + addend;
                }
            }
#pragma unroll
            for (int i = 0; i < NUMBERS; ++i) {
                sum += x[i];
            }
        }
    }
    sums[thread] = sum;
}
