// C = A B^T on Hopper's tensor cores. The two blocks of a cluster multiply different rows of A by the same rows of B,
// of which each block loads half for both. Blocks stay for many tiles.
//
// The pipeline of a block: one thread of warpgroup 0 loads, warpgroups 1 and 2 multiply 64 rows of A each.
//
//   loading thread                            multiplying warpgroups
//   wait for freed[s]                         wait for filled[s]
//   arrive at filled[s], announce bytes       queue the products of stage s
//   load A, and half of B for both blocks     wait for the products of the stage before, then arrive at its freed
//   s = next stage                            barrier in both blocks; s = next stage
//
// filled[s] has one arrival, and the bytes of A and of both halves of B. freed[s] has an arrival of each multiplying
// warpgroup of both blocks, since both blocks load the B of either. After the last step of a tile each warpgroup stores
// its part of C through shared memory, while the loading thread goes on with the next tile.

#include "hopper.cuh"

const int ROWS = 128, COLUMNS = 256;  // of C, of a block
const int DEPTH = 64;                 // of k, of a stage: 128 bytes of a row
const int BLOCKS = 2;                 // of a cluster, one below the other
const int STAGES = 4;
const int THREADS = 384;
const int A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
const int STORED_COLUMNS = 64;                     // of C, that a warpgroup stores at once
const int STORED_BYTES = 64 * STORED_COLUMNS * 2;  // a warpgroup has two such buffers
const int TILES_PER_GROUP = 8;                     // of clusters, one below the other, before the next columns

struct Tile {
    int row, column;  // the first ones of a cluster's tile
};

__device__ __forceinline__ Tile tile_of(int index, int tiles_down, int tiles_across) {
    const int group_top = index / (TILES_PER_GROUP * tiles_across) * TILES_PER_GROUP;
    const int tiles_in_group = min(tiles_down - group_top, TILES_PER_GROUP);
    const int index_in_group = index - group_top * tiles_across;
    return {(group_top + index_in_group % tiles_in_group) * ROWS * BLOCKS, index_in_group / tiles_in_group * COLUMNS};
}

// a [m, k], b [n, k] and c [m, n] as tensor maps; boxes of 128 x 64, 128 x 64 and 64 x 64. The clusters take the tiles
// of 256 x 256 of C in turn.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    tensor_matmul(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                  const __grid_constant__ TensorMap c, int m, int n, int k) {
    extern __shared__ char dynamic_shared[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    const u32 stages = (shared_address(dynamic_shared) + 1023) / 1024 * 1024;
    const u32 store_buffers = stages + STAGES * STAGE_BYTES;
    const u32 filled_barriers = shared_address(barriers), freed_barriers = filled_barriers + 8 * STAGES;
    const int rank = (int)rank_in_cluster(), warpgroup = threadIdx.x / 128;
    const int tiles_down = (m + ROWS * BLOCKS - 1) / (ROWS * BLOCKS), tiles_across = (n + COLUMNS - 1) / COLUMNS;
    const int steps = (k + DEPTH - 1) / DEPTH;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(filled_barriers + 8 * i, 1);
            init_barrier(freed_barriers + 8 * i, 2 * BLOCKS);
        }
        publish_barriers();
    }
    cluster_sync();
    int stage = 0, parity = 0;
    if (warpgroup == 0) {  // loads
        lower_register_limit<40>();
        if (threadIdx.x == 0) {
            for (int index = blockIdx.x / BLOCKS; index < tiles_down * tiles_across; index += gridDim.x / BLOCKS) {
                const Tile tile = tile_of(index, tiles_down, tiles_across);
                for (int step = 0; step < steps; ++step) {
                    wait_for_phase(freed_barriers + 8 * stage, parity ^ 1);
                    const u32 stage_address = stages + stage * STAGE_BYTES, filled = filled_barriers + 8 * stage;
                    arrive_expecting_bytes(filled, STAGE_BYTES);
                    load_tile(stage_address, a, step * DEPTH, tile.row + rank * ROWS, filled);
                    load_tile_to_blocks(3, stage_address + A_BYTES + rank * (B_BYTES / 2), b, step * DEPTH,
                                        tile.column + rank * (COLUMNS / 2), filled);
                    if (++stage == STAGES) stage = 0, parity ^= 1;  // to_next_stage: as a call, other code
                }
            }
        }
    } else {  // multiply
        raise_register_limit<232>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, multiplier = warpgroup - 1;
        const u32 store_buffer = store_buffers + multiplier * 2 * STORED_BYTES;
        float sums[COLUMNS / 2];
        for (int index = blockIdx.x / BLOCKS; index < tiles_down * tiles_across; index += gridDim.x / BLOCKS) {
            const Tile tile = tile_of(index, tiles_down, tiles_across);
            int stage_in_use = 0;
            for (int step = 0; step < steps; ++step) {
                wait_for_phase(filled_barriers + 8 * stage, parity);
                const u32 stage_address = stages + stage * STAGE_BYTES;
                const u64 a_rows = matrix_descriptor(stage_address + multiplier * 64 * 128);
                const u64 b_rows = matrix_descriptor(stage_address + A_BYTES);
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < DEPTH / 16; ++i)
                    Wgmma<COLUMNS>::multiply_add(sums, a_rows + 2 * i, b_rows + 2 * i, step + i);
                wgmma_commit();
                wgmma_wait<1>();
                if (step > 0 && threadIdx.x % 128 < BLOCKS)
                    arrive_at_block(freed_barriers + 8 * stage_in_use, threadIdx.x % 128);
                stage_in_use = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            wgmma_wait<0>();
            if (threadIdx.x % 128 < BLOCKS) arrive_at_block(freed_barriers + 8 * stage_in_use, threadIdx.x % 128);
            const int row = tile.row + rank * ROWS + multiplier * 64;
#pragma unroll
            for (int i = 0; i < COLUMNS / STORED_COLUMNS; ++i) {
                const u32 buffer = store_buffer + i % 2 * STORED_BYTES;
                if (threadIdx.x % 128 == 0) wait_for_stores_to_read<1>();
                sync_named_barrier(128, 1 + multiplier);
                const int lane_row = warp * 16 + lane % 16;
#pragma unroll
                for (int j = 0; j < STORED_COLUMNS / 16; ++j) {
                    const int s = i * (STORED_COLUMNS / 2) + 8 * j, chunk = 2 * j + lane / 16;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                                     buffer + swizzled_offset(lane_row, chunk)),
                                 "r"(pack(sums[s], sums[s + 1])), "r"(pack(sums[s + 2], sums[s + 3])),
                                 "r"(pack(sums[s + 4], sums[s + 5])), "r"(pack(sums[s + 6], sums[s + 7]))
                                 : "memory");
                }
                publish_shared_stores();
                sync_named_barrier(128, 1 + multiplier);
                if (threadIdx.x % 128 == 0) store_tile(c, tile.column + i * STORED_COLUMNS, row, buffer);
            }
        }
        if (threadIdx.x % 128 == 0) wait_for_stores();
    }
    __syncwarp();
    cluster_sync();  // the other block arrives at barriers of this one, and loads to it, until then
}
