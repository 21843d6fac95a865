// C = A B^T by mma.sync. A block multiplies 128 rows of A by 128 rows of B, its eight warps 64 x 32 of C each.

#include "mma.cuh"

const int TILE = 128;  // rows of A, and of B, a block
const int DEPTH = 32;  // of k, a stage: 64 bytes
const int STAGES = __CUDA_ARCH__ >= 800 ? 3 : 2;
const int THREADS = 256;
const int ROW_BYTES = DEPTH * 2;
const int TILE_BYTES = TILE * ROW_BYTES, STAGE_BYTES = 2 * TILE_BYTES;  // A, then B; 48 KiB in all: two blocks fit
const int REACH = THREADS / 4, LOADS = 2 * TILE / REACH;  // rows that all threads load at once, so many times
const int WARP_ROWS = 64, WARP_COLUMNS = 32;
const int GROUP = 8;  // tiles, one below the other, before the next columns

// Where 16 bytes of a tile lie: of 8 rows in turn, the same chunk lies in 8 different sets of banks.
__device__ __forceinline__ u32 place_of(int row, int chunk) {
    return row * ROW_BYTES + ((chunk ^ (row >> 1 & 3)) << 4);
}

// a [m, k], b [n, k] and c [m, n] in C order, k and n multiples of 8. A block for each tile of C.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tensor_matmul(const half_bits* __restrict__ a, const half_bits* __restrict__ b, half_bits* __restrict__ c, int m,
                  int n, int k) {
    __shared__ alignas(128) char room[STAGES * STAGE_BYTES];
    const u32 stages = shared_address(room);
    const int across = (n + TILE - 1) / TILE, steps = (k + DEPTH - 1) / DEPTH;
    const int group = blockIdx.x / (GROUP * across) * GROUP, high = min((m + TILE - 1) / TILE - group, GROUP);
    const int within = blockIdx.x - group * across;
    const int top = (group + within % high) * TILE, left = within / high * TILE;

    const int row = threadIdx.x / 4, chunk = threadIdx.x % 4;
    const half_bits* const from_a = a + (long long)(top + row) * k + chunk * 8;
    const half_bits* const from_b = b + (long long)(left + row) * k + chunk * 8;
    Transfer transfers[LOADS];
    const auto begin = [&](int step) {  // beyond k it is zeros that nobody reads
        const int at = step * DEPTH;
        const u32 to = stages + step % STAGES * STAGE_BYTES;
        const bool within_k = at + chunk * 8 < k;
#pragma unroll
        for (int i = 0; i < LOADS / 2; ++i) {
            const int r = row + i * REACH;
            const u32 place = to + place_of(r, chunk);
            const long long further = (long long)i * REACH * k + at;
            transfers[2 * i].begin(place, from_a + further, within_k && top + r < m);
            transfers[2 * i + 1].begin(place + TILE_BYTES, from_b + further, within_k && left + r < n);
        }
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
            u32 rows_a[4], rows_b[WARP_COLUMNS / 16][4];
#pragma unroll
            for (int j = 0; j < WARP_COLUMNS / 16; ++j)
                load_matrices(rows_b[j], at + TILE_BYTES + place_of(columns + 16 * j + lane % 16, of_lane));
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; ++i) {
                load_matrices(rows_a, at + place_of(rows + 16 * i + lane % 16, of_lane));
#pragma unroll
                for (int j = 0; j < WARP_COLUMNS / 8; ++j)
                    multiply_add(sums[i][j], rows_a, rows_b[j / 2][j % 2], rows_b[j / 2][j % 2 + 2]);
            }
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
                const int of_a = top + rows + 16 * i + 8 * half + lane / 4;
                const int of_b = left + columns + 8 * j + lane % 4 * 2;
                const u32 pair = packed(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
                if (of_a < m && of_b < n) *(u32*)(c + (long long)of_a * n + of_b) = pair;
            }
}
