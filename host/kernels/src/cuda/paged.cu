// Attention of one query per sequence to its keys and values, which are in blocks anywhere in memory.
//
// A block of threads has the query heads that share a head of keys, at most 8, and 256 keys of one sequence: it computes all
// their scores, one softmax, and the weighted sum of the values. A second kernel merges a sequence's parts in their order. A
// row's results depend on that row alone: the division of its keys does not depend on other rows.

const int THREADS = 128;      // threads of a block
const int QUERIES = 8;        // largest number of query heads of a block
const int SPAN = 256;         // keys of a block
const int TILE = 32;          // keys that are loaded together, one per lane of a warp
const int WARPS = THREADS / 32;
const int STAGES = 3;         // tiles that are loaded or being loaded
const int SHARES = THREADS / QUERIES;  // threads of a query's softmax
const int TOKENS = 16;        // tokens of a block of the cache
const int COPY = 16;          // bytes of one copy, and of the distance of rows beyond their width, to avoid bank conflicts

// Numbers of the cache, 16 bytes at a time and in pairs.
template <class T>
struct Format;

template <>
struct Format<bf16> {
    static const int NUMBERS = 8;

    static __device__ void widen(const unsigned char* from, float (&to)[NUMBERS]) {
        uint4 words = *(const uint4*)from;
        to[0] = low_bf16(words.x), to[1] = high_bf16(words.x), to[2] = low_bf16(words.y), to[3] = high_bf16(words.y);
        to[4] = low_bf16(words.z), to[5] = high_bf16(words.z), to[6] = low_bf16(words.w), to[7] = high_bf16(words.w);
    }

    static __device__ void pair(const unsigned char* row, int index, float& first, float& second) {
        unsigned word = ((const unsigned*)row)[index];
        first = low_bf16(word), second = high_bf16(word);
    }

    static __device__ bf16 number(float value) {
        return to_bf16(value);
    }

    static __device__ float value(bf16 number) {
        return low_bf16(number);
    }
};

template <>
struct Format<float> {
    static const int NUMBERS = 4;

    static __device__ void widen(const unsigned char* from, float (&to)[NUMBERS]) {
        float4 numbers = *(const float4*)from;
        to[0] = numbers.x, to[1] = numbers.y, to[2] = numbers.z, to[3] = numbers.w;
    }

    static __device__ void pair(const unsigned char* row, int index, float& first, float& second) {
        first = ((const float*)row)[2 * index], second = ((const float*)row)[2 * index + 1];
    }

    static __device__ float number(float value) {
        return value;
    }

    static __device__ float value(float number) {
        return number;
    }
};

// Keys and values of one head of one sequence, from the position `first` to before `end`.
template <class T>
struct Context {
    const T* cache;  // [slots, 2, kv_heads, width]: a token's keys, then its values
    const int* table;
    int first, end;
    int kv_heads, head, width;

    __device__ int tiles() const {
        return (end - first + TILE - 1) / TILE;
    }

    __device__ int pitch() const {
        return width * (int)sizeof(T) + COPY;
    }

    // Number of keys of a tile.
    __device__ int keys(int tile) const {
        return min(TILE, end - first - tile * TILE);
    }

    // Starts to copy a tile of keys, or of values, to shared memory.
    __device__ void load(unsigned char* shared, int tile, bool values) const {
        int copies = width * (int)sizeof(T) / COPY;
        for (int copy = threadIdx.x; copy < TILE * copies; copy += THREADS) {
            int key = copy / copies, part = copy % copies;
            int position = first + tile * TILE + key;
            bool inside = position < end;
            long long slot = inside ? (long long)table[position / TOKENS] * TOKENS + position % TOKENS : 0;
            const T* from = cache + ((slot * 2 + values) * kv_heads + head) * width + part * (COPY / (int)sizeof(T));
            copy_16_bytes(shared + key * pitch() + part * COPY, from, inside);
        }
    }
};

// Writes the scores of a tile: a thread has one key, and every fourth query.
template <class T>
__device__ void score(float* scores, const float* queries, const unsigned char* tile, int keys, int count, int pitch, int width) {
    int key = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (key >= keys || warp >= count) return;
    bool second = warp + WARPS < count;
    const float* own[2] = {queries + warp * width, queries + (warp + (second ? WARPS : 0)) * width};
    float sums[2] = {0, 0};
    for (int i = 0; i < width; i += Format<T>::NUMBERS) {
        float numbers[Format<T>::NUMBERS];
        Format<T>::widen(tile + key * pitch + i * (int)sizeof(T), numbers);
#pragma unroll
        for (int query = 0; query < 2; query++) {
            if (query == 1 && !second) continue;
#pragma unroll
            for (int j = 0; j < Format<T>::NUMBERS; j += 4) {
                float4 part = *(const float4*)(own[query] + i + j);
                sums[query] = fmaf(part.x, numbers[j], sums[query]);
                sums[query] = fmaf(part.y, numbers[j + 1], sums[query]);
                sums[query] = fmaf(part.z, numbers[j + 2], sums[query]);
                sums[query] = fmaf(part.w, numbers[j + 3], sums[query]);
            }
        }
    }
    scores[warp * SPAN + key] = sums[0];
    if (second) scores[(warp + WARPS) * SPAN + key] = sums[1];
}

// Replaces scores by exp(score - largest score). The thread with share 0 of a query returns its largest score and the sum.
__device__ void exponentiate(float* scores, float* shares, int keys, int count, float& peak, float& sum) {
    int query = threadIdx.x / SHARES, share = threadIdx.x % SHARES;
    float* own = scores + query * SPAN;
    peak = -3.4028234e38f;
    sum = 0;
    if (query < count)
        for (int key = share; key < keys; key += SHARES) peak = fmaxf(peak, own[key]);
    shares[threadIdx.x] = peak;
    __syncthreads();
    for (int i = 0; i < SHARES; i++) peak = fmaxf(peak, shares[query * SHARES + i]);
    // All have read the largest scores before sums replace them.
    __syncthreads();
    if (query < count)
        for (int key = share; key < keys; key += SHARES) {
            own[key] = expf(own[key] - peak);
            sum += own[key];
        }
    shares[threadIdx.x] = sum;
    __syncthreads();
    if (share != 0) return;
    for (int i = 1; i < SHARES; i++) sum += shares[query * SHARES + i];
}

// Block (x, y): a row's head of keys with at most 8 of its queries, and the keys from 256 y on. Writes the weighted sums of
// the values, [rows, heads, spans, width], and the largest score and the sum of weights, [rows, heads, spans, 2].
template <class T>
__device__ void attend_span(
    const T* queries, const T* cache, const int* tables, const int* lengths, float* outs, float* sums, int heads,
    int kv_heads, int width, int blocks, int spans) {
    SHARED_MEMORY(shared);
    int group = heads / kv_heads, parts = (group + QUERIES - 1) / QUERIES;
    int row = blockIdx.x / (kv_heads * parts), kv_head = blockIdx.x / parts % kv_heads, part = blockIdx.x % parts;
    int first_head = kv_head * group + part * QUERIES, count = min(QUERIES, group - part * QUERIES);
    int first = blockIdx.y * SPAN, end = min(first + SPAN, lengths[row]);
    if (first >= end) return;
    Context<T> context = {cache, tables + (long long)row * blocks, first, end, kv_heads, kv_head, width};
    int tiles = context.tiles(), pitch = context.pitch();

    float* own = (float*)shared;               // [QUERIES, width]
    float* scores = own + QUERIES * width;     // [QUERIES, SPAN]
    float* shares = scores + QUERIES * SPAN;   // [THREADS]
    unsigned char* stages = (unsigned char*)(shares + THREADS);
    float scale = 1 / sqrtf((float)width);
    for (int i = threadIdx.x; i < count * width; i += THREADS)
        own[i] = Format<T>::value(queries[((long long)row * heads + first_head) * width + i]) * scale;

    // Each thread has a pair of dimensions, and every `members`-th key.
    int members = THREADS / (width / 2), member = threadIdx.x / (width / 2), pair = threadIdx.x % (width / 2);
    float mixed[QUERIES][2];
#pragma unroll
    for (int query = 0; query < QUERIES; query++) mixed[query][0] = mixed[query][1] = 0;

    // All tiles of keys, then all tiles of values.
    for (int tile = 0; tile < STAGES - 1; tile++) {
        if (tile < 2 * tiles) context.load(stages + tile * TILE * pitch, tile % tiles, tile >= tiles);
        end_copies();
    }
    for (int tile = 0; tile < 2 * tiles; tile++) {
        wait_for_copies<STAGES - 2>();
        // Now all threads can read this tile, and none reads the previous one.
        __syncthreads();
        int next = tile + STAGES - 1;
        if (next < 2 * tiles) context.load(stages + next % STAGES * TILE * pitch, next % tiles, next >= tiles);
        // Also without copies, so that the wait above is for the same tile in every iteration.
        end_copies();
        const unsigned char* stage = stages + tile % STAGES * TILE * pitch;
        int keys = context.keys(tile % tiles);
        if (tile < tiles) {
            score<T>(scores + tile * TILE, own, stage, keys, count, pitch, width);
            continue;
        }
        if (tile == tiles) {
            float peak, sum;
            exponentiate(scores, shares, end - first, count, peak, sum);
            int query = threadIdx.x / SHARES;
            if (threadIdx.x % SHARES == 0 && query < count) {
                float* to = sums + (((long long)row * heads + first_head + query) * spans + blockIdx.y) * 2;
                to[0] = peak;
                to[1] = sum;
            }
        }
        if (member >= members) continue;
        const float* weights = scores + (tile - tiles) * TILE;
        for (int key = member; key < keys; key += members) {
            float values[2];
            Format<T>::pair(stage + key * pitch, pair, values[0], values[1]);
#pragma unroll
            for (int query = 0; query < QUERIES; query++) {
                if (query >= count) continue;
                float weight = weights[query * SPAN + key];
                mixed[query][0] = fmaf(weight, values[0], mixed[query][0]);
                mixed[query][1] = fmaf(weight, values[1], mixed[query][1]);
            }
        }
    }
    wait_for_copies<0>();
    __syncthreads();
    // The tiles are free now: [members, QUERIES, width].
    float* all = (float*)stages;
    if (member < members)
#pragma unroll
        for (int query = 0; query < QUERIES; query++)
            for (int i = 0; i < 2; i++) all[(member * QUERIES + query) * width + 2 * pair + i] = mixed[query][i];
    __syncthreads();
    for (int i = threadIdx.x; i < count * width; i += THREADS) {
        float sum = 0;
        for (int from = 0; from < members; from++) sum += all[from * QUERIES * width + i];
        int query = i / width, dimension = i % width;
        outs[(((long long)row * heads + first_head + query) * spans + blockIdx.y) * width + dimension] = sum;
    }
}

// Block x: a row's head. Merges its parts.
template <class T>
__device__ void merge_spans(
    const float* outs, const float* sums, const int* lengths, T* to, int heads, int width, int spans) {
    int own = (lengths[blockIdx.x / heads] + SPAN - 1) / SPAN;
    outs += (long long)blockIdx.x * spans * width;
    sums += (long long)blockIdx.x * spans * 2;
    float peak = sums[0];
    for (int span = 1; span < own; span++) peak = fmaxf(peak, sums[span * 2]);
    for (int dimension = threadIdx.x; dimension < width; dimension += THREADS) {
        float total = 0, mixed = 0;
        for (int span = 0; span < own; span++) {
            float weight = expf(sums[span * 2] - peak);
            total = fmaf(weight, sums[span * 2 + 1], total);
            mixed = fmaf(weight, outs[span * width + dimension], mixed);
        }
        to[(long long)blockIdx.x * width + dimension] = Format<T>::number(mixed / total);
    }
}

#define PAGED_ATTENTION(suffix, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) attend_span_##suffix(                                       \
        const T* queries, const T* cache, const int* tables, const int* lengths, float* outs, float* sums, int heads, \
        int kv_heads, int width, int blocks, int spans) {                                                             \
        attend_span<T>(queries, cache, tables, lengths, outs, sums, heads, kv_heads, width, blocks, spans);           \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) merge_spans_##suffix(                                       \
        const float* outs, const float* sums, const int* lengths, T* to, int heads, int width, int spans) {           \
        merge_spans<T>(outs, sums, lengths, to, heads, width, spans);                                                 \
    }
PAGED_ATTENTION(bf16, bf16)
PAGED_ATTENTION(f32, float)
