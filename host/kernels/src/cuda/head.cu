// The output head of a language model without its logits in memory.
//
// Logits z = W h / T of one row h of `hidden` [rows, width] against all rows of `unembed` [vocabulary, width] are
// computed tile by tile, 128 rows by 128 ids, and used up where they are: in the registers of the threads that
// computed them. A softmax over a vocabulary needs the sum of exp(z), its entropy the sum of z exp(z); both are kept
// as running sums relative to the largest logit so far (Milakov and Gimelshein 2018), first by each thread for the
// logits it holds, then merged.
//
// A row's results depend on that row alone: which ids a thread holds, and the order in which sums are merged, do not
// depend on how many rows there are.

typedef unsigned short bf16;  // its bits

const int TILE = 128;      // rows and ids of a tile
const int THREADS = 256;   // of a block
const int HELD = 8;        // rows, and ids, of a tile that a thread holds logits of
const int SHARERS = 16;    // threads that hold logits of one row
const int SLICE = 64;      // bytes of a row's inputs that are in shared memory at a time
const int PITCH = 80;      // bytes from one row to the next there: 16 more, so that no two threads meet in a bank
const int STAGES = 3;      // slices that are there or on their way
const int SPAN = 2048;     // ids that one block goes through
const int COPY = 16;       // bytes of one copy

// A matrix [rows, width] of numbers of type T.
template <class T>
struct Matrix {
    const T* values;
    int rows;
    int width;
    // Whether every row begins at a multiple of 16 bytes.
    bool aligned;

    __device__ Matrix(const T* values, int rows, int width) : values(values), rows(rows), width(width) {
        aligned = (unsigned long long)values % COPY == 0 && width * sizeof(T) % COPY == 0;
    }

    // Begins to copy a slice of the 128 rows from `first` on to shared memory; zeros stand for what lies outside.
    __device__ void load(unsigned char* shared, int first, int slice) const {
        const int numbers = COPY / sizeof(T);
        for (int copy = threadIdx.x; copy < TILE * (SLICE / COPY); copy += THREADS) {
            int row = copy / (SLICE / COPY), part = copy % (SLICE / COPY);
            int column = slice * (SLICE / (int)sizeof(T)) + part * numbers;
            unsigned char* to = shared + row * PITCH + part * COPY;
            long long from = (long long)(first + row) * width + column;
            if (aligned) {
                bool there = first + row < rows && column < width;
                copy_16_bytes(to, values + (there ? from : 0), there);
            } else {
                for (int i = 0; i < numbers; i++) {
                    bool there = first + row < rows && column + i < width;
                    ((T*)to)[i] = there ? values[from + i] : (T)0;
                }
            }
        }
    }

    __device__ int slices() const {
        return (width * (int)sizeof(T) + SLICE - 1) / SLICE;
    }
};

// Tiles in bf16 on tensor cores, with sums in f32. Eight warps, each with 64 rows and 32 ids of the tile.
struct TensorCores {
    typedef bf16 Number;
    static const int BLOCKS = 2;  // on a multiprocessor at a time: what registers and shared memory allow

    // Row, in the tile, of the `i`-th one that this thread holds.
    static __device__ int row(int i) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        return warp / 4 * 64 + i / 2 * 16 + i % 2 * 8 + lane / 4;
    }

    // Id, in the tile, of the `j`-th one that this thread holds.
    static __device__ int column(int j) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        return warp % 4 * 32 + j / 2 * 8 + lane % 4 * 2 + j % 2;
    }

    // Which one this thread is among those that share its rows.
    static __device__ int sharer() {
        return threadIdx.x / 32 % 4 * 4 + threadIdx.x % 4;
    }

    // Adds the products over one slice.
    static __device__ void multiply(float (&sums)[HELD][HELD], const unsigned char* h, const unsigned char* w) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const unsigned char* rows = h + (warp / 4 * 64 + lane / 4) * PITCH + lane % 4 * 4;
        const unsigned char* ids = w + (warp % 4 * 32 + lane / 4) * PITCH + lane % 4 * 4;
#pragma unroll
        for (int k = 0; k < SLICE; k += 32) {
            unsigned b[HELD / 2][2];
#pragma unroll
            for (int n = 0; n < HELD / 2; n++) {
                b[n][0] = *(const unsigned*)(ids + n * 8 * PITCH + k);
                b[n][1] = *(const unsigned*)(ids + n * 8 * PITCH + k + 16);
            }
#pragma unroll
            for (int m = 0; m < HELD / 2; m++) {
                unsigned a[4];
                a[0] = *(const unsigned*)(rows + m * 16 * PITCH + k);
                a[1] = *(const unsigned*)(rows + (m * 16 + 8) * PITCH + k);
                a[2] = *(const unsigned*)(rows + m * 16 * PITCH + k + 16);
                a[3] = *(const unsigned*)(rows + (m * 16 + 8) * PITCH + k + 16);
#pragma unroll
                for (int n = 0; n < HELD / 2; n++) {
                    multiply_16x8x16(
                        sums[2 * m][2 * n], sums[2 * m][2 * n + 1], sums[2 * m + 1][2 * n],
                        sums[2 * m + 1][2 * n + 1], a, b[n]);
                }
            }
        }
    }

    // To the nearest bf16, ties to even.
    static __device__ bf16 number(float value) {
        unsigned bits = __float_as_uint(value);
        if (value != value) return 0x7fff;
        return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

// Tiles in f32 on the ordinary units. Threads form a square of 16 by 16; each has every 16th row and id.
struct OrdinaryUnits {
    typedef float Number;
    static const int BLOCKS = 1;

    static __device__ int row(int i) {
        return threadIdx.x / 16 + i * 16;
    }

    static __device__ int column(int j) {
        return threadIdx.x % 16 + j * 16;
    }

    static __device__ int sharer() {
        return threadIdx.x % 16;
    }

    static __device__ void multiply(float (&sums)[HELD][HELD], const unsigned char* h, const unsigned char* w) {
        const unsigned char* rows = h + threadIdx.x / 16 * PITCH;
        const unsigned char* ids = w + threadIdx.x % 16 * PITCH;
#pragma unroll
        for (int k = 0; k < SLICE; k += COPY) {
            float4 b[HELD];
#pragma unroll
            for (int j = 0; j < HELD; j++) b[j] = *(const float4*)(ids + j * 16 * PITCH + k);
#pragma unroll
            for (int i = 0; i < HELD; i++) {
                float4 a = *(const float4*)(rows + i * 16 * PITCH + k);
#pragma unroll
                for (int j = 0; j < HELD; j++) {
                    float sum = fmaf(a.x, b[j].x, sums[i][j]);
                    sum = fmaf(a.y, b[j].y, sum);
                    sum = fmaf(a.z, b[j].z, sum);
                    sums[i][j] = fmaf(a.w, b[j].w, sum);
                }
            }
        }
    }

    static __device__ float number(float value) {
        return value;
    }
};

const int STAGE = 2 * TILE * PITCH;  // bytes of a slice of both matrices

// sums[i][j] = product of row `row(i)` of the tile from `first_row` on with id `column(j)` of that from `first_id` on.
// `shared` holds STAGES stages; when this returns, no thread reads it any more.
template <class Units>
__device__ void tile(
    float (&sums)[HELD][HELD], unsigned char* shared, const Matrix<typename Units::Number>& hidden, int first_row,
    const Matrix<typename Units::Number>& unembed, int first_id) {
    int slices = hidden.slices();
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < HELD; j++) sums[i][j] = 0;
    for (int slice = 0; slice < STAGES - 1; slice++) {
        if (slice < slices) {
            hidden.load(shared + slice * STAGE, first_row, slice);
            unembed.load(shared + slice * STAGE + TILE * PITCH, first_id, slice);
        }
        end_copies();
    }
    for (int slice = 0; slice < slices; slice++) {
        wait_for_copies<STAGES - 2>();
        // From here on this slice is there for every thread, and none reads the one before it.
        __syncthreads();
        int next = slice + STAGES - 1;
        if (next < slices) {
            unsigned char* stage = shared + next % STAGES * STAGE;
            hidden.load(stage, first_row, next);
            unembed.load(stage + TILE * PITCH, first_id, next);
        }
        // An empty group counts as one too, so that the wait above means the same in every round.
        end_copies();
        const unsigned char* stage = shared + slice % STAGES * STAGE;
        Units::multiply(sums, stage, stage + TILE * PITCH);
    }
    wait_for_copies<0>();
    __syncthreads();
}

// Sums over some of a row's logits, relative to the largest of them.
struct Running {
    float peak;   // the largest logit
    float sum;    // of exp(z - peak)
    float slant;  // of (z - peak) exp(z - peak)

    __device__ void clear() {
        peak = -3.4028234e38f;
        sum = 0;
        slant = 0;
    }

    // The same sums relative to a larger logit.
    __device__ void raise(float to) {
        float shift = peak - to;
        float scale = expf(shift);
        // Without any logits yet, `shift` may be infinite.
        slant = sum == 0 ? 0 : (slant + shift * sum) * scale;
        sum *= scale;
        peak = to;
    }

    __device__ void add(float logit) {
        float below = logit - peak;
        float weight = expf(below);
        sum += weight;
        slant = fmaf(below, weight, slant);
    }

    __device__ void merge(Running other) {
        if (other.sum == 0) return;
        float to = fmaxf(peak, other.peak);
        raise(to);
        other.raise(to);
        sum += other.sum;
        slant += other.slant;
    }
};

// Block (x, y): rows from 128 x on, ids from 2048 y on. Writes the sums over these ids, [spans, 3, rows], and each
// row's logit of its token, [rows].
template <class Units>
__device__ void partial_sums(
    const typename Units::Number* hidden_values, const typename Units::Number* unembed_values, const long long* tokens,
    const float* temperatures, float* partial, float* picked, int rows, int width, int vocabulary) {
    SHARED_MEMORY(shared);
    Matrix<typename Units::Number> hidden(hidden_values, rows, width);
    Matrix<typename Units::Number> unembed(unembed_values, vocabulary, width);
    int first_row = blockIdx.x * TILE;
    int end = min((int)(blockIdx.y + 1) * SPAN, vocabulary);
    Running running[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) running[i].clear();
    for (int first_id = blockIdx.y * SPAN; first_id < end; first_id += TILE) {
        float logits[HELD][HELD];
        tile<Units>(logits, shared, hidden, first_row, unembed, first_id);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            int row = first_row + Units::row(i);
            if (row >= rows) continue;
            float warmth = temperatures ? 1 / temperatures[row] : 1;
            long long token = tokens[row];
            float peak = running[i].peak;
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                logits[i][j] *= warmth;
                if (first_id + Units::column(j) < vocabulary) peak = fmaxf(peak, logits[i][j]);
            }
            running[i].raise(peak);
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                int id = first_id + Units::column(j);
                if (id >= vocabulary) continue;
                running[i].add(logits[i][j]);
                if (id == token) picked[row] = logits[i][j];
            }
        }
    }
    // The buffer is free now: the threads' sums meet there.
    Running* all = (Running*)shared;
#pragma unroll
    for (int i = 0; i < HELD; i++) all[Units::row(i) * SHARERS + Units::sharer()] = running[i];
    __syncthreads();
    int row = first_row + threadIdx.x;
    if (threadIdx.x < TILE && row < rows) {
        Running total = all[threadIdx.x * SHARERS];
        for (int i = 1; i < SHARERS; i++) total.merge(all[threadIdx.x * SHARERS + i]);
        float* to = partial + (long long)blockIdx.y * 3 * rows + row;
        to[0] = total.peak;
        to[rows] = total.sum;
        to[2 * rows] = total.slant;
    }
}

// Block (x, y): rows from 128 x on, ids from first + 128 y on. Writes the gradient with respect to W h of the ids
// [first, first + count), [rows, count]: slope (onehot - softmax) / T.
template <class Units>
__device__ void logit_gradient(
    const typename Units::Number* hidden_values, const typename Units::Number* unembed_values, const long long* tokens,
    const float* temperatures, const float* normalizers, const float* slopes, typename Units::Number* gradient,
    int rows, int width, int vocabulary, int first, int count) {
    SHARED_MEMORY(shared);
    Matrix<typename Units::Number> hidden(hidden_values, rows, width);
    Matrix<typename Units::Number> unembed(unembed_values, vocabulary, width);
    int first_row = blockIdx.x * TILE, first_id = first + blockIdx.y * TILE;
    float logits[HELD][HELD];
    tile<Units>(logits, shared, hidden, first_row, unembed, first_id);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int row = first_row + Units::row(i);
        if (row >= rows) continue;
        float warmth = temperatures ? 1 / temperatures[row] : 1;
        float slope = slopes[row], normalizer = normalizers[row];
        long long token = tokens[row];
        typename Units::Number* to = gradient + (long long)row * count;
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            int id = first_id + Units::column(j);
            if (id >= first + count) continue;
            float probability = expf(logits[i][j] * warmth - normalizer);
            to[id - first] = Units::number(slope * ((id == token ? 1.f : 0.f) - probability) * warmth);
        }
    }
}

#define PARTIAL_SUMS(name, Units)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, Units::BLOCKS) name(                                                   \
        const Units::Number* hidden, const Units::Number* unembed, const long long* tokens,                          \
        const float* temperatures, float* partial, float* picked, int rows, int width, int vocabulary) {             \
        partial_sums<Units>(hidden, unembed, tokens, temperatures, partial, picked, rows, width, vocabulary);        \
    }
PARTIAL_SUMS(partial_sums_bf16, TensorCores)
PARTIAL_SUMS(partial_sums_f32, OrdinaryUnits)

#define LOGIT_GRADIENT(name, Units)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, Units::BLOCKS) name(                                                   \
        const Units::Number* hidden, const Units::Number* unembed, const long long* tokens,                          \
        const float* temperatures, const float* normalizers, const float* slopes, Units::Number* gradient, int rows, \
        int width, int vocabulary, int first, int count) {                                                           \
        logit_gradient<Units>(                                                                                       \
            hidden, unembed, tokens, temperatures, normalizers, slopes, gradient, rows, width, vocabulary, first,    \
            count);                                                                                                  \
    }
LOGIT_GRADIENT(logit_gradient_bf16, TensorCores)
LOGIT_GRADIENT(logit_gradient_f32, OrdinaryUnits)

// One thread per row: merges the sums over all ids.
extern "C" __global__ void merge_sums(
    const float* partial, const float* picked, float* logp, float* entropy, float* normalizer, int rows, int spans) {
    int row = blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    Running total;
    total.clear();
    for (int span = 0; span < spans; span++) {
        const float* from = partial + (long long)span * 3 * rows + row;
        Running part;
        part.peak = from[0];
        part.sum = from[rows];
        part.slant = from[2 * rows];
        total.merge(part);
    }
    float beyond = logf(total.sum);
    logp[row] = picked[row] - total.peak - beyond;
    entropy[row] = beyond - total.slant / total.sum;
    normalizer[row] = total.peak + beyond;
}
