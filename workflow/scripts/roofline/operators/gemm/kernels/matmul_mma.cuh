// C = A B^T by mma.sync. A block multiplies 128 rows of A by 128 rows of B, its eight warps 64 x 32 of C each.
//
// The pipeline of a block: STAGES stages of shared memory, each with DEPTH of k of the block's rows of A and of B. All
// threads do the same in step s:
//
//   wait until the copies that this thread made for step s have arrived
//   __syncthreads: the stage of step s is filled, and that of step s - 1 is free, since all warps have multiplied it
//   begin the copies for step s + STAGES - 1, into the stage of step s - 1
//   multiply the stage of step s

#include "mma.cuh"

const int TILE = 128;  // rows of A, and of B, of a block
const int DEPTH = 32;  // of k, of a stage: 64 bytes of a row
const int STAGES = __CUDA_ARCH__ >= 800 ? 3 : 2;
const int THREADS = 256;
const int ROW_BYTES = DEPTH * 2;
const int TILE_BYTES = TILE * ROW_BYTES, STAGE_BYTES = 2 * TILE_BYTES;  // A, then B; 48 KiB in all: two blocks fit
const int ROWS_PER_LOAD = THREADS / 4, LOADS = 2 * TILE / ROWS_PER_LOAD;  // rows that all threads load together
const int WARP_ROWS = 64, WARP_COLUMNS = 32;
const int TILES_PER_GROUP = 8;  // of C, one below the other, before the next columns: they share rows of B in the L2

// Where 16 bytes of a tile lie: the same chunk of 8 rows in turn lies in 8 different sets of banks.
__device__ __forceinline__ u32 swizzled_offset_of_64_bytes(int row, int chunk) {
    return row * ROW_BYTES + ((chunk ^ (row >> 1 & 3)) << 4);
}

// a [m, k], b [n, k] and c [m, n] in C order, k and n multiples of 8. A block for each tile of C.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tensor_matmul(const half_bits* __restrict__ a, const half_bits* __restrict__ b, half_bits* __restrict__ c, int m,
                  int n, int k) {
    __shared__ alignas(128) char shared_stages[STAGES * STAGE_BYTES];
    const u32 stages = shared_address(shared_stages);
    const int tiles_across = (n + TILE - 1) / TILE, steps = (k + DEPTH - 1) / DEPTH;
    const int group_top = blockIdx.x / (TILES_PER_GROUP * tiles_across) * TILES_PER_GROUP;
    const int tiles_in_group = min((m + TILE - 1) / TILE - group_top, TILES_PER_GROUP);
    const int index_in_group = blockIdx.x - group_top * tiles_across;
    const int first_row = (group_top + index_in_group % tiles_in_group) * TILE;
    const int first_column = index_in_group / tiles_in_group * TILE;

    const int load_row = threadIdx.x / 4, load_chunk = threadIdx.x % 4;
    const half_bits* const a_source = a + (long long)(first_row + load_row) * k + load_chunk * 8;
    const half_bits* const b_source = b + (long long)(first_column + load_row) * k + load_chunk * 8;
    AsyncCopy copies[LOADS];
    const auto begin_copies = [&](int step) {  // beyond k they bring zeros that nobody reads
        const int first_k = step * DEPTH;
        const u32 stage = stages + step % STAGES * STAGE_BYTES;
        const bool within_k = first_k + load_chunk * 8 < k;
#pragma unroll
        for (int i = 0; i < LOADS / 2; ++i) {
            const int row = load_row + i * ROWS_PER_LOAD;
            const u32 destination = stage + swizzled_offset_of_64_bytes(row, load_chunk);
            const long long offset = (long long)i * ROWS_PER_LOAD * k + first_k;
            copies[2 * i].begin(destination, a_source + offset, within_k && first_row + row < m);
            copies[2 * i + 1].begin(destination + TILE_BYTES, b_source + offset, within_k && first_column + row < n);
        }
        commit_copies();
    };
    const auto end_copies = [&] {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) copies[i].end();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        begin_copies(step);
        end_copies();
    }

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / 4 * WARP_ROWS, warp_column = warp % 4 * WARP_COLUMNS;
    float sums[WARP_ROWS / 16][WARP_COLUMNS / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // the stage is filled, and all warps are done with the one before it
        begin_copies(step + STAGES - 1);
        const u32 stage = stages + step % STAGES * STAGE_BYTES;
#pragma unroll
        for (int slice = 0; slice < DEPTH / 16; ++slice) {
            const int lane_chunk = 2 * slice + lane / 16;
            u32 a_words[4], b_words[WARP_COLUMNS / 16][4];
#pragma unroll
            for (int j = 0; j < WARP_COLUMNS / 16; ++j) {
                const int row = warp_column + 16 * j + lane % 16;
                load_matrices(b_words[j], stage + TILE_BYTES + swizzled_offset_of_64_bytes(row, lane_chunk));
            }
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; ++i) {
                load_matrices(a_words, stage + swizzled_offset_of_64_bytes(warp_row + 16 * i + lane % 16, lane_chunk));
#pragma unroll
                for (int j = 0; j < WARP_COLUMNS / 8; ++j)
                    multiply_add(sums[i][j], a_words, b_words[j / 2][j % 2], b_words[j / 2][j % 2 + 2]);
            }
        }
        end_copies();
    }
    wait_for_copies<0>();

#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i)
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS / 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + warp_row + 16 * i + 8 * half + lane / 4;
                const int column = first_column + warp_column + 8 * j + lane % 4 * 2;
                const u32 pair = pack(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
                if (row < m && column < n) *(u32*)(c + (long long)row * n + column) = pair;
            }
}
