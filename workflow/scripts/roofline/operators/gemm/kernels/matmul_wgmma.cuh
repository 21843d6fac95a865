// C = A B^T on Hopper's tensor cores. Two blocks of a cluster share the rows of B that both multiply with rows of A of
// their own; in each, one thread keeps the copy engine busy and two warpgroups multiply. Blocks stay for many tiles.

#include "hopper.cuh"

const int ROWS = 128, COLUMNS = 256;  // of C, a block
const int DEPTH = 64;                 // of k, a stage: 128 bytes
const int BLOCKS = 2;                 // of a cluster, one below the other
const int STAGES = 4;
const int THREADS = 384;
const int A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
const int PART = 64;                        // columns of C that a warpgroup writes at once
const int PART_BYTES = 64 * PART * 2;       // two of them a warpgroup
const int GROUP = 8;                        // tiles of a cluster, one below the other, before the next columns

struct Tile {
    int row, column;  // the first ones of a cluster's
};

__device__ __forceinline__ Tile tile_of(int index, int down, int across) {
    const int group = index / (GROUP * across), first = group * GROUP, high = min(down - first, GROUP);
    const int within = index - first * across;
    return {(first + within % high) * ROWS * BLOCKS, within / high * COLUMNS};
}

// a [m, k], b [n, k] and c [m, n] as tensor maps; boxes of 128 x 64, 128 x 64 and 64 x 64.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    tensor_matmul(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                  const __grid_constant__ TensorMap c, int m, int n, int k) {
    extern __shared__ char room[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    const u32 stages = (shared_address(room) + 1023) / 1024 * 1024, parts = stages + STAGES * STAGE_BYTES;
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES;
    const int rank = (int)rank_in_cluster(), group = threadIdx.x / 128;
    const int down = (m + ROWS * BLOCKS - 1) / (ROWS * BLOCKS), across = (n + COLUMNS - 1) / COLUMNS;
    const int steps = (k + DEPTH - 1) / DEPTH;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 2 * BLOCKS);  // a warpgroup's arrival from each block
        }
        barriers_visible();
    }
    cluster_sync();
    int stage = 0, round = 0;
    if (group == 0) {
        fewer_registers<40>();
        if (threadIdx.x == 0) {
            for (int index = blockIdx.x / BLOCKS; index < down * across; index += gridDim.x / BLOCKS) {
                const Tile tile = tile_of(index, down, across);
                for (int step = 0; step < steps; ++step) {
                    wait(empty + 8 * stage, round ^ 1);
                    const u32 to = stages + stage * STAGE_BYTES, barrier = full + 8 * stage;
                    expect_bytes(barrier, STAGE_BYTES);
                    load_tile(to, a, step * DEPTH, tile.row + rank * ROWS, barrier);
                    load_tile_for(3, to + A_BYTES + rank * (B_BYTES / 2), b, step * DEPTH,
                                  tile.column + rank * (COLUMNS / 2), barrier);
                    if (++stage == STAGES) stage = 0, round ^= 1;
                }
            }
        }
    } else {
        more_registers<232>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, mine = group - 1;
        const u32 part = parts + mine * 2 * PART_BYTES;
        float sums[COLUMNS / 2];
        for (int index = blockIdx.x / BLOCKS; index < down * across; index += gridDim.x / BLOCKS) {
            const Tile tile = tile_of(index, down, across);
            int before = 0;
            for (int step = 0; step < steps; ++step) {
                wait(full + 8 * stage, round);
                const u32 at = stages + stage * STAGE_BYTES;
                const u64 left = described(at + mine * 64 * 128), right = described(at + A_BYTES);
                products_begin();
#pragma unroll
                for (int part_of_k = 0; part_of_k < DEPTH / 16; ++part_of_k)
                    Product<COLUMNS>::add(sums, left + 2 * part_of_k, right + 2 * part_of_k, step + part_of_k);
                products_queued();
                products_wait<1>();
                if (step > 0 && threadIdx.x % 128 < BLOCKS) arrive_at(empty + 8 * before, threadIdx.x % 128);
                before = stage;
                if (++stage == STAGES) stage = 0, round ^= 1;
            }
            products_wait<0>();
            if (threadIdx.x % 128 < BLOCKS) arrive_at(empty + 8 * before, threadIdx.x % 128);
            const int row = tile.row + rank * ROWS + mine * 64;
#pragma unroll
            for (int i = 0; i < COLUMNS / PART; ++i) {
                const u32 to = part + i % 2 * PART_BYTES;
                if (threadIdx.x % 128 == 0) stores_read<1>();
                sync_among(128, 1 + mine);
                const int r = warp * 16 + lane % 16;
#pragma unroll
                for (int j = 0; j < PART / 16; ++j) {
                    const int s = i * (PART / 2) + 8 * j, chunk = 2 * j + lane / 16;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                                     to + r * 128 + ((chunk ^ (r & 7)) << 4)),
                                 "r"(packed(sums[s], sums[s + 1])), "r"(packed(sums[s + 2], sums[s + 3])),
                                 "r"(packed(sums[s + 4], sums[s + 5])), "r"(packed(sums[s + 6], sums[s + 7]))
                                 : "memory");
                }
                stores_visible_to_async();
                sync_among(128, 1 + mine);
                if (threadIdx.x % 128 == 0) store_tile(c, tile.column + i * PART, row, to);
            }
        }
        if (threadIdx.x % 128 == 0) stores_done();
    }
    __syncwarp();
    cluster_sync();  // the other block arrives here, and writes here, until then
}
