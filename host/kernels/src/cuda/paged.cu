// Attention of one query per sequence to its keys and values, which are in blocks anywhere in memory.
//
// A block of threads has query heads that share a head of keys, and up to 512 keys of one sequence, of which each warp takes every
// fourth group. Its warps have a softmax each of the keys that they saw; these are merged in their order at the end. A second
// kernel merges the parts of sequences of more than 512 keys. In bf16, heads of the usual widths are multiplied by tensor
// cores; otherwise a thread multiplies 8 numbers of a key and of its value. A row's results depend on that row alone: the
// division of its keys does not depend on other rows.

const int WARPS = 4;               // warps of a block
const int SPAN = 512;              // keys of a block
const int TOKENS = 16;             // tokens of a block of the cache
const int MMA_QUERIES = 8;         // query heads of a block with tensor cores
const int LOADS = 4;               // keys that a thread reads at a time without them
const float LOWEST = -3.4028234e38f;
const float LOG2_E = 1.44269504f;  // scores are logarithms to the base 2

// The softmax over keys that a group of threads saw, of which each has 8 dimensions of the values.
struct Softmax {
    float peak, sum;  // largest score, and sum of 2^(score - peak)
    Numbers mixed;    // sum of 2^(score - peak) value

    __device__ __forceinline__ void clear() {
        peak = LOWEST, sum = 0;
        for (int i = 0; i < PACK; i++) mixed.at[i] = 0;
    }

    // Raises the largest score.
    __device__ __forceinline__ void raise(float to) {
        float factor = exp2f(peak - to);
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

// Place of a block (x, y): a row's head of keys with at most `queries` of its queries, and the keys from 512 y on.
struct Span {
    int row, kv_head, first_head, count;  // `count` query heads from `first_head` on
    int first, end, length;               // keys, and tokens of the sequence

    // Also copies the numbers of the blocks of the cache to shared memory, before the length is known, so that nothing waits
    // twice; those past the sequence's end are not used.
    __device__ __forceinline__ Span(
        int* numbers_of_blocks, const int* tables, const int* lengths, int heads, int kv_heads, int blocks,
        int queries) {
        int group = heads / kv_heads, parts = (group + queries - 1) / queries, part = blockIdx.x % parts;
        row = blockIdx.x / (kv_heads * parts), kv_head = blockIdx.x / parts % kv_heads;
        first_head = kv_head * group + part * queries, count = min(queries, group - part * queries);
        first = blockIdx.y * SPAN;
        if (threadIdx.x < SPAN / TOKENS) {
            int block = first / TOKENS + threadIdx.x;
            numbers_of_blocks[threadIdx.x] = block < blocks ? tables[(long long)row * blocks + block] : 0;
        }
        length = lengths[row], end = min(first + SPAN, length);
    }
};

// Merges the results of the warps, sums [WARPS, QUERIES, width] of values and [WARPS, QUERIES, 2] of a softmax, and writes them to
// `to`, or to `outs` and `sums` if the sequence has more spans.
template <class T>
__device__ __forceinline__ void write_span(
    const Span& own, const float* mixed, const float* totals, float* outs, float* sums, T* to, int heads, int width,
    int spans, int queries) {
    for (int i = threadIdx.x; i < own.count * width; i += WARPS * 32) {
        int query = i / width, column = i % width;
        float peak = LOWEST, sum = 0, out = 0;
        for (int from = 0; from < WARPS; from++) peak = fmaxf(peak, totals[(from * queries + query) * 2]);
        for (int from = 0; from < WARPS; from++) {
            int place = from * queries + query;
            float factor = exp2f(totals[place * 2] - peak);
            sum = fmaf(factor, totals[place * 2 + 1], sum);
            out = fmaf(factor, mixed[place * width + column], out);
        }
        long long head = (long long)own.row * heads + own.first_head + query;
        if (own.length <= SPAN) {
            assign(to[head * width + column], out / sum);
            continue;
        }
        long long place = head * spans + blockIdx.y;
        outs[place * width + column] = out;
        if (column == 0) sums[place * 2] = peak, sums[place * 2 + 1] = sum;
    }
}

// Attends to a span. Writes the results of rows of one span to `to`, [rows, heads, width]; of other rows the weighted sums of the
// values, [rows, heads, spans, width], and the largest score and the sum of weights, [rows, heads, spans, 2].
template <class T, int QUERIES>
__device__ __forceinline__ void attend_span(
    const T* queries, const T* cache, const int* tables, const int* lengths, float* outs, float* sums, T* to, int heads,
    int kv_heads, int width, int blocks, int spans) {
    SHARED_MEMORY(shared);
    int* numbers_of_blocks = (int*)shared;  // [SPAN / TOKENS]
    Span own_span(numbers_of_blocks, tables, lengths, heads, kv_heads, blocks, QUERIES);
    int row = own_span.row, kv_head = own_span.kv_head, first_head = own_span.first_head, count = own_span.count;
    int first = own_span.first, end = own_span.end;
    if (first >= end) return;

    // A key has `lanes` threads, a power of two; some have no numbers of it.
    int lanes = 1;
    while (lanes * PACK < width) lanes *= 2;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, keys = 32 / lanes;
    int dimension = lane % lanes * PACK;
    bool inside = dimension < width;

    float scale = LOG2_E / sqrtf((float)width);
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
            chunk.key[i] = load_pack(from);
            chunk.value[i] = load_pack(from + kv_heads * width);
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
                float weight = exists ? exp2f(scores[query][i] - softmax[query].peak) : 0;
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
    write_span(own_span, mixed, totals, outs, sums, to, heads, width, spans, QUERIES);
}

// The same in bf16 for heads of WIDTH numbers by tensor cores, of at most 8 queries. A warp has 16 keys at a time, a block of the
// cache. Products with the keys take a key's numbers in another order than the instruction's, the same for both factors: a
// thread reads 8 of them at once. Weights are rounded to bf16, as in flash attention.
template <int WIDTH>
__device__ __forceinline__ void attend_span_mma(
    const bf16* queries, const bf16* cache, const int* tables, const int* lengths, float* outs, float* sums, bf16* to,
    int heads, int kv_heads, int blocks, int spans) {
    const int PARTS = WIDTH / 32;   // packs of a key that a thread has: 8 numbers of each 32
    const int PLACES = WIDTH / 64;  // packs of a value that a thread has: 8 numbers of each 64
    SHARED_MEMORY(shared);
    int* numbers_of_blocks = (int*)shared;  // [SPAN / TOKENS]
    Span own(numbers_of_blocks, tables, lengths, heads, kv_heads, blocks, MMA_QUERIES);
    if (own.first >= own.end) return;
    int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;

    Pack<bf16> query[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        query[part] = {};
        const bf16* from = queries + ((long long)own.row * heads + own.first_head + group) * WIDTH;
        if (group < own.count) query[part] = load_pack(from + part * 32 + pair * PACK);
    }
    __syncthreads();

    // Of the query `group`: the largest score, the sum of the weights of this thread's keys, and the sums of values. Numbers of the
    // tile (place, i) are the dimensions 64 place + 8 n + i, n = 2 pair and 2 pair + 1.
    float scale = LOG2_E / sqrtf((float)WIDTH), peak = LOWEST, sum = 0;
    float mixed[PLACES][PACK][2] = {};
    long long distance = 2LL * kv_heads * WIDTH;  // of a token from the next
    for (int start = own.first + warp * TOKENS; start < own.end; start += WARPS * TOKENS) {
        long long token = (long long)numbers_of_blocks[(start - own.first) / TOKENS] * TOKENS;
        const bf16* keys = cache + token * distance + own.kv_head * WIDTH;
        const bf16* values = keys + kv_heads * WIDTH;
        // Keys `group` and `group + 8`, and values of the keys 2 pair, 2 pair + 1 and these + 8. The memory of a block is there, but
        // what is past the sequence's end may be anything.
        Pack<bf16> key[2][PARTS], value[4][PLACES];
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                key[tile][part] = load_pack(keys + (tile * 8 + group) * distance + part * 32 + pair * PACK);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int place = 0; place < PLACES; place++) {
                int at = 2 * pair + i % 2 + i / 2 * 8;
                Pack<bf16> pack = load_pack(values + at * distance + place * 64 + group * PACK);
                value[i][place] = start + at < own.end ? pack : Pack<bf16>{};
            }

        float scores[2][2] = {};
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const uint4 &left = query[part].words, &right = key[tile][part].words;
                const unsigned first[2] = {left.x, left.y}, first_key[2] = {right.x, right.y};
                const unsigned second[2] = {left.z, left.w}, second_key[2] = {right.z, right.w};
                multiply_8x8x16(scores[tile][0], scores[tile][1], first, first_key);
                multiply_8x8x16(scores[tile][0], scores[tile][1], second, second_key);
            }
        float next = peak;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& score = scores[i / 2][i % 2];
            bool exists = start + i / 2 * 8 + 2 * pair + i % 2 < own.end;
            score = exists ? score * scale : LOWEST;
            next = fmaxf(next, score);
        }
        next = fmaxf(next, exchange(next, 1));
        next = fmaxf(next, exchange(next, 2));
        float factor = exp2f(peak - next);
        peak = next, sum *= factor;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& score = scores[i / 2][i % 2];
            // No key has the lowest score: it stands for places past the end.
            score = score == LOWEST ? 0 : exp2f(score - peak);
            sum += score;
        }
        const unsigned weights[2] = {word_of(scores[0][0], scores[0][1]), word_of(scores[1][0], scores[1][1])};
#pragma unroll
        for (int place = 0; place < PLACES; place++) {
            const unsigned* words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = &value[i][place].words.x;
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                // The numbers i of two values in a word.
                const unsigned column[2] = {
                    half_words(words[0][i / 2], words[1][i / 2], i % 2),
                    half_words(words[2][i / 2], words[3][i / 2], i % 2)};
                float(&total)[2] = mixed[place][i];
                total[0] *= factor, total[1] *= factor;
                multiply_8x8x16(total[0], total[1], weights, column);
            }
        }
    }
    sum += exchange(sum, 1);
    sum += exchange(sum, 2);

    float* all = (float*)(numbers_of_blocks + SPAN / TOKENS);  // [WARPS, MMA_QUERIES, WIDTH]
    float* totals = all + WARPS * MMA_QUERIES * WIDTH;         // [WARPS, MMA_QUERIES, 2]
    if (group < own.count) {
        int at = warp * MMA_QUERIES + group;
#pragma unroll
        for (int place = 0; place < PLACES; place++)
#pragma unroll
            for (int i = 0; i < PACK; i++)
                for (int n = 0; n < 2; n++)
                    all[at * WIDTH + place * 64 + (2 * pair + n) * PACK + i] = mixed[place][i][n];
        if (pair == 0) totals[at * 2] = peak, totals[at * 2 + 1] = sum;
    }
    __syncthreads();
    write_span(own, all, totals, outs, sums, to, heads, WIDTH, spans, MMA_QUERIES);
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
            float weight = exp2f(sums[span * 2] - peak);
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
#define ATTEND_SPAN_MMA(name, width, at_a_time)                                                                       \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, at_a_time) name(                                         \
        const bf16* queries, const bf16* cache, const int* tables, const int* lengths, float* outs, float* sums,      \
        bf16* to, int heads, int kv_heads, int, int blocks, int spans) {                                              \
        attend_span_mma<width>(queries, cache, tables, lengths, outs, sums, to, heads, kv_heads, blocks, spans);      \
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
ATTEND_SPAN_MMA(attend_span_mma_64, 64, 4)
ATTEND_SPAN_MMA(attend_span_mma_128, 128, 3)
ATTEND_SPAN_MMA(attend_span_mma_256, 256, 2)
MERGE_SPANS(merge_spans_bf16, bf16)
MERGE_SPANS(merge_spans_f32, float)
