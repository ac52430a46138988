// Sampling of tokens from rows of logits.
//
// A row is divided into parts of 2048 logits. The first kernel finds each part's largest logit and its sum of weights, the
// second one adds the parts up and looks for the token in one of them. A token's results depend on its row alone, not on other
// rows: the parts depend on nothing else, and all sums are in f64 in a fixed order.

const int THREADS = 256;           // threads of a block
const int RUN = 8;                 // consecutive logits of a thread
const int PART = THREADS * RUN;    // logits of a block
constexpr double LIKELIEST = -1;       // the choice of the likeliest token
constexpr double GIVEN = -2;           // the choice of a given token, minus its id

__device__ __forceinline__ float minus_infinity() {
    return __uint_as_float(0xff800000u);
}

// A logit with its token.
struct Peak {
    float logit;
    int token;
};

// A part of a row: its largest logit, and the sum of exp(logit - largest).
struct Part {
    Peak peak;
    double sum;
};

// Combinations of two results of threads. Of equal logits, the one of the lower token counts.
__device__ __forceinline__ Peak combine(Peak a, Peak b) {
    return b.logit > a.logit || (b.logit == a.logit && b.token < a.token) ? b : a;
}

__device__ __forceinline__ double combine(double a, double b) {
    return a + b;
}

__device__ __forceinline__ int combine(int a, int b) {
    return min(a, b);
}

// Combines a result of each thread and returns it to all. `shared` has a place for each of them.
template <class T>
__device__ T combine_all(T* shared, T own) {
    int thread = threadIdx.x;
    // All have read what was there before.
    __syncthreads();
    shared[thread] = own;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) shared[thread] = combine(shared[thread], shared[thread + half]);
    }
    __syncthreads();
    return shared[0];
}

// Adds up a number of each thread and of all threads before it, in 2 x THREADS numbers of shared memory. Returns these sums.
__device__ const double* running_sums(double* shared, double own) {
    int thread = threadIdx.x;
    double *from = shared, *to = shared + THREADS;
    __syncthreads();
    from[thread] = own;
    for (int offset = 1; offset < THREADS; offset *= 2) {
        __syncthreads();
        to[thread] = thread < offset ? from[thread] : from[thread - offset] + from[thread];
        double* other = from;
        from = to, to = other;
    }
    __syncthreads();
    return from;
}

// Returns the first thread whose running sum exceeds the target, or, if the target was rounded up, the last one. Only threads
// with a positive sum of their own count. There must be one.
__device__ int find_thread(int* shared, const double* sums, double own, double target) {
    int thread = threadIdx.x;
    int rank = own > 0 ? (sums[thread] > target ? thread : 2 * THREADS - thread) : 3 * THREADS;
    int lowest = combine_all(shared, rank);
    return lowest < THREADS ? lowest : 2 * THREADS - lowest;
}

// A walk over weights to the first one at which their sum exceeds the target, or, if the target was rounded up, to the last
// positive one.
struct Walk {
    double sum, target;
    int found;
    double before;  // sum of the weights before the found one

    __device__ Walk(double sum, double target) : sum(sum), target(target), found(0), before(sum) {}

    // Returns true at the end.
    __device__ bool step(int index, double weight) {
        if (!(weight > 0)) return false;
        found = index, before = sum;
        sum += weight;
        return sum > target;
    }
};

// A row of logits, and the token to choose from it.
struct Choice {
    const float* logits;  // null if there is no such row
    float temperature;
    double choice;
    int vocab;

    __device__ Choice(const float* all, const double* choices, int rows, int vocab, int index, int count)
        : logits(nullptr), temperature((float)choices[count + index]), choice(choices[2 * count + index]), vocab(vocab) {
        double row = choices[index];
        if (row >= 0 && row < rows) logits = all + (long long)row * vocab;
    }

    __device__ float logit(int token) const {
        return logits[token] / temperature;
    }

    // Reads this thread's logits of a part; minus infinity past the row's end.
    __device__ void read(int part, float (&own)[RUN]) const {
        int first = part * PART + (int)threadIdx.x * RUN;
        bool aligned = (unsigned long long)logits % 16 == 0;
        if (aligned && first + RUN <= vocab) {
            float4 low = *(const float4*)(logits + first), high = *(const float4*)(logits + first + 4);
            own[0] = low.x, own[1] = low.y, own[2] = low.z, own[3] = low.w;
            own[4] = high.x, own[5] = high.y, own[6] = high.z, own[7] = high.w;
        } else {
#pragma unroll
            for (int i = 0; i < RUN; i++) own[i] = first + i < vocab ? logits[first + i] : minus_infinity();
        }
#pragma unroll
        for (int i = 0; i < RUN; i++) own[i] /= temperature;
    }
};

// Replaces logits by exp(logit - largest) and returns their sum. The weight of minus infinity is 0, also if all are.
__device__ double exponentiate(float (&own)[RUN], float largest) {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        own[i] = own[i] == minus_infinity() ? 0 : expf(own[i] - largest);
        sum += (double)own[i];
    }
    return sum;
}

// Block (x, y): the part y of the row of the choice x. Writes `parts` [choices, parts].
extern "C" __global__ void __launch_bounds__(THREADS) sum_parts(
    const float* logits, const double* choices, Part* parts, int rows, int vocab, int count, int divisions) {
    SHARED_MEMORY(shared);
    Choice choice(logits, choices, rows, vocab, blockIdx.x, count);
    if (!choice.logits) return;
    float own[RUN];
    choice.read(blockIdx.y, own);
    int first = (int)(blockIdx.y * PART + threadIdx.x * RUN);
    Peak peak = {minus_infinity(), first};
#pragma unroll
    for (int i = 0; i < RUN; i++)
        if (own[i] > peak.logit) peak = {own[i], first + i};
    peak = combine_all((Peak*)shared, peak);
    double sum = combine_all((double*)(shared + THREADS * sizeof(Peak)), exponentiate(own, peak.logit));
    if (threadIdx.x == 0) parts[(long long)blockIdx.x * divisions + blockIdx.y] = {peak, sum};
}

// Block x: a choice. Writes `out` [2, choices]: the token and the bits of its log-probability.
extern "C" __global__ void __launch_bounds__(THREADS) choose_tokens(
    const float* logits, const double* choices, const Part* parts, int* out, int rows, int vocab, int count, int divisions) {
    SHARED_MEMORY(shared);
    double* sums = (double*)shared;                                  // [2, THREADS]
    unsigned char* results = shared + 2 * THREADS * sizeof(double);  // [THREADS], of any kind
    double* place = (double*)(results + THREADS * sizeof(Peak));     // [2]
    int thread = threadIdx.x;
    Choice choice(logits, choices, rows, vocab, blockIdx.x, count);
    parts += (long long)blockIdx.x * divisions;
    auto write = [&](int token, float logp) {
        out[blockIdx.x] = token;
        out[count + blockIdx.x] = (int)__float_as_uint(logp);
    };
    const float nan = __uint_as_float(0x7fc00000u);
    if (!choice.logits) {
        if (thread == 0) write(0, nan);
        return;
    }

    // Each thread has consecutive parts.
    int each = (divisions + THREADS - 1) / THREADS;
    int first = min(thread * each, divisions), end = min(first + each, divisions);
    Peak peak = {minus_infinity(), vocab};
    for (int part = first; part < end; part++) peak = combine(peak, parts[part].peak);
    peak = combine_all((Peak*)results, peak);
    auto weight = [&](int part) { return parts[part].sum * exp((double)parts[part].peak.logit - (double)peak.logit); };
    double own = 0;
    for (int part = first; part < end; part++) own += weight(part);
    const double* before = running_sums(sums, own);
    double total = before[THREADS - 1];
    auto logprob = [&](int token) { return (float)((double)choice.logit(token) - (double)peak.logit - log(total)); };

    if (choice.choice <= GIVEN) {
        double token = GIVEN - choice.choice;
        bool exists = token < vocab;
        if (thread == 0) write(exists ? (int)token : 0, exists ? logprob((int)token) : nan);
        return;
    }
    if (choice.choice == LIKELIEST || !(total >= 1) || total - total != 0) {
        // Without a distribution, the log-probability of the token isn't finite either.
        if (thread == 0) write(peak.token, logprob(peak.token));
        return;
    }

    double target = choice.choice * total;
    if (thread == find_thread((int*)results, before, own, target)) {
        Walk walk(thread > 0 ? before[thread - 1] : 0, target);
        for (int part = first; part < end; part++)
            if (walk.step(part, weight(part))) break;
        place[0] = walk.found;
        // The rest of the target, relative to the part's largest logit.
        place[1] = (target - walk.before) / exp((double)parts[walk.found].peak.logit - (double)peak.logit);
    }
    __syncthreads();
    int part = (int)place[0];
    target = place[1];
    float weights[RUN];
    choice.read(part, weights);
    own = exponentiate(weights, parts[part].peak.logit);
    before = running_sums(sums, own);
    if (thread != find_thread((int*)results, before, own, target)) return;
    Walk walk(thread > 0 ? before[thread - 1] : 0, target);
    for (int i = 0; i < RUN; i++)
        if (walk.step(i, (double)weights[i])) break;
    int token = part * PART + thread * RUN + walk.found;
    write(token, logprob(token));
}
