// Hopper: W streams through the tensor cores as their large operand, 64 of its rows at a time, and x is the small one.
// A block takes COLUMNS outputs and a share of k; the blocks of a cluster take the same outputs and add up their parts
// in a fixed order. Two threads keep the copy engine busy; two warpgroups multiply W by g in registers and then x by
// that; other warps sum the squares of x beside them. 1 / sqrt(mean(x^2) + eps) comes last, on the sums.

#include "../../gemm/kernels/hopper.cuh"

const int DEPTH = 64;  // of k, a stage: 128 bytes. W and x have STAGES each
const int W_BYTES = COLUMNS * DEPTH * 2, X_BYTES = BATCH * DEPTH * 2;
const int PARTS = COLUMNS == 64 ? 2 : 1;   // both warpgroups take the same 64 rows of W, each every other stage
static_assert(STAGES > PARTS, "a warpgroup asks for its next stage before it frees the one that it has");
const int SLICES = DEPTH / 16;             // of 16 of k, that a stage holds
const int UNITS = COLUMNS / 16 / SPLITS;   // of 16 outputs, that a block adds up and writes
const int SUMMERS = 64, FIRST = 64 + SUMMERS, THREADS = FIRST + 256;  // first thread that multiplies: two warps feed
// Rows of which a block sums the squares. Of many rows the first sets of outputs sum those of eight rows each, for all:
// reading every row would keep shared memory from the products.
const int SQUARED = SHARED ? 8 : BATCH, PIECES = (SQUARED * 8 + SUMMERS - 1) / SUMMERS;

// What the blocks of a cluster send one another: sums as the tensor cores leave them, and squares of rows of x. Where it
// is large it takes the place of the stages, and waits until all blocks are done with theirs.
// Relaxed arrivals are enough for that: a stage's reads are over when its products have been waited for.
const bool IN_STAGES = BATCH > 32;
struct Inbox {
    float4 sums[SPLITS * PARTS][UNITS][BATCH / 8][32];
    float squares[SPLITS][BATCH];
    float factors[BATCH];
};
const int OWN = PARTS * UNITS;  // warps of a block whose sums it adds up itself
const int INBOX_BYTES = (SPLITS - 1) * OWN * BATCH * 64 + (SHARED ? 0 : SPLITS * BATCH * 4);  // of sums and squares

__device__ __forceinline__ void store_relaxed(float* to, float value) {
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
__device__ __forceinline__ float load_relaxed(const float* from) {
    float value;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ u64 load_acquired(const u64* from) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}
// What stood there before.
__device__ __forceinline__ u64 add_released(u64* to, u64 value) {
    u64 before;
    asm volatile("atom.add.release.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
}

// In another block of the cluster, or in this one.
__device__ __forceinline__ u32 in_block(u32 at, u32 block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}
// Arrives with its bytes at the receiver's barrier: no fence is needed, nor a barrier of the cluster.
__device__ __forceinline__ void send(u32 to, u32 barrier, float a, float b, float c, float d) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(to),
                 "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}
__device__ __forceinline__ void send(u32 to, u32 barrier, float value) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %2, [%1];" ::"r"(to), "r"(barrier),
                 "f"(value)
                 : "memory");
}

// The slices of k that a block multiplies.
struct Slices {
    int first, count;
    __device__ __forceinline__ int at(int step) const { return (first + step) * DEPTH; }
};

struct Barriers {
    u32 w, x, w_used, x_used, g, inbox;  // of the first stage: it has come, it was used; g has come, the inbox is full
};

// W is read by this block alone, x by many.
struct W {
    static const int BYTES = W_BYTES;
    __device__ __forceinline__ static void load(u32 to, u32 barrier, const TensorMap& map, int column, int row) {
        load_tile_once(to, map, column, row, barrier);
    }
};
struct X {
    static const int BYTES = X_BYTES;
    __device__ __forceinline__ static void load(u32 to, u32 barrier, const TensorMap& map, int column, int row) {
        load_tile(to, map, column, row, barrier);
    }
};
template <class Of>
__device__ __forceinline__ void feed(u32 stages, u32 barriers, int stage, const TensorMap& map, int column, int row) {
    expect_bytes(barriers + 8 * stage, Of::BYTES);
    Of::load(stages + stage * Of::BYTES, barriers + 8 * stage, map, column, row);
}
template <class Of>
__device__ __forceinline__ void feed_first(u32 stages, u32 barriers, const TensorMap& map, Slices slices, int row) {
    for (int i = 0; i < min(slices.count, STAGES); ++i) feed<Of>(stages, barriers, i, map, slices.at(i), row);
}
template <class Of>
__device__ __forceinline__ void feed_on(u32 stages, u32 barriers, u32 used, const TensorMap& map, Slices slices, int row) {
    int stage = 0, round = 0;
    for (int step = STAGES; step < slices.count; ++step) {
        wait(used + 8 * stage, round);
        feed<Of>(stages, barriers, stage, map, slices.at(step), row);
        if (++stage == STAGES) stage = 0, round ^= 1;
    }
}

// Of SQUARED rows of x from `first` on.
__device__ __forceinline__ void sum_squares(float (&squares)[PIECES], u32 stages, Barriers of, int steps, int first) {
    const int t = threadIdx.x - 64, chunk = t % 8;
    int stage = 0, round = 0;
    for (int step = 0; step < steps; ++step) {
        wait(of.x + 8 * stage, round);
        const u32 x = stages + stage * X_BYTES + first * 128;
        uint4 v[PIECES];
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int row = t / 8 + i * (SUMMERS / 8);
            v[i] = row < SQUARED ? load_shared(x + row * 128 + chunk * 16) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < PIECES; ++i) squares[i] += square(v[i]);
        __syncwarp();
        if (t % 32 == 0) arrive(of.x_used + 8 * stage);
        if (++stage == STAGES) stage = 0, round ^= 1;
    }
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
        for (int lane = 4; lane; lane /= 2) squares[i] += __shfl_xor_sync(0xffffffff, squares[i], lane);
}

// To all blocks of the cluster, eight lanes a row.
__device__ __forceinline__ void send_squares(const float (&squares)[PIECES], Barriers of, Inbox& inbox, int split) {
    const int t = threadIdx.x - 64, chunk = t % 8;
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        const int row = t / 8 + i * (SUMMERS / 8);
        if (row < BATCH && chunk < SPLITS)
            send(in_block(shared_address(&inbox.squares[split][row]), chunk), in_block(of.inbox, chunk), squares[i]);
    }
}

__device__ __forceinline__ float factor(float squares, int hidden, float eps) { return rsqrtf(squares / hidden + eps); }

// A block that sums squares leaves them for all, and every block waits for them. `arrived` goes up by one for each block
// of each launch; `before` is what it was. All blocks of a launch are under way at once: the plan sees to that.
__device__ __forceinline__ void share_squares(const float (&squares)[PIECES], Barriers of, Inbox& inbox, u64* arrived,
                                              u64 before, float* shared, int split, int first, int hidden, float eps) {
    const int t = threadIdx.x - 64;
    if (first < BATCH && t % 8 == 0) store_relaxed(shared + split * BATCH + first + t / 8, squares[0]);
    sync_among(SUMMERS, 2);
    if (t == 0) {
        add_released(arrived, first < BATCH);
        const u64 all = (before / gridDim.x + 1) * gridDim.x;
        while (load_acquired(arrived) < all) {}
    }
    sync_among(SUMMERS, 2);
    for (int row = t; row < BATCH; row += SUMMERS) {
        float sum = 0;
        for (int part = 0; part < SPLITS; ++part) sum += load_relaxed(shared + part * BATCH + row);
        inbox.factors[row] = factor(sum, hidden, eps);
    }
    sync_among(SUMMERS, 2);
    if (t == 0) arrive(of.inbox);
}

// The sums of a warpgroup's rows of W, or of its half of k, sent to the blocks that add them up.
__device__ __forceinline__ void multiply(u32 w_stages, u32 x_stages, Barriers of, const u32* g, Slices slices, int split,
                                         Inbox& inbox) {
    const int lane = threadIdx.x % 32, warp = (threadIdx.x - FIRST) / 32, mine = warp / 4;
    const int unit = PARTS == 1 ? warp : warp % 4, r = unit * 16 + lane % 16;
    const int steps = slices.count, start = PARTS == 1 ? 0 : mine;
    float sums[BATCH / 2];
    int w_stage = start, w_round = 0, x_stage = start, x_round = 0, used = 0;  // W is ahead by one step
    const auto load = [&](u32(&rows)[SLICES][4], int step) {
        wait(of.w + 8 * w_stage, w_round);
        const u32 w = w_stages + w_stage * W_BYTES + r * 128;
        const u32* factors = g + step * (DEPTH / 2) + lane % 4;
#pragma unroll
        for (int i = 0; i < SLICES; ++i) {
            load_matrices(rows[i], w + (((2 * i + lane / 16) ^ (r & 7)) << 4));
            const u32 low = factors[8 * i], high = factors[8 * i + 4];
            rows[i][0] = times(rows[i][0], low), rows[i][1] = times(rows[i][1], low);
            rows[i][2] = times(rows[i][2], high), rows[i][3] = times(rows[i][3], high);
        }
        __syncwarp();
        if (lane == 0) arrive(of.w_used + 8 * w_stage);
        if ((w_stage += PARTS) >= STAGES) w_stage -= STAGES, w_round ^= 1;
    };
    const auto turn = [&](const u32(&rows)[SLICES][4], u32(&next)[SLICES][4], int step) {
        wait(of.x + 8 * x_stage, x_round);
        const u64 right = described(x_stages + x_stage * X_BYTES);
        products_begin();
#pragma unroll
        for (int i = 0; i < SLICES; ++i) Product<BATCH>::add(sums, rows[i], right + 2 * i, step - start + i);
        products_queued();
        products_wait<1>();  // those of the step before: its x and its rows are free
        if (step > start && lane == 0) arrive(of.x_used + 8 * used);
        used = x_stage;
        if ((x_stage += PARTS) >= STAGES) x_stage -= STAGES, x_round ^= 1;
        if (step + PARTS < steps) load(next, step + PARTS);
    };
    u32 rows[2][SLICES][4];
    wait(of.g, 0);
    if (start < steps) load(rows[0], start);
    for (int step = start; step < steps; step += 2 * PARTS) {
        turn(rows[0], rows[1], step);
        if (step + PARTS < steps) turn(rows[1], rows[0], step + PARTS);
    }
    products_wait<0>();
    if (IN_STAGES) cluster_arrive_relaxed();
    cluster_wait();
    if (start >= steps)
#pragma unroll
        for (int i = 0; i < BATCH / 2; ++i) sums[i] = 0;
    const int owner = unit / UNITS;
    float4* const place = &inbox.sums[split * PARTS + (PARTS == 1 ? 0 : mine)][unit % UNITS][0][lane];
    if (owner == split) {
#pragma unroll
        for (int i = 0; i < BATCH / 8; ++i)
            place[i * 32] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
        __syncwarp();
        if (lane == 0) arrive(of.inbox);
    } else {
        const u32 to = in_block(shared_address(place), owner), barrier = in_block(of.inbox, owner);
#pragma unroll
        for (int i = 0; i < BATCH / 8; ++i)
            send(to + i * 512, barrier, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    }
}

// What the cluster sent, added up in a fixed order, scaled and written: 16 outputs of 8 rows at a time.
__device__ __forceinline__ void add_up(Barriers of, Inbox& inbox, half_bits* y, int rows, int outputs, int left, int hidden,
                                       float eps) {
    const int t = threadIdx.x - FIRST, lane = t % 32;
    wait(of.inbox, 0);
    if (!SHARED) {
        if (t < BATCH) {
            float squares = 0;
            for (int block = 0; block < SPLITS; ++block) squares += inbox.squares[block][t];
            inbox.factors[t] = factor(squares, hidden, eps);
        }
        sync_among(256, 1);
    }
    for (int item = t / 32; item < UNITS * (BATCH / 8); item += 8) {
        const int unit = item / (BATCH / 8), eight = item % (BATCH / 8);
        float4 sum = inbox.sums[0][unit][eight][lane];
#pragma unroll
        for (int from = 1; from < SPLITS * PARTS; ++from) {
            const float4 more = inbox.sums[from][unit][eight][lane];
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        const float2 factors = *(const float2*)&inbox.factors[eight * 8 + lane % 4 * 2];
        // Of lane l the columns 2 (l % 4) and the next of rows l / 4 and 8 more: through shared memory, transposed.
        const u32 scratch = shared_address(&inbox.sums[0][unit][eight][0]);
        __syncwarp();
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(scratch + lane % 16 * 16),
                     "r"(packed(sum.x * factors.x, sum.y * factors.y)),
                     "r"(packed(sum.z * factors.x, sum.w * factors.y))
                     : "memory");
        __syncwarp();
        const int row = eight * 8 + lane % 8, output = unit * 16 + lane / 8 * 8;
        if (lane < 16 && row < rows && output < left)
            *(uint4*)(y + (long long)row * outputs + output) = load_shared(scratch + lane * 16);
    }
}

// x [batch, hidden] and w [outputs, hidden] as tensor maps, boxes of BATCH x 64 and COLUMNS x 64; g [hidden];
// y [batch, outputs]; hidden is a multiple of 64. Blocks: (SPLITS a set of outputs, BATCH rows of x). Per BATCH rows
// `arrived`, 0 at first, and shared [SPLITS, BATCH].
extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS, BLOCKS)
    rmsnorm_matmul(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const u32* __restrict__ g,
                   half_bits* __restrict__ y, u64* arrived, float* shared, int batch, int outputs, int hidden, float eps) {
    extern __shared__ char room[];
    __shared__ alignas(8) u64 barriers[4 * STAGES + 2];
    const u32 w_stages = (shared_address(room) + 1023) / 1024 * 1024, x_stages = w_stages + STAGES * W_BYTES;
    char* const first = room + (w_stages - shared_address(room));
    char* const after = first + STAGES * W_BYTES + STAGES * X_BYTES;
    Inbox& inbox = *(Inbox*)(IN_STAGES ? first : after);
    u32* const factors = (u32*)(IN_STAGES ? after : after + sizeof(Inbox));
    Barriers of;
    of.w = shared_address(barriers), of.w_used = of.w + 8 * STAGES, of.x = of.w_used + 8 * STAGES;
    of.x_used = of.x + 8 * STAGES, of.g = of.x_used + 8 * STAGES, of.inbox = of.g + 8;
    const int split = blockIdx.x % SPLITS, set = blockIdx.x / SPLITS, column = set * COLUMNS, row = blockIdx.y * BATCH;
    const int squared = SHARED ? set * SQUARED : 0;  // first row of which this block sums squares, or none
    const int all = hidden / DEPTH;
    Slices slices;
    slices.first = all * split / SPLITS;
    slices.count = all * (split + 1) / SPLITS - slices.first;
    const int steps = slices.count;
    // W and g are parameters and asked for at once; x may be written by the kernel before.
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) barrier_init(of.w + 8 * i, 1);
        barriers_visible();
        feed_first<W>(w_stages, of.w, w, slices, column);
        if (steps <= STAGES) let_next_begin();
    } else if (threadIdx.x == 32) {
        for (int i = 0; i < STAGES; ++i) barrier_init(of.x + 8 * i, 1);
        barrier_init(of.g, 1);
        barriers_visible();
        expect_bytes(of.g, steps * DEPTH * 2);
        load_bytes(shared_address(factors), g + slices.first * (DEPTH / 2), steps * DEPTH * 2, of.g);
        wait_for_kernel_before();
        feed_first<X>(x_stages, of.x, x, slices, row);
    } else if (threadIdx.x == 64) {
        const int multiplying = 256 / PARTS / 32;  // warps, an arrival of each when it has used a stage
        for (int i = 0; i < STAGES; ++i) barrier_init(of.w_used + 8 * i, multiplying);
        for (int i = 0; i < STAGES; ++i) barrier_init(of.x_used + 8 * i, multiplying + (squared < BATCH ? SUMMERS / 32 : 0));
        barrier_init(of.inbox, 1 + OWN + SHARED);
        barriers_visible();
        expect_bytes(of.inbox, INBOX_BYTES);
    }
    __syncthreads();
    if (!IN_STAGES) cluster_arrive_relaxed();  // the others may send to this block
    if (threadIdx.x < 64) {
        if (threadIdx.x == 0) {
            feed_on<W>(w_stages, of.w, of.w_used, w, slices, column);
            let_next_begin();
        }
        if (threadIdx.x == 32) feed_on<X>(x_stages, of.x, of.x_used, x, slices, row);
        __syncwarp();
        if (IN_STAGES) cluster_arrive_relaxed();
        cluster_wait();
    } else if (threadIdx.x < FIRST) {
        float squares[PIECES] = {};
        u64 before = 0;
        if (SHARED && threadIdx.x == 64) {
            wait_for_kernel_before();
            before = add_released(arrived + blockIdx.y, squared >= BATCH);
        }
        if (squared < BATCH) sum_squares(squares, x_stages, of, steps, squared);
        __syncwarp();
        if (IN_STAGES) cluster_arrive_relaxed();
        cluster_wait();
        if (SHARED)
            share_squares(squares, of, inbox, arrived + blockIdx.y, before, shared + blockIdx.y * SPLITS * BATCH, split, squared,
                          hidden, eps);
        else
            send_squares(squares, of, inbox, split);
    } else {
        multiply(w_stages, x_stages, of, factors, slices, split, inbox);
        const int output = column + split * (COLUMNS / SPLITS);
        add_up(of, inbox, y + (long long)row * outputs + output, batch - row, outputs, outputs - output, hidden, eps);
    }
}
