// The latency of an 8-byte load: each load takes its address from the one before it.

template <typename Load>
__device__ void follow_chain(Load load, unsigned long long address, unsigned int steps,
                             unsigned long long* last_address) {
    for (unsigned int step = 0; step < steps; ++step) address = load(address);
    *last_address = address;
}

// One thread makes `steps` loads from `first_address` on, each from the address that the load before it returned, and
// writes what the last one returned. The addresses lie in `chain`, which the kernel itself does not use.
extern "C" __global__ void chase(const unsigned long long* chain, unsigned long long first_address, unsigned int steps,
                                 unsigned long long* last_address) {
    follow_chain([](unsigned long long address) { return *(const volatile unsigned long long*)address; },
                 first_address, steps, last_address);
}

// The same, by loads that L1 may serve.
extern "C" __global__ void chase_l1(const unsigned long long* chain, unsigned long long first_address,
                                    unsigned int steps, unsigned long long* last_address) {
    const auto load = [](unsigned long long address) {
        unsigned long long next;
        asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(address));
        return next;
    };
    follow_chain(load, first_address, steps, last_address);
}
