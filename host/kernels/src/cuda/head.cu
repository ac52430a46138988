// The output head of a language model without its logits in memory.
//
// Logits z = W h / T of one row h of `hidden` [rows, width] and all rows of `unembed` [vocabulary, width] are
// computed tile by tile, 128 rows by 128 ids, and stay in the registers of the threads that computed them. A softmax
// over a vocabulary needs the sum of exp(z), its entropy the sum of z exp(z). Both are running sums relative to the
// largest logit so far (Milakov and Gimelshein 2018): each thread sums its own logits, then these sums are merged.
//
// A row's results depend on that row alone: neither the ids of a thread nor the order of the sums depends on the
// number of rows.

const int TILE = 128;             // rows and ids of a tile
const int THREADS = 256;          // threads of a block
const int PER_THREAD = 8;         // rows, and ids, of a tile per thread
const int THREADS_PER_ROW = 16;   // threads that have logits of the same row
const int SLICE = 64;             // bytes of a row's inputs that are in shared memory at a time
const int PITCH = 80;             // distance of rows in shared memory: 16 bytes more, to avoid bank conflicts
const int STAGES = 3;             // slices that are loaded or being loaded
const int SPAN = 2048;            // ids that one block processes
const int COPY = 16;              // bytes of one copy

// A matrix [rows, width] of numbers of type T.
template <class T>
struct Matrix {
    const T* values;
    int rows;
    int width;
    // True if every row begins at a multiple of 16 bytes.
    bool aligned;

    __device__ Matrix(const T* values, int rows, int width) : values(values), rows(rows), width(width) {
        aligned = (unsigned long long)values % COPY == 0 && width * sizeof(T) % COPY == 0;
    }

    // Starts to copy a slice of the 128 rows from `first` on to shared memory, with zeros outside of the matrix.
    __device__ void load(unsigned char* shared, int first, int slice) const {
        const int numbers = COPY / sizeof(T);
        for (int copy = threadIdx.x; copy < TILE * (SLICE / COPY); copy += THREADS) {
            int row = copy / (SLICE / COPY), part = copy % (SLICE / COPY);
            int column = slice * (SLICE / (int)sizeof(T)) + part * numbers;
            unsigned char* to = shared + row * PITCH + part * COPY;
            long long from = (long long)(first + row) * width + column;
            if (aligned) {
                bool inside = first + row < rows && column < width;
                copy_16_bytes(to, values + (inside ? from : 0), inside);
            } else {
                for (int i = 0; i < numbers; i++) {
                    bool inside = first + row < rows && column + i < width;
                    ((T*)to)[i] = inside ? values[from + i] : (T)0;
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
    static const int BLOCKS = 2;  // blocks on a multiprocessor, limited by registers and shared memory

    // Index in the tile of this thread's `i`-th row.
    static __device__ int row(int i) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        return warp / 4 * 64 + i / 2 * 16 + i % 2 * 8 + lane / 4;
    }

    // Index in the tile of this thread's `j`-th id.
    static __device__ int column(int j) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        return warp % 4 * 32 + j / 2 * 8 + lane % 4 * 2 + j % 2;
    }

    // Index of this thread among those that have logits of the same rows.
    static __device__ int index_in_row() {
        return threadIdx.x / 32 % 4 * 4 + threadIdx.x % 4;
    }

    // Adds the products over one slice.
    static __device__ void multiply(
        float (&sums)[PER_THREAD][PER_THREAD], const unsigned char* h, const unsigned char* w) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const unsigned char* rows = h + (warp / 4 * 64 + lane / 4) * PITCH + lane % 4 * 4;
        const unsigned char* ids = w + (warp % 4 * 32 + lane / 4) * PITCH + lane % 4 * 4;
#pragma unroll
        for (int k = 0; k < SLICE; k += 32) {
            unsigned b[PER_THREAD / 2][2];
#pragma unroll
            for (int n = 0; n < PER_THREAD / 2; n++) {
                b[n][0] = *(const unsigned*)(ids + n * 8 * PITCH + k);
                b[n][1] = *(const unsigned*)(ids + n * 8 * PITCH + k + 16);
            }
#pragma unroll
            for (int m = 0; m < PER_THREAD / 2; m++) {
                unsigned a[4];
                a[0] = *(const unsigned*)(rows + m * 16 * PITCH + k);
                a[1] = *(const unsigned*)(rows + (m * 16 + 8) * PITCH + k);
                a[2] = *(const unsigned*)(rows + m * 16 * PITCH + k + 16);
                a[3] = *(const unsigned*)(rows + (m * 16 + 8) * PITCH + k + 16);
#pragma unroll
                for (int n = 0; n < PER_THREAD / 2; n++) {
                    multiply_16x8x16(
                        sums[2 * m][2 * n], sums[2 * m][2 * n + 1], sums[2 * m + 1][2 * n],
                        sums[2 * m + 1][2 * n + 1], a, b[n]);
                }
            }
        }
    }

    static __device__ bf16 number(float value) {
        return to_bf16(value);
    }
};

// Tiles in f32 on CUDA cores. Threads form a square of 16 by 16; each has every 16th row and id.
struct CudaCores {
    typedef float Number;
    static const int BLOCKS = 1;

    static __device__ int row(int i) {
        return threadIdx.x / 16 + i * 16;
    }

    static __device__ int column(int j) {
        return threadIdx.x % 16 + j * 16;
    }

    static __device__ int index_in_row() {
        return threadIdx.x % 16;
    }

    static __device__ void multiply(
        float (&sums)[PER_THREAD][PER_THREAD], const unsigned char* h, const unsigned char* w) {
        const unsigned char* rows = h + threadIdx.x / 16 * PITCH;
        const unsigned char* ids = w + threadIdx.x % 16 * PITCH;
#pragma unroll
        for (int k = 0; k < SLICE; k += COPY) {
            float4 b[PER_THREAD];
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++) b[j] = *(const float4*)(ids + j * 16 * PITCH + k);
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++) {
                float4 a = *(const float4*)(rows + i * 16 * PITCH + k);
#pragma unroll
                for (int j = 0; j < PER_THREAD; j++) {
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

// Computes sums[i][j], the product of row `first_row + row(i)` and id `first_id + column(j)`. `shared` has STAGES
// stages; no thread reads it after this function has returned.
template <class Units>
__device__ void tile(
    float (&sums)[PER_THREAD][PER_THREAD], unsigned char* shared, const Matrix<typename Units::Number>& hidden,
    int first_row, const Matrix<typename Units::Number>& unembed, int first_id) {
    int slices = hidden.slices();
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) sums[i][j] = 0;
    for (int slice = 0; slice < STAGES - 1; slice++) {
        if (slice < slices) {
            hidden.load(shared + slice * STAGE, first_row, slice);
            unembed.load(shared + slice * STAGE + TILE * PITCH, first_id, slice);
        }
        end_copies();
    }
    for (int slice = 0; slice < slices; slice++) {
        wait_for_copies<STAGES - 2>();
        // Now all threads can read this slice, and none reads the previous one.
        __syncthreads();
        int next = slice + STAGES - 1;
        if (next < slices) {
            unsigned char* stage = shared + next % STAGES * STAGE;
            hidden.load(stage, first_row, next);
            unembed.load(stage + TILE * PITCH, first_id, next);
        }
        // Also without copies, so that the wait above is for the same slice in every iteration.
        end_copies();
        const unsigned char* stage = shared + slice % STAGES * STAGE;
        Units::multiply(sums, stage, stage + TILE * PITCH);
    }
    wait_for_copies<0>();
    __syncthreads();
}

// Sums over some of a row's logits, relative to the largest of them.
struct RunningSums {
    float peak;          // the largest logit
    float sum;           // of exp(z - peak)
    float weighted_sum;  // of (z - peak) exp(z - peak)

    __device__ void clear() {
        peak = -3.4028234e38f;
        sum = 0;
        weighted_sum = 0;
    }

    // Makes the sums relative to a larger logit.
    __device__ void rescale(float to) {
        float shift = peak - to;
        float scale = expf(shift);
        // Before the first logit, `shift` may be infinite.
        weighted_sum = sum == 0 ? 0 : (weighted_sum + shift * sum) * scale;
        sum *= scale;
        peak = to;
    }

    __device__ void add(float logit) {
        float shifted = logit - peak;
        float weight = expf(shifted);
        sum += weight;
        weighted_sum = fmaf(shifted, weight, weighted_sum);
    }

    __device__ void merge(RunningSums other) {
        if (other.sum == 0) return;
        float to = fmaxf(peak, other.peak);
        rescale(to);
        other.rescale(to);
        sum += other.sum;
        weighted_sum += other.weighted_sum;
    }
};

// Block (x, y): rows from 128 x on, ids from 2048 y on. Writes the sums over these ids, [spans, 3, rows], and the
// logit of each row's token, [rows].
template <class Units>
__device__ void partial_sums(
    const typename Units::Number* hidden_values, const typename Units::Number* unembed_values, const long long* tokens,
    const float* temperatures, float* partial, float* token_logit, int rows, int width, int vocabulary) {
    SHARED_MEMORY(shared);
    Matrix<typename Units::Number> hidden(hidden_values, rows, width);
    Matrix<typename Units::Number> unembed(unembed_values, vocabulary, width);
    int first_row = blockIdx.x * TILE;
    int end = min((int)(blockIdx.y + 1) * SPAN, vocabulary);
    RunningSums running[PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) running[i].clear();
    for (int first_id = blockIdx.y * SPAN; first_id < end; first_id += TILE) {
        float logits[PER_THREAD][PER_THREAD];
        tile<Units>(logits, shared, hidden, first_row, unembed, first_id);
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            int row = first_row + Units::row(i);
            if (row >= rows) continue;
            float inverse_temperature = temperatures ? 1 / temperatures[row] : 1;
            long long token = tokens[row];
            float peak = running[i].peak;
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++) {
                logits[i][j] *= inverse_temperature;
                if (first_id + Units::column(j) < vocabulary) peak = fmaxf(peak, logits[i][j]);
            }
            running[i].rescale(peak);
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++) {
                int id = first_id + Units::column(j);
                if (id >= vocabulary) continue;
                running[i].add(logits[i][j]);
                if (id == token) token_logit[row] = logits[i][j];
            }
        }
    }
    // The buffer is free now and gets the sums of all threads.
    RunningSums* all = (RunningSums*)shared;
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) all[Units::row(i) * THREADS_PER_ROW + Units::index_in_row()] = running[i];
    __syncthreads();
    int row = first_row + threadIdx.x;
    if (threadIdx.x < TILE && row < rows) {
        RunningSums total = all[threadIdx.x * THREADS_PER_ROW];
        for (int i = 1; i < THREADS_PER_ROW; i++) total.merge(all[threadIdx.x * THREADS_PER_ROW + i]);
        float* to = partial + (long long)blockIdx.y * 3 * rows + row;
        to[0] = total.peak;
        to[rows] = total.sum;
        to[2 * rows] = total.weighted_sum;
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
    float logits[PER_THREAD][PER_THREAD];
    tile<Units>(logits, shared, hidden, first_row, unembed, first_id);
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        int row = first_row + Units::row(i);
        if (row >= rows) continue;
        float inverse_temperature = temperatures ? 1 / temperatures[row] : 1;
        float slope = slopes[row], normalizer = normalizers[row];
        long long token = tokens[row];
        typename Units::Number* to = gradient + (long long)row * count;
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            int id = first_id + Units::column(j);
            if (id >= first + count) continue;
            float probability = expf(logits[i][j] * inverse_temperature - normalizer);
            to[id - first] = Units::number(slope * ((id == token ? 1.f : 0.f) - probability) * inverse_temperature);
        }
    }
}

#define PARTIAL_SUMS(name, Units)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, Units::BLOCKS) name(                                       \
        const Units::Number* hidden, const Units::Number* unembed, const long long* tokens,                          \
        const float* temperatures, float* partial, float* token_logit, int rows, int width, int vocabulary) {        \
        partial_sums<Units>(hidden, unembed, tokens, temperatures, partial, token_logit, rows, width, vocabulary);   \
    }
PARTIAL_SUMS(partial_sums_bf16, TensorCores)
PARTIAL_SUMS(partial_sums_f32, CudaCores)

#define LOGIT_GRADIENT(name, Units)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, Units::BLOCKS) name(                                       \
        const Units::Number* hidden, const Units::Number* unembed, const long long* tokens,                          \
        const float* temperatures, const float* normalizers, const float* slopes, Units::Number* gradient, int rows, \
        int width, int vocabulary, int first, int count) {                                                           \
        logit_gradient<Units>(                                                                                       \
            hidden, unembed, tokens, temperatures, normalizers, slopes, gradient, rows, width, vocabulary, first,    \
            count);                                                                                                  \
    }
LOGIT_GRADIENT(logit_gradient_bf16, TensorCores)
LOGIT_GRADIENT(logit_gradient_f32, CudaCores)

// One thread per row: merges the sums over all ids.
extern "C" __global__ void merge_sums(
    const float* partial, const float* token_logit, float* logp, float* entropy, float* normalizer, int rows,
    int spans) {
    int row = blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    RunningSums total;
    total.clear();
    for (int span = 0; span < spans; span++) {
        const float* from = partial + (long long)span * 3 * rows + row;
        RunningSums part;
        part.peak = from[0];
        part.sum = from[rows];
        part.weighted_sum = from[2 * rows];
        total.merge(part);
    }
    float log_sum = logf(total.sum);
    logp[row] = token_logit[row] - total.peak - log_sum;
    entropy[row] = log_sum - total.weighted_sum / total.sum;
    normalizer[row] = total.peak + log_sum;
}
