// How long one 8-byte load takes, by loads of which each waits for the address that the one before it brought.

extern "C" __global__ void chase(const unsigned long long* first, unsigned int steps, unsigned long long* last) {
    const volatile unsigned long long* at = first;
    for (unsigned int step = 0; step < steps; ++step) {
        at = (const volatile unsigned long long*)*at;
    }
    *last = (unsigned long long)at;
}
