// Products of adapters (LoRA) for few rows, each of which may have another adapter: u = s A x, then y += B u.
//
// The factors of all adapters are beside each other, and a row has a scale for each of their ranks: that of its own adapter, 0 for
// the others. Ranks with the scale 0 are not computed. All sums are in f32, in an order that does not depend on other rows.

const int THREADS = 256;  // threads of a block
const int WARPS = THREADS / 32;
const int ROWS = 8;       // rows of a block of `lora_expand`

// Block (x, y): row x and projection y. Writes u = scale A x of the row, [rows, projections, ranks], for x [rows, width],
// A [projections, ranks, width] and scales [rows, ranks].
template <class T>
__device__ __forceinline__ void lora_shrink(
    const T* x, const T* a, const float* scales, float* u, int width, int ranks, int projections) {
    SHARED_MEMORY(shared);
    float* own = (float*)shared;  // [ranks]
    int row = blockIdx.x, projection = blockIdx.y;
    float* to = u + ((long long)row * projections + projection) * ranks;
    for (int rank = threadIdx.x; rank < ranks; rank += THREADS) {
        own[rank] = scales[(long long)row * ranks + rank];
        if (own[rank] == 0) to[rank] = 0;
    }
    __syncthreads();
    const T* numbers = x + (long long)row * width;
    int lane = threadIdx.x % 32;
    for (int rank = threadIdx.x / 32; rank < ranks; rank += WARPS) {
        if (own[rank] == 0) continue;
        const T* factors = a + ((long long)projection * ranks + rank) * width;
        float sum = 0;
#pragma unroll 4
        for (int i = lane * PACK; i < width; i += 32 * PACK) {
            Numbers left = load(numbers + i), right = load(factors + i);
            for (int j = 0; j < PACK; j++) sum = fmaf(left.at[j], right.at[j], sum);
        }
        for (int mask = 16; mask > 0; mask /= 2) sum += exchange(sum, mask);
        if (lane == 0) to[rank] = own[rank] * sum;
    }
}

// Block (x, y): 256 columns of y and 8 rows. Adds B u to y [rows, columns], for B [columns, ranks] and u [rows, projections,
// ranks]. Columns of the first projection end before `first_end`, those of the second before `second_end`.
template <class T>
__device__ __forceinline__ void lora_expand(
    const float* u, const T* b, T* y, int rows, int columns, int ranks, int projections, int first_end,
    int second_end) {
    SHARED_MEMORY(shared);
    float* own = (float*)shared;                        // [ROWS, projections, ranks]
    int* used = (int*)(own + ROWS * projections * ranks);  // [ROWS, ranks / PACK]
    int first = blockIdx.y * ROWS, count = min(ROWS, rows - first), packs = ranks / PACK;
    for (int i = threadIdx.x; i < count * projections * ranks; i += THREADS)
        own[i] = u[(long long)first * projections * ranks + i];
    __syncthreads();
    for (int i = threadIdx.x; i < count * packs; i += THREADS) {
        used[i] = 0;
        for (int projection = 0; projection < projections; projection++)
            for (int j = 0; j < PACK; j++)
                used[i] |= own[(i / packs * projections + projection) * ranks + i % packs * PACK + j] != 0;
    }
    __syncthreads();
    int column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= columns) return;
    int projection = (column >= first_end) + (column >= second_end);
    float sums[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++)
        sums[row] = row < count ? widen(y[(long long)(first + row) * columns + column]) : 0;
    for (int pack = 0; pack < packs; pack++) {
        bool any = false;
        for (int row = 0; row < count; row++) any |= used[row * packs + pack] != 0;
        if (!any) continue;
        Numbers factors = load(b + (long long)column * ranks + pack * PACK);
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            if (row >= count || !used[row * packs + pack]) continue;
            const float* inner = own + (row * projections + projection) * ranks + pack * PACK;
            for (int j = 0; j < PACK; j++) sums[row] = fmaf(inner[j], factors.at[j], sums[row]);
        }
    }
#pragma unroll
    for (int row = 0; row < ROWS; row++)
        if (row < count) assign(y[(long long)(first + row) * columns + column], sums[row]);
}

#define LORA(suffix, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS) lora_shrink_##suffix(                                       \
        const T* x, const T* a, const float* scales, float* u, int width, int ranks, int projections) {               \
        lora_shrink<T>(x, a, scales, u, width, ranks, projections);                                                   \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) lora_expand_##suffix(                                       \
        const float* u, const T* b, T* y, int rows, int columns, int ranks, int projections, int first_end,           \
        int second_end) {                                                                                             \
        lora_expand<T>(u, b, y, rows, columns, ranks, projections, first_end, second_end);                            \
    }
LORA(bf16, bf16)
LORA(f32, float)
