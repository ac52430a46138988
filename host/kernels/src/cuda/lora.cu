// Products of adapters (LoRA) for few rows, each of which may have another adapter: u = s A x, then y += B u.
//
// The factors of all adapters are beside each other, and a row has a scale for each of their ranks: that of its own adapter, 0 for
// the others. Ranks with the scale 0 are not computed. All sums are in f32, in an order that does not depend on other rows.

const int THREADS = 256;  // threads of a block
const int WARPS = THREADS / 32;
const int ROWS = 8;       // rows of a block of `lora_expand`
const int GROUP = 32;     // ranks that a thread of it reads at a time

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
    // A warp has two ranks at a time.
    for (int rank = threadIdx.x / 32 * 2; rank < ranks; rank += WARPS * 2) {
        if (own[rank] == 0 && own[rank + 1] == 0) continue;
        const T* factors = a + ((long long)projection * ranks + rank) * width;
        float first = 0, second = 0;
#pragma unroll 4
        for (int i = lane * PACK; i < width; i += 32 * PACK) {
            Numbers left = load(numbers + i), right = load(factors + i), other = load(factors + width + i);
            for (int j = 0; j < PACK; j++) {
                first = fmaf(left.at[j], right.at[j], first);
                second = fmaf(left.at[j], other.at[j], second);
            }
        }
        for (int mask = 16; mask > 0; mask /= 2) {
            first += exchange(first, mask);
            second += exchange(second, mask);
        }
        if (lane == 0 && own[rank] != 0) to[rank] = own[rank] * first;
        if (lane == 0 && own[rank + 1] != 0) to[rank + 1] = own[rank + 1] * second;
    }
}

// Block (x, y): 256 columns of y and 8 rows. Adds B u to y [rows, columns], for B [columns, ranks] and u [rows, projections,
// ranks]. Columns of the first projection end before `first_end`, those of the second before `second_end`. A row skips groups of
// ranks that have none of its adapter's.
template <class T>
__device__ __forceinline__ void lora_expand(
    const float* u, const T* b, T* y, int rows, int columns, int ranks, int projections, int first_end,
    int second_end) {
    SHARED_MEMORY(shared);
    float* own = (float*)shared;                           // [ROWS, projections, ranks]
    int* used = (int*)(own + ROWS * projections * ranks);  // [ROWS, groups]
    int first = blockIdx.y * ROWS, count = min(ROWS, rows - first), groups = (ranks + GROUP - 1) / GROUP;
    int column = blockIdx.x * THREADS + threadIdx.x;
    bool inside = column < columns;
    // All that is read first is on its way before anything waits.
    float sums[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++)
        sums[row] = inside && row < count ? widen(y[(long long)(first + row) * columns + column]) : 0;
    const T* factors = b + (long long)column * ranks;
    auto load_group = [&](int group, Pack<T>(&packs)[GROUP / PACK]) {
#pragma unroll
        for (int i = 0; i < GROUP / PACK; i++) {
            packs[i] = {};
            if (inside && group * GROUP + i * PACK < ranks)
                packs[i] = *(const Pack<T>*)(factors + group * GROUP + i * PACK);
        }
    };
    Pack<T> packs[GROUP / PACK];
    load_group(0, packs);
    for (int i = threadIdx.x; i < count * projections * ranks; i += THREADS)
        own[i] = u[(long long)first * projections * ranks + i];
    __syncthreads();
    if (groups > 1) {
        for (int i = threadIdx.x; i < count * groups; i += THREADS) {
            int start = i % groups * GROUP, end = min(start + GROUP, ranks);
            used[i] = 0;
            for (int part = 0; part < projections; part++)
                for (int rank = start; rank < end; rank++)
                    used[i] |= own[(i / groups * projections + part) * ranks + rank] != 0;
        }
        __syncthreads();
    }
    int projection = (column >= first_end) + (column >= second_end);
    for (int group = 0; group < groups; group++) {
        if (group > 0) load_group(group, packs);
#pragma unroll
        for (int i = 0; i < GROUP / PACK; i++) {
            int rank = group * GROUP + i * PACK;
            if (rank >= ranks) break;
            Numbers numbers = widen(packs[i]);
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                if (row >= count || (groups > 1 && !used[row * groups + group])) continue;
                Numbers inner = load(own + (row * projections + projection) * ranks + rank);
                for (int j = 0; j < PACK; j++) sums[row] = fmaf(inner.at[j], numbers.at[j], sums[row]);
            }
        }
    }
    if (!inside) return;
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
