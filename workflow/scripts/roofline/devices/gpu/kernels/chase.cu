// How long one 8-byte load takes, by loads of which each waits for the address that the one before it brought.

template <typename Load>
__device__ void follow(Load load, unsigned long long at, unsigned int steps, unsigned long long* last) {
    for (unsigned int step = 0; step < steps; ++step) {
        at = load(at);
    }
    *last = at;
}

// `chain` is where the addresses lie, `first` the one to begin with.
extern "C" __global__ void chase(const unsigned long long* chain, unsigned long long first, unsigned int steps,
                                 unsigned long long* last) {
    follow([](unsigned long long at) { return *(const volatile unsigned long long*)at; }, first, steps, last);
}

extern "C" __global__ void chase_l1(const unsigned long long* chain, unsigned long long first, unsigned int steps,
                                    unsigned long long* last) {
    const auto load = [](unsigned long long at) {
        unsigned long long next;
        asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(at));
        return next;
    };
    follow(load, first, steps, last);
}
