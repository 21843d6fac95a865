// What a decode step needs besides products and attention where two cards compute it, each with half of every matrix:
// the embedding, the all-reduce of the two cards' sums, and the gather of the logits.
//
// A card stores into its peer's memory, and waits for what the peer stores into its own: nothing reads across the link.
// A flag is a number that the exchanges before have not had: the step's epoch plus the number of the exchange. A line of
// 16 bytes is two times a word and its flag, stored together and read together (NCCL's LL protocol), so that a line whose
// flags are right has arrived. An inbox may be filled again once its card has begun a later exchange.
//
// A wait ends after a second: `missed` is set to the flag, results are wrong from then on, and no later wait lasts.
//
// Compiled for one dtype at a time: fp16, or with BF16 bf16. ROWS: rows of x that the next kernel is compiled for.

#include "../../../workflow/scripts/roofline/operators/gemm/kernels/half_types.cuh"

typedef unsigned long long u64;
const u64 LONGEST_WAIT_NS = 1000000000;
const int POLLS_PER_LOOK = 1024;  // at the clock

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ uint4 load_line(const uint4* line) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(line)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store_line(uint4* line, u32 low, u32 high, u32 flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(line), "r"(low), "r"(flag), "r"(high),
                 "r"(flag)
                 : "memory");
}

__device__ __forceinline__ u32 load_volatile(const u32* address) {
    u32 word;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    return word;
}

// Calls has_arrived() until it is true, or a second is over, or an earlier wait was in vain.
template <class HasArrived>
__device__ __forceinline__ void wait_until(HasArrived has_arrived, u32 flag, unsigned int* missed) {
    u64 start = 0;
    for (int polls = 1; !has_arrived(); ++polls) {
        if (polls % POLLS_PER_LOOK) continue;
        const u64 now = nanoseconds();
        if (!start) start = now;
        if (now - start > LONGEST_WAIT_NS) *(volatile u32*)missed = flag;
        if (load_volatile(missed)) return;
    }
}

__device__ __forceinline__ u32 add_pairs(u32 a, u32 b, u32 c) {
    return pack(lower(a) + lower(b) + lower(c), upper(a) + upper(b) + upper(c));
}
__device__ __forceinline__ u32 multiply_in_fp32(u32 x, u32 g) {
    return pack(lower(x) * lower(g), upper(x) * upper(g));
}

// part [rows, hidden]: each sequence's row of the embedding table, if it is among the `tokens_here` rows from
// `first_token` on, which are this card's table; otherwise zeros. A block for each row; hidden a multiple of 8.
extern "C" __global__ void __launch_bounds__(512) embed_part(const int* tokens, const uint4* table, uint4* part,
                                                             int hidden, int first_token, int tokens_here) {
    const int vectors = hidden / 8, row = blockIdx.x, token = tokens[row] - first_token;
    const bool is_here = token >= 0 && token < tokens_here;
    let_next_begin();
    wait_for_kernel_before();
    for (int index = threadIdx.x; index < vectors; index += blockDim.x)
        part[(long long)row * vectors + index] =
            is_here ? table[(long long)token * vectors + index] : make_uint4(0, 0, 0, 0);
}

// Adds the parts [rows, hidden] of both cards to the stream, which is zeros if it `begins`, and leaves for the next
// kernel the stream scaled by the next norm's weights g, as y, and squares [hidden / 128, ROWS]: sums over 128 numbers
// of a row. The sum of the parts is the same on both cards, since it does not depend on their order.
//
// A thread has a vector of 8 numbers: two lines of an inbox [2, rows, hidden / 8]. A block has some vectors of a row,
// blockIdx.y; hidden is a multiple of 128.
extern "C" __global__ void __launch_bounds__(128)
    all_reduce(const uint4* part, uint4* stream, const uint4* g, uint4* y, float* squares, uint4* inbox,
               uint4* peer_inbox, const unsigned int* epoch, unsigned int* missed, int hidden, int exchange, int begins) {
    const int vectors = hidden / 8, row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    let_next_begin();
    if (column >= vectors) return;
    const int index = row * vectors + column, second_line = gridDim.y * vectors;
    const u32 flag = *epoch + exchange;
    const uint4 weights = g[column];
    wait_for_kernel_before();
    const uint4 own = load_past_l1(part + index);
    store_line(peer_inbox + index, own.x, own.y, flag);
    store_line(peer_inbox + second_line + index, own.z, own.w, flag);
    const uint4 before = begins ? make_uint4(0, 0, 0, 0) : load_past_l1(stream + index);
    uint4 first, second;
    wait_until(
        [&] {
            first = load_line(inbox + index), second = load_line(inbox + second_line + index);
            return first.y == flag && first.w == flag && second.y == flag && second.w == flag;
        },
        flag, missed);
    const uint4 sum = make_uint4(add_pairs(own.x, first.x, before.x), add_pairs(own.y, first.z, before.y),
                                 add_pairs(own.z, second.x, before.z), add_pairs(own.w, second.z, before.w));
    stream[index] = sum;
    y[index] = make_uint4(multiply_in_fp32(sum.x, weights.x), multiply_in_fp32(sum.y, weights.y),
                          multiply_in_fp32(sum.z, weights.z), multiply_in_fp32(sum.w, weights.w));
    const unsigned int half_warp = 0xffffu << (threadIdx.x & 16);  // lanes of one sum
    float square_sum = sum_of_squares(sum);
#pragma unroll
    for (int distance = 8; distance; distance /= 2) square_sum += __shfl_xor_sync(half_warp, square_sum, distance);
    if (column % 16 == 0) squares[column / 16 * ROWS + row] = square_sum;
}

// Copies the logits part [rows, outputs] of this card to its columns, from `first` on, of the logits [rows, columns] of
// both cards, and waits until those of the peer have arrived. The last block of the step ends its epoch. Sizes are of
// vectors of 8 numbers. `flags` are one for each block.
extern "C" __global__ void __launch_bounds__(512)
    gather(const uint4* part, uint4* logits, uint4* peer_logits, unsigned int* flags, unsigned int* peer_flags, unsigned int* epoch, unsigned int* arrived,
           unsigned int* missed, int rows, int outputs, int columns, int first, int exchange) {
    let_next_begin();
    const u32 flag = *epoch + exchange;
    wait_for_kernel_before();
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < rows * outputs; index += gridDim.x * blockDim.x) {
        const int place = index / outputs * columns + first + index % outputs;
        const uint4 vector = load_past_l1(part + index);
        logits[place] = peer_logits[place] = vector;
    }
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence_system();  // the block's vectors are there before its flag
    *(volatile u32*)(peer_flags + blockIdx.x) = flag;
    wait_until([&] { return load_volatile(flags + blockIdx.x) == flag; }, flag, missed);
    __threadfence();
    if (atomicAdd(arrived, 1) == gridDim.x - 1) *arrived = 0, *epoch = flag;
}
