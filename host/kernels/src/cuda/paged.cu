// Attention of one query per sequence to its keys and values, which are in blocks anywhere in memory.
//
// A block of threads has query heads that share a head of keys, at most `QUERIES`, and 512 keys of one sequence. A thread reads 8
// numbers of a key and of its value, the next ones while it computes with the current, and a key's threads add up their
// products. Each group of threads has its own softmax of the keys that it saw; these are merged in their order at the end.
// A second kernel merges the parts of sequences of more than 512 keys. A row's results depend on that row alone: the division
// of its keys does not depend on other rows.

const int WARPS = 4;    // warps of a block
const int SPAN = 512;   // keys of a block
const int LOADS = 4;    // keys that a thread reads at a time
const int TOKENS = 16;  // tokens of a block of the cache
const float LOWEST = -3.4028234e38f;

// The softmax over keys that a group of threads saw, of which each has 8 dimensions of the values.
struct Softmax {
    float peak, sum;  // largest score, and sum of exp(score - peak)
    Numbers mixed;    // sum of exp(score - peak) value

    __device__ __forceinline__ void clear() {
        peak = LOWEST, sum = 0;
        for (int i = 0; i < PACK; i++) mixed.at[i] = 0;
    }

    // Raises the largest score.
    __device__ __forceinline__ void raise(float to) {
        float factor = expf(peak - to);
        peak = to, sum *= factor;
        for (int i = 0; i < PACK; i++) mixed.at[i] *= factor;
    }

    __device__ __forceinline__ void add(float weight, const Numbers& value) {
        sum += weight;
        for (int i = 0; i < PACK; i++) mixed.at[i] = fmaf(weight, value.at[i], mixed.at[i]);
    }

    // Merges the softmaxes of the lanes whose numbers differ in the bits of `mask`.
    __device__ __forceinline__ void merge(int mask) {
        raise(fmaxf(peak, exchange(peak, mask)));
        sum += exchange(sum, mask);
        for (int i = 0; i < PACK; i++) mixed.at[i] += exchange(mixed.at[i], mask);
    }
};

// Keys and values that a thread reads at a time, zeros past the end of the sequence.
template <class T>
struct Chunk {
    Pack<T> key[LOADS], value[LOADS];
};

// Block (x, y): a row's head of keys with at most `QUERIES` of its queries, and the keys from 512 y on. Writes the results
// of rows of one span to `to`, [rows, heads, width]; of other rows the weighted sums of the values, [rows, heads, spans, width],
// and the largest score and the sum of weights, [rows, heads, spans, 2].
template <class T, int QUERIES>
__device__ __forceinline__ void attend_span(
    const T* queries, const T* cache, const int* tables, const int* lengths, float* outs, float* sums, T* to, int heads,
    int kv_heads, int width, int blocks, int spans) {
    SHARED_MEMORY(shared);
    int group = heads / kv_heads, parts = (group + QUERIES - 1) / QUERIES;
    int row = blockIdx.x / (kv_heads * parts), kv_head = blockIdx.x / parts % kv_heads, part = blockIdx.x % parts;
    int first_head = kv_head * group + part * QUERIES, count = min(QUERIES, group - part * QUERIES);
    int first = blockIdx.y * SPAN;
    // Read before the length is known, so that nothing waits twice; those past the sequence's end are not used.
    int* numbers_of_blocks = (int*)shared;  // [SPAN / TOKENS]
    if (threadIdx.x < SPAN / TOKENS) {
        int block = first / TOKENS + threadIdx.x;
        numbers_of_blocks[threadIdx.x] = block < blocks ? tables[(long long)row * blocks + block] : 0;
    }
    int length = lengths[row], end = min(first + SPAN, length);
    if (first >= end) return;

    // A key has `lanes` threads, a power of two; some have no numbers of it.
    int lanes = 1;
    while (lanes * PACK < width) lanes *= 2;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, keys = 32 / lanes;
    int dimension = lane % lanes * PACK;
    bool inside = dimension < width;

    float scale = 1 / sqrtf((float)width);
    Numbers own[QUERIES];
    Softmax softmax[QUERIES];
#pragma unroll
    for (int query = 0; query < QUERIES; query++) {
        softmax[query].clear();
        own[query] = {};
        if (inside && query < count)
            own[query] = load(queries + ((long long)row * heads + first_head + query) * width + dimension);
        for (int i = 0; i < PACK; i++) own[query].at[i] *= scale;
    }

    __syncthreads();

    auto load_chunk = [&](int start) {
        Chunk<T> chunk = {};
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int position = start + i * keys + lane / lanes;
            if (!inside || position >= end) continue;
            long long slot = (long long)numbers_of_blocks[(position - first) / TOKENS] * TOKENS + position % TOKENS;
            const T* from = cache + (slot * 2 * kv_heads + kv_head) * width + dimension;
            chunk.key[i] = *(const Pack<T>*)from;
            chunk.value[i] = *(const Pack<T>*)(from + kv_heads * width);
        }
        return chunk;
    };
    int step = keys * LOADS;
    Chunk<T> next = load_chunk(first + warp * step);
    for (int start = first + warp * step; start < end; start += WARPS * step) {
        Chunk<T> chunk = next;
        next = load_chunk(start + WARPS * step);
        float scores[QUERIES][LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            Numbers numbers = widen(chunk.key[i]);
            bool exists = start + i * keys + lane / lanes < end;
#pragma unroll
            for (int query = 0; query < QUERIES; query++) {
                float sum = 0;
#pragma unroll
                for (int j = 0; j < PACK; j++) sum = fmaf(own[query].at[j], numbers.at[j], sum);
                for (int mask = lanes / 2; mask > 0; mask /= 2) sum += exchange(sum, mask);
                scores[query][i] = exists ? sum : LOWEST;
            }
        }
#pragma unroll
        for (int query = 0; query < QUERIES; query++) {
            float peak = softmax[query].peak;
#pragma unroll
            for (int i = 0; i < LOADS; i++) peak = fmaxf(peak, scores[query][i]);
            softmax[query].raise(peak);
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            Numbers numbers = widen(chunk.value[i]);
            bool exists = start + i * keys + lane / lanes < end;
#pragma unroll
            for (int query = 0; query < QUERIES; query++) {
                float weight = exists ? expf(scores[query][i] - softmax[query].peak) : 0;
                softmax[query].add(weight, numbers);
            }
        }
    }

    // The results of the warps: [WARPS, QUERIES, width], then [WARPS, QUERIES, 2].
    float* mixed = (float*)(numbers_of_blocks + SPAN / TOKENS);
    float* totals = mixed + WARPS * QUERIES * width;
#pragma unroll
    for (int query = 0; query < QUERIES; query++) {
        for (int mask = lanes; mask < 32; mask *= 2) softmax[query].merge(mask);
        if (lane >= lanes || !inside) continue;
        int place = warp * QUERIES + query;
        for (int i = 0; i < PACK; i++) mixed[place * width + dimension + i] = softmax[query].mixed.at[i];
        if (lane == 0) totals[place * 2] = softmax[query].peak, totals[place * 2 + 1] = softmax[query].sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * width; i += WARPS * 32) {
        int query = i / width, column = i % width;
        float peak = LOWEST, sum = 0, out = 0;
        for (int from = 0; from < WARPS; from++) peak = fmaxf(peak, totals[(from * QUERIES + query) * 2]);
        for (int from = 0; from < WARPS; from++) {
            int place = from * QUERIES + query;
            float factor = expf(totals[place * 2] - peak);
            sum = fmaf(factor, totals[place * 2 + 1], sum);
            out = fmaf(factor, mixed[place * width + column], out);
        }
        long long head = (long long)row * heads + first_head + query;
        if (length <= SPAN) {
            assign(to[head * width + column], out / sum);
            continue;
        }
        long long place = head * spans + blockIdx.y;
        outs[place * width + column] = out;
        if (column == 0) sums[place * 2] = peak, sums[place * 2 + 1] = sum;
    }
}

// Block x: a row's head. Merges its spans, if there are several.
template <class T>
__device__ __forceinline__ void merge_spans(
    const float* outs, const float* sums, const int* lengths, T* to, int heads, int width, int spans) {
    int own = (lengths[blockIdx.x / heads] + SPAN - 1) / SPAN;
    if (own == 1) return;
    outs += (long long)blockIdx.x * spans * width;
    sums += (long long)blockIdx.x * spans * 2;
    float peak = sums[0];
    for (int span = 1; span < own; span++) peak = fmaxf(peak, sums[span * 2]);
    for (int dimension = threadIdx.x; dimension < width; dimension += WARPS * 32) {
        float total = 0, mixed = 0;
        for (int span = 0; span < own; span++) {
            float weight = expf(sums[span * 2] - peak);
            total = fmaf(weight, sums[span * 2 + 1], total);
            mixed = fmaf(weight, outs[span * width + dimension], mixed);
        }
        assign(to[(long long)blockIdx.x * width + dimension], mixed / total);
    }
}

// A kernel for each number of queries, with registers for a number of blocks on a multiprocessor at a time.
#define ATTEND_SPAN(name, T, queries_of_block, at_a_time)                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, at_a_time) name(                                         \
        const T* queries, const T* cache, const int* tables, const int* lengths, float* outs, float* sums, T* to,     \
        int heads, int kv_heads, int width, int blocks, int spans) {                                                  \
        attend_span<T, queries_of_block>(                                                                             \
            queries, cache, tables, lengths, outs, sums, to, heads, kv_heads, width, blocks, spans);                  \
    }
#define MERGE_SPANS(name, T)                                                                                          \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) name(                                                    \
        const float* outs, const float* sums, const int* lengths, T* to, int heads, int width, int spans) {           \
        merge_spans<T>(outs, sums, lengths, to, heads, width, spans);                                                 \
    }
ATTEND_SPAN(attend_span_bf16_1, bf16, 1, 4)
ATTEND_SPAN(attend_span_bf16_2, bf16, 2, 4)
ATTEND_SPAN(attend_span_bf16_4, bf16, 4, 3)
ATTEND_SPAN(attend_span_bf16_8, bf16, 8, 2)
ATTEND_SPAN(attend_span_f32_1, float, 1, 3)
ATTEND_SPAN(attend_span_f32_2, float, 2, 2)
ATTEND_SPAN(attend_span_f32_4, float, 4, 2)
ATTEND_SPAN(attend_span_f32_8, float, 8, 2)
MERGE_SPANS(merge_spans_bf16, bf16)
MERGE_SPANS(merge_spans_f32, float)
