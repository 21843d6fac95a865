// The sum of 32-bit words over a grid, which wraps: that it is right shows that every word was read.

#pragma once

// Adds the sums of a warp's threads to *word_sum, by one atomic addition per warp. All lanes call it.
__device__ __forceinline__ void add_to_word_sum(unsigned int thread_sum, unsigned int* word_sum) {
    for (int distance = 16; distance > 0; distance /= 2)
        thread_sum += __shfl_down_sync(0xffffffffu, thread_sum, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(word_sum, thread_sum);
}
