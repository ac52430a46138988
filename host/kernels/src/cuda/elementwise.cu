// Operations between the matrix products of a transformer, each in one pass over memory. All sums are in f32, and each number
// is rounded once.
//
// Numbers are read and written eight at a time. A row's results depend on that row and its width alone.

const int THREADS = 256;  // threads of a block

// The sum over the `members` threads of a row, in an order that does not depend on other rows. `sums` has a place for each
// thread of the block; all of them call it.
__device__ float sum_of_row(float* sums, float value, int members) {
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = members / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x % members < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    float total = sums[threadIdx.x / members * members];
    // All have read the total before the next sum replaces it.
    __syncthreads();
    return total;
}

// The row of this thread, of which each block has `THREADS / members`, and its first column.
struct Place {
    long long start;  // index of the row's first number
    int row, first, step;
    bool inside;

    __device__ Place(int rows, int width, int members) {
        row = blockIdx.x * (THREADS / members) + threadIdx.x / members;
        inside = row < rows;
        start = (long long)row * width;
        first = threadIdx.x % members * PACK;
        step = members * PACK;
    }
};

// Writes x reciprocal gain of a row.
template <class T>
__device__ void scale_row(const T* x, float reciprocal, const float* gain, T* out, int width, const Place& own) {
    for (int i = own.first; i < width; i += own.step) {
        Numbers numbers = load(x + own.start + i), gains = load(gain + i);
        for (int j = 0; j < PACK; j++) numbers.at[j] = numbers.at[j] * reciprocal * gains.at[j];
        store(out + own.start + i, numbers);
    }
}

// x / rms(x) gain, and the reciprocals of rms(x).
template <class T>
__device__ void rms_norm(
    const T* x, const float* gain, T* out, float* reciprocals, int rows, int width, int members, float epsilon) {
    SHARED_MEMORY(shared);
    Place own(rows, width, members);
    float squares = 0;
    if (own.inside)
        for (int i = own.first; i < width; i += own.step) {
            Numbers numbers = load(x + own.start + i);
            for (int j = 0; j < PACK; j++) squares = fmaf(numbers.at[j], numbers.at[j], squares);
        }
    float reciprocal = 1 / sqrtf(sum_of_row((float*)shared, squares, members) / width + epsilon);
    if (!own.inside) return;
    scale_row(x, reciprocal, gain, out, width, own);
    if (own.first == 0) reciprocals[own.row] = reciprocal;
}

// The numbers after rounding to the number format of a pointer.
__device__ __forceinline__ Numbers rounded(const bf16*, Numbers numbers) {
    for (int j = 0; j < PACK; j++) numbers.at[j] = low_bf16(to_bf16(numbers.at[j]));
    return numbers;
}

__device__ __forceinline__ Numbers rounded(const float*, const Numbers& numbers) {
    return numbers;
}

// The sum x + y, rounded, and its sum / rms(sum) gain with the bits of `rms_norm`.
template <class T>
__device__ void add_rms_norm(
    const T* x, const T* y, const float* gain, T* sum, T* out, int rows, int width, int members, float epsilon) {
    SHARED_MEMORY(shared);
    Place own(rows, width, members);
    float squares = 0;
    if (own.inside)
        for (int i = own.first; i < width; i += own.step) {
            Numbers numbers = load(x + own.start + i), others = load(y + own.start + i);
            for (int j = 0; j < PACK; j++) numbers.at[j] += others.at[j];
            numbers = rounded(sum, numbers);
            store(sum + own.start + i, numbers);
            for (int j = 0; j < PACK; j++) squares = fmaf(numbers.at[j], numbers.at[j], squares);
        }
    float reciprocal = 1 / sqrtf(sum_of_row((float*)shared, squares, members) / width + epsilon);
    // A thread reads the sums that it wrote itself.
    if (own.inside) scale_row(sum, reciprocal, gain, out, width, own);
}

// x reciprocal gain.
template <class T>
__device__ void normalize(
    const T* x, const float* reciprocals, const float* gain, T* out, int rows, int width, int members) {
    Place own(rows, width, members);
    if (own.inside) scale_row(x, reciprocals[own.row], gain, out, width, own);
}

// With n = x reciprocal: reciprocal (dy gain - n mean(dy gain n)).
template <class T>
__device__ void normalize_backward(
    const T* gradient, const T* x, const float* reciprocals, const float* gain, T* out, int rows, int width,
    int members) {
    SHARED_MEMORY(shared);
    Place own(rows, width, members);
    float reciprocal = own.inside ? reciprocals[own.row] : 0;
    float products = 0;
    if (own.inside)
        for (int i = own.first; i < width; i += own.step) {
            Numbers dy = load(gradient + own.start + i), numbers = load(x + own.start + i), gains = load(gain + i);
            for (int j = 0; j < PACK; j++)
                products = fmaf(dy.at[j] * gains.at[j], numbers.at[j] * reciprocal, products);
        }
    float mean = sum_of_row((float*)shared, products, members) / width;
    if (!own.inside) return;
    for (int i = own.first; i < width; i += own.step) {
        Numbers dy = load(gradient + own.start + i), numbers = load(x + own.start + i), gains = load(gain + i);
        for (int j = 0; j < PACK; j++)
            dy.at[j] = reciprocal * (dy.at[j] * gains.at[j] - numbers.at[j] * reciprocal * mean);
        store(out + own.start + i, dy);
    }
}

// Sums over the rows of a block of dy x reciprocal, [blocks, width]. Block (x, y) has `chunk` rows and 256 packs of columns.
template <class T>
__device__ void gain_gradient(
    const T* gradient, const T* x, const float* reciprocals, float* sums, int rows, int width, int chunk) {
    SHARED_MEMORY(shared);
    Numbers* all = (Numbers*)shared;
    // Narrow rows leave threads for several of them.
    int packs = width / PACK, columns = min(packs, THREADS), groups = THREADS / columns;
    int column = threadIdx.x % columns, group = threadIdx.x / columns, pack = blockIdx.y * THREADS + column;
    bool inside = group < groups && pack < packs;
    int end = min(rows, (int)(blockIdx.x + 1) * chunk);
    Numbers total = {};
    if (inside)
        for (int row = blockIdx.x * chunk + group; row < end; row += groups) {
            long long first = (long long)row * width + pack * PACK;
            Numbers dy = load(gradient + first), numbers = load(x + first);
            for (int j = 0; j < PACK; j++)
                total.at[j] = fmaf(dy.at[j], numbers.at[j] * reciprocals[row], total.at[j]);
        }
    all[threadIdx.x] = total;
    __syncthreads();
    if (!inside || group > 0) return;
    for (int other = 1; other < groups; other++)
        for (int j = 0; j < PACK; j++) total.at[j] += all[other * columns + column].at[j];
    store(sums + (long long)blockIdx.x * width + pack * PACK, total);
}

// Number of this thread's first number among those of an operation on single numbers.
__device__ long long first_number() {
    return ((long long)blockIdx.x * THREADS + threadIdx.x) * PACK;
}

// x cos + swapped sin of heads of `width` numbers, where `swapped` has the halves of x exchanged. Tables have a row for the
// `heads` heads of a token.
template <class T>
__device__ void rotate(
    const T* x, const float* cosines, const float* sines, T* out, int count, int heads, int width, float sign) {
    long long first = first_number();
    if (first >= count) return;
    int column = first % width, half = width / 2;
    long long token = first / width / heads;
    Numbers numbers = load(x + first), swapped = load(x + first + (column < half ? half : -half));
    Numbers cosine = load(cosines + token * width + column), sine = load(sines + token * width + column);
    for (int j = 0; j < PACK; j++)
        numbers.at[j] = fmaf(swapped.at[j], sign * sine.at[j], numbers.at[j] * cosine.at[j]);
    store(out + first, numbers);
}

// Heads of tokens: `heads` of queries, `kv_heads` of keys and as many of values. Queries and keys are normed if they have a
// gain, rounded as `rms_norm` rounds, and rotated. Queries go to `out`; keys and values go to the slot of their token in
// `cache`, which has the keys of a token, then its values. A warp has a head, of at most 32 packs.
template <class T>
__device__ void rotate_and_store(
    const T* x, const float* q_gain, const float* k_gain, const float* cosines, const float* sines,
    const long long* slots, T* out, T* cache, int tokens, int heads, int kv_heads, int width, float epsilon) {
    SHARED_MEMORY(shared);
    int all = heads + 2 * kv_heads;
    Place own(tokens * all, width, 32);
    bool inside = own.inside && own.first < width;
    Numbers numbers;
    float squares = 0;
    if (inside) {
        numbers = load(x + own.start + own.first);
        for (int j = 0; j < PACK; j++) squares = fmaf(numbers.at[j], numbers.at[j], squares);
    }
    float reciprocal = 1;
    if (q_gain || k_gain) reciprocal = 1 / sqrtf(sum_of_row((float*)shared, squares, 32) / width + epsilon);
    if (!inside) return;

    int token = own.row / all, head = own.row % all, column = own.first, half = width / 2;
    bool is_query = head < heads, is_value = head >= heads + kv_heads;
    if (!is_value) {
        // The other half of the head is computed here too: that is faster than an exchange.
        int other = column < half ? column + half : column - half;
        Numbers swapped = load(x + own.start + other);
        const float* gain = is_query ? q_gain : k_gain;
        if (gain) {
            Numbers gains = load(gain + column), other_gains = load(gain + other);
            for (int j = 0; j < PACK; j++) {
                numbers.at[j] = numbers.at[j] * reciprocal * gains.at[j];
                swapped.at[j] = swapped.at[j] * reciprocal * other_gains.at[j];
            }
            numbers = rounded(x, numbers);
            swapped = rounded(x, swapped);
        }
        long long row = (long long)token * width + column;
        Numbers cosine = load(cosines + row), sine = load(sines + row);
        for (int j = 0; j < PACK; j++)
            numbers.at[j] = fmaf(swapped.at[j], sine.at[j], numbers.at[j] * cosine.at[j]);
    }
    T* to = is_query ? out + ((long long)token * heads + head) * width
                     : cache + (slots[token] * 2 * kv_heads + head - heads) * width;
    store(to + column, numbers);
}

__device__ __forceinline__ float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

// silu(gate) up, for rows of `width` numbers. Rows of both factors begin `stride` numbers apart.
template <class T>
__device__ void gated(const T* gate, const T* up, T* out, int count, int width, int stride) {
    long long first = first_number();
    if (first >= count) return;
    long long from = first / width * stride + first % width;
    Numbers gates = load(gate + from), ups = load(up + from);
    for (int j = 0; j < PACK; j++) gates.at[j] = gates.at[j] * sigmoid(gates.at[j]) * ups.at[j];
    store(out + first, gates);
}

template <class T>
__device__ void gated_backward(const T* gradient, const T* gate, const T* up, T* d_gate, T* d_up, int count) {
    long long first = first_number();
    if (first >= count) return;
    Numbers dy = load(gradient + first), gates = load(gate + first), ups = load(up + first);
    Numbers gate_gradients, up_gradients;
    for (int j = 0; j < PACK; j++) {
        float share = sigmoid(gates.at[j]);
        up_gradients.at[j] = dy.at[j] * gates.at[j] * share;
        gate_gradients.at[j] = dy.at[j] * ups.at[j] * share * (1 + gates.at[j] * (1 - share));
    }
    store(d_gate + first, gate_gradients);
    store(d_up + first, up_gradients);
}

#define ELEMENTWISE(suffix, T)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS) rms_norm_##suffix(                                          \
        const T* x, const float* gain, T* out, float* reciprocals, int rows, int width, int members, float epsilon) { \
        rms_norm<T>(x, gain, out, reciprocals, rows, width, members, epsilon);                                        \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) add_rms_norm_##suffix(                                      \
        const T* x, const T* y, const float* gain, T* sum, T* out, int rows, int width, int members,                  \
        float epsilon) {                                                                                              \
        add_rms_norm<T>(x, y, gain, sum, out, rows, width, members, epsilon);                                         \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) rotate_and_store_##suffix(                                  \
        const T* x, const float* q_gain, const float* k_gain, const float* cosines, const float* sines,               \
        const long long* slots, T* out, T* cache, int tokens, int heads, int kv_heads, int width,                     \
        float epsilon) {                                                                                              \
        rotate_and_store<T>(                                                                                          \
            x, q_gain, k_gain, cosines, sines, slots, out, cache, tokens, heads, kv_heads, width, epsilon);           \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) normalize_##suffix(                                         \
        const T* x, const float* reciprocals, const float* gain, T* out, int rows, int width, int members) {          \
        normalize<T>(x, reciprocals, gain, out, rows, width, members);                                                \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) normalize_backward_##suffix(                                \
        const T* gradient, const T* x, const float* reciprocals, const float* gain, T* out, int rows, int width,      \
        int members) {                                                                                                \
        normalize_backward<T>(gradient, x, reciprocals, gain, out, rows, width, members);                             \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) gain_gradient_##suffix(                                    \
        const T* gradient, const T* x, const float* reciprocals, float* sums, int rows, int width, int chunk) {       \
        gain_gradient<T>(gradient, x, reciprocals, sums, rows, width, chunk);                                         \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) rotate_##suffix(                                            \
        const T* x, const float* cosines, const float* sines, T* out, int count, int heads, int width, float sign) {  \
        rotate<T>(x, cosines, sines, out, count, heads, width, sign);                                                 \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) gated_##suffix(                                             \
        const T* gate, const T* up, T* out, int count, int width, int stride) {                                       \
        gated<T>(gate, up, out, count, width, stride);                                                                \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS) gated_backward_##suffix(                                    \
        const T* gradient, const T* gate, const T* up, T* d_gate, T* d_up, int count) {                               \
        gated_backward<T>(gradient, gate, up, d_gate, d_up, count);                                                   \
    }
ELEMENTWISE(bf16, bf16)
ELEMENTWISE(f32, float)
