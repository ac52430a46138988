// Products of adapters (LoRA) for few rows, each of which may have another adapter: u = s A x, then y += B u.
//
// The factors of all adapters are beside each other, and a row has a scale for each of their ranks: that of its own adapter, 0 for
// the others. Numbers are bf16, sums f32. Matrices are multiplied by tensor cores, 32 numbers of each sum at a time: a thread
// reads 8 of them at once, which takes them in another order than the instruction's, the same for both factors. The results of
// a row don't depend on other rows.

const int WARPS = 8;   // warps of a block of `lora_shrink`, each with a part of the sums
const int ROWS = 16;   // rows of a block
const int RANKS = 8;   // ranks of a block of `lora_shrink`
const int STEP = 32;   // numbers of a sum that are read at a time
const int TILES = 4;   // tiles of 8 columns of a warp of `lora_expand`

// d += a b for 32 numbers of the sums, with the packs of a's rows `group` and `group + 8` and of b's column `group`.
__device__ __forceinline__ void multiply_step(
    float (&d)[4], const Pack<bf16>& upper, const Pack<bf16>& lower, const Pack<bf16>& column) {
    const unsigned first[4] = {upper.words.x, lower.words.x, upper.words.y, lower.words.y};
    const unsigned second[4] = {upper.words.z, lower.words.z, upper.words.w, lower.words.w};
    const unsigned first_column[2] = {column.words.x, column.words.y};
    const unsigned second_column[2] = {column.words.z, column.words.w};
    multiply_16x8x16(d[0], d[1], d[2], d[3], first, first_column);
    multiply_16x8x16(d[0], d[1], d[2], d[3], second, second_column);
}

// Block (x, y): 8 ranks of a projection, and 16 rows. Writes u = scale A x, [rows, projections x ranks], for x [rows, width], A
// [projections x ranks, width] and scales [rows, ranks].
extern "C" __global__ void __launch_bounds__(WARPS * 32) lora_shrink(
    const bf16* x, const bf16* a, const float* scales, bf16* u, int rows, int width, int ranks, int all_ranks) {
    SHARED_MEMORY(shared);
    float* sums = (float*)shared;  // [WARPS, ROWS, RANKS]
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, pair = lane % 4;
    int row = blockIdx.y * ROWS + group, rank = blockIdx.x * RANKS + group;
    // Past the end, the last row is read again.
    const bf16* upper = x + (long long)min(row, rows - 1) * width + pair * PACK;
    const bf16* lower = x + (long long)min(row + 8, rows - 1) * width + pair * PACK;
    const bf16* column = a + (long long)rank * width + pair * PACK;
    float d[4] = {0, 0, 0, 0};
#pragma unroll 4
    for (int i = warp * STEP; i < width; i += WARPS * STEP)
        multiply_step(d, load_pack(upper + i), load_pack(lower + i), load_pack(column + i));
    float* own = sums + warp * ROWS * RANKS;
    own[group * RANKS + 2 * pair] = d[0], own[group * RANKS + 2 * pair + 1] = d[1];
    own[(group + 8) * RANKS + 2 * pair] = d[2], own[(group + 8) * RANKS + 2 * pair + 1] = d[3];
    __syncthreads();
    if (threadIdx.x >= ROWS * RANKS) return;
    int to_row = blockIdx.y * ROWS + threadIdx.x / RANKS, to_rank = blockIdx.x * RANKS + threadIdx.x % RANKS;
    if (to_row >= rows) return;
    float sum = 0, scale = scales[(long long)to_row * ranks + to_rank % ranks];
    for (int part = 0; part < WARPS; part++) sum += sums[part * ROWS * RANKS + threadIdx.x];
    u[(long long)to_row * all_ranks + to_rank] = to_bf16(scale == 0 ? 0 : scale * sum);
}

// Block (x, y): a warp with 32 columns of y, and 16 rows. Adds B u to y [rows, columns], for B [columns, ranks] and u [rows,
// all_ranks]. Columns of the first projection end before `first_end`, those of the second before `second_end`, both multiples of 32.
extern "C" __global__ void __launch_bounds__(32) lora_expand(
    const bf16* u, const bf16* b, bf16* y, int rows, int columns, int ranks, int all_ranks, int first_end,
    int second_end) {
    int lane = threadIdx.x, group = lane / 4, pair = lane % 4, first = blockIdx.x * TILES * 8;
    int row = blockIdx.y * ROWS + group, projection = (first >= first_end) + (first >= second_end);
    // Past the end, the last row is read again.
    int rows_of_thread[2] = {min(row, rows - 1), min(row + 8, rows - 1)};
    // The column n of the tile t is the column 4 n + t of the warp, so that a thread has 8 columns one after another.
    bf16* to[2];
    Pack<bf16> old[2];
    const bf16* inner[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        to[half] = y + (long long)rows_of_thread[half] * columns + first + pair * PACK;
        old[half] = load_pack(to[half]);
        inner[half] = u + (long long)rows_of_thread[half] * all_ranks + projection * ranks + pair * PACK;
    }
    float d[TILES][4] = {};
    for (int i = 0; i < ranks; i += STEP) {
        Pack<bf16> upper = load_pack(inner[0] + i), lower = load_pack(inner[1] + i);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const bf16* factors = b + (long long)(first + group * TILES + tile) * ranks + pair * PACK + i;
            multiply_step(d[tile], upper, lower, load_pack(factors));
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row + half * 8 >= rows) continue;
        Numbers numbers = widen(old[half]);
#pragma unroll
        for (int i = 0; i < PACK; i++) numbers.at[i] += d[i % TILES][half * 2 + i / TILES];
        store(to[half], numbers);
    }
}
