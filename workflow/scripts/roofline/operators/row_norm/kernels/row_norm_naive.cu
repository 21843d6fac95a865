// Normalise each row as in a first draft: a block per row, a pass for the mean, one for the deviation, one to write.
// Rows are shifted by their first number, as in row_norm.cu.

#define THREADS 256

// The sum over the block, for all of its threads.
__device__ float sum_of_block(float value) {
    __shared__ float sums[THREADS];
    __syncthreads();
    sums[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

// x and y [rows, columns]. A block for each row; its threads take the numbers in turn.
extern "C" __global__ void row_norm_naive(const float* x, float* y, int rows, int columns) {
    x += (long long)blockIdx.x * columns;
    y += (long long)blockIdx.x * columns;
    const float first = x[0];
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < columns; i += THREADS) sum += x[i] - first;
    const float mean = sum_of_block(sum) / columns;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        const float difference = x[i] - first - mean;
        squares += difference * difference;
    }
    const float deviation = sqrtf(sum_of_block(squares) / columns);
    for (int i = threadIdx.x; i < columns; i += THREADS)
        y[i] = deviation == 0 ? 0.0f : (x[i] - first - mean) / deviation;
}
