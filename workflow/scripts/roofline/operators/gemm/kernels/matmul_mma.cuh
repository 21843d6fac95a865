// C = A B^T by mma.sync. A block multiplies 128 rows of A by 128 rows of B, its eight warps 64 x 32 of C each.

#include "mma.cuh"

const int TILE = 128;   // rows of A, and of B, a block
const int DEPTH = 32;   // of k, a stage: 64 bytes
const int STAGES = __CUDA_ARCH__ >= 800 ? 3 : 2;
const int THREADS = 256;
const int TILE_BYTES = TILE * DEPTH * 2, STAGE_BYTES = 2 * TILE_BYTES;  // A, then B; 48 KiB: no opt-in, two blocks fit
const int LOADS = STAGE_BYTES / 16 / THREADS;  // of 16 bytes, that a thread makes of a stage
const int WARP_ROWS = 64, WARP_COLUMNS = 32;
const int GROUP = 8;  // tiles, one below the other, before the next columns

// Where 16 bytes of a tile lie: of 8 rows in turn, the same chunk lies in 8 different sets of banks.
__device__ __forceinline__ u32 place_of(int row, int chunk) { return row * (DEPTH * 2) + ((chunk ^ (row >> 1 & 3)) << 4); }

// a [m, k], b [n, k] and c [m, n] in C order, k and n multiples of 8. A block for each tile of C.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tensor_matmul(const half_bits* __restrict__ a, const half_bits* __restrict__ b, half_bits* __restrict__ c, int m,
                  int n, int k) {
    __shared__ alignas(128) char room[STAGES * STAGE_BYTES];
    const u32 stages = shared_address(room);
    const int down = (m + TILE - 1) / TILE, across = (n + TILE - 1) / TILE, steps = (k + DEPTH - 1) / DEPTH;
    const int group = blockIdx.x / (GROUP * across) * GROUP, high = min(down - group, GROUP);
    const int within = blockIdx.x - group * across;
    const int top = (group + within % high) * TILE, left = within / high * TILE;

    const int chunk = threadIdx.x % 4;
    Transfer transfers[LOADS];
    const half_bits* from[LOADS];
    bool there[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int row = threadIdx.x / 4 + i % 2 * (TILE / 2) + (i < 2 ? top : left);
        there[i] = row < (i < 2 ? m : n);
        from[i] = (i < 2 ? a : b) + (long long)row * k + chunk * 8;
    }
    const auto begin = [&](int step) {  // beyond k it is zeros that nobody reads
        const int at = step * DEPTH;
        const u32 to = stages + step % STAGES * STAGE_BYTES;
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            transfers[i].begin(to + i / 2 * TILE_BYTES + place_of(threadIdx.x / 4 + i % 2 * (TILE / 2), chunk),
                               from[i] + at, there[i] && at + chunk * 8 < k);
        transfers_queued();
    };
    const auto end = [&] {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) transfers[i].end();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        begin(step);
        end();
    }

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = warp / 4 * WARP_ROWS, columns = warp % 4 * WARP_COLUMNS;
    float sums[WARP_ROWS / 16][WARP_COLUMNS / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
        transfers_wait<STAGES - 2>();
        __syncthreads();  // the stage is whole, and all are done with the one before it
        begin(step + STAGES - 1);
        const u32 at = stages + step % STAGES * STAGE_BYTES;
#pragma unroll
        for (int slice = 0; slice < DEPTH / 16; ++slice) {
            const int of_lane = 2 * slice + lane / 16;
            u32 of_a[WARP_ROWS / 16][4], of_b[WARP_COLUMNS / 16][4];
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; ++i)
                load_matrices(of_a[i], at + place_of(rows + 16 * i + lane % 16, of_lane));
#pragma unroll
            for (int j = 0; j < WARP_COLUMNS / 16; ++j)
                load_matrices(of_b[j], at + TILE_BYTES + place_of(columns + 16 * j + lane % 16, of_lane));
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; ++i)
#pragma unroll
                for (int j = 0; j < WARP_COLUMNS / 8; ++j)
                    multiply_add(sums[i][j], of_a[i], of_b[j / 2][j % 2], of_b[j / 2][j % 2 + 2]);
        }
        end();
    }
    transfers_wait<0>();

#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i)
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS / 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = top + rows + 16 * i + 8 * half + lane / 4;
                const int column = left + columns + 8 * j + lane % 4 * 2;
                if (row < m && column < n)
                    *(u32*)(c + (long long)row * n + column) = packed(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
            }
}
