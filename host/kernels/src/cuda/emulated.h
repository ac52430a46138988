// Emulation of CUDA on a CPU: runs a kernel's own source thread by thread, so that its results can be tested on
// machines without a GPU. It is slow, and made to expose errors:
//
//  - The threads of a block alternate only at barriers, in a random order that a seed determines: a result that
//    depends on the order (a missing __syncthreads) differs between seeds.
//  - Asynchronous copies happen as late as allowed: when a thread waits for them.
//  - Shared memory starts as NaNs.
//
// A kernel's source follows this header, then a table of its kernels by EMULATED_KERNELS.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define SHARED_MEMORY(name) unsigned char* name = emulated::block->shared.data()

using std::max;
using std::min;

namespace emulated {

struct Index {
    unsigned x, y, z;
};

struct Copy {
    void* to;
    const void* from;
    int group;
};

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Index index;
    std::deque<Copy> copies;
    int groups = 0;
    bool done = false;
};

// A point at which threads wait until a number of them has arrived.
struct Barrier {
    std::vector<Thread*> waiting;
};

// Operands and result of a warp's matrix product, and exchanged values, by lane.
struct Warp {
    unsigned a[32][4], b[32][2];
    float product[32][4];
    float exchanged[32];
    Barrier barrier;
};

struct Block {
    Index index;
    std::vector<unsigned char> shared;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Barrier barrier;
    std::vector<Thread*> ready;
    uint64_t random;
    ucontext_t scheduler;

    // Removes a random thread from those that are ready; xorshift (Marsaglia 2003).
    Thread* next_thread() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::swap(ready[random % ready.size()], ready.back());
        Thread* thread = ready.back();
        ready.pop_back();
        return thread;
    }
};

static Block* block;
static Thread* current;
static void (*body)(void**);
static void** arguments;

// Saves the current thread and continues another one, or the scheduler if none is ready.
inline void switch_thread() {
    Thread* from = current;
    if (block->ready.empty()) {
        swapcontext(&from->context, &block->scheduler);
        return;
    }
    current = block->next_thread();
    swapcontext(&from->context, &current->context);
}

// Waits until `count` threads have arrived. Returns true in the last one, before the others continue.
inline bool wait(Barrier& barrier, size_t count) {
    barrier.waiting.push_back(current);
    if (barrier.waiting.size() < count) {
        switch_thread();
        return false;
    }
    // The last one continues at once, so that its next step comes before the others' as often as after them.
    for (Thread* thread : barrier.waiting)
        if (thread != current) block->ready.push_back(thread);
    barrier.waiting.clear();
    return true;
}

inline Warp& warp() {
    return block->warps[current->index.x / 32];
}

static void enter() {
    body(arguments);
    current->done = true;
    switch_thread();
}

// Runs a block. Returns false if threads wait for others that never arrive.
inline bool run(Block& to_run) {
    const size_t STACK = 64 * 1024;
    block = &to_run;
    for (size_t i = 0; i < block->threads.size(); i++) {
        Thread& thread = block->threads[i];
        thread.index = {(unsigned)i, 0, 0};
        thread.stack.reset(new char[STACK]);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, enter, 0);
        block->ready.push_back(&thread);
    }
    if (!block->ready.empty()) {
        current = block->next_thread();
        swapcontext(&block->scheduler, &current->context);
    }
    return std::all_of(block->threads.begin(), block->threads.end(), [](const Thread& t) { return t.done; });
}

template <class... Arguments, size_t... I>
void call(void (*kernel)(Arguments...), void** from, std::index_sequence<I...>) {
    kernel(*(Arguments*)from[I]...);
}

// Calls a kernel with the addresses of its arguments, as a launch has them.
template <class... Arguments>
void call(void (*kernel)(Arguments...), void** from) {
    call(kernel, from, std::index_sequence_for<Arguments...>());
}

struct Kernel {
    const char* name;
    void (*body)(void**);
};

}  // namespace emulated

#define threadIdx (emulated::current->index)
#define blockIdx (emulated::block->index)

inline void __syncthreads() {
    emulated::wait(emulated::block->barrier, emulated::block->threads.size());
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct alignas(16) float4 {
    float x, y, z, w;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

// The functions of primitives.cu.
inline void copy_16_bytes(void* to, const void* from, bool inside) {
    emulated::current->copies.push_back({to, inside ? from : nullptr, emulated::current->groups});
}

inline void end_copies() {
    emulated::current->groups++;
}

template <int PENDING>
void wait_for_copies() {
    emulated::Thread& thread = *emulated::current;
    while (!thread.copies.empty() && thread.copies.front().group < thread.groups - PENDING) {
        emulated::Copy copy = thread.copies.front();
        thread.copies.pop_front();
        if (copy.from)
            std::memcpy(copy.to, copy.from, 16);
        else
            std::memset(copy.to, 0, 16);
    }
}

inline void multiply_16x8x16(
    float& d0, float& d1, float& d2, float& d3, const unsigned (&a)[4], const unsigned (&b)[2]) {
    emulated::Warp& warp = emulated::warp();
    int lane = threadIdx.x % 32;
    std::copy(a, a + 4, warp.a[lane]);
    std::copy(b, b + 2, warp.b[lane]);
    // The last lane computes all products. No lane can change an operand or a product before each lane has added its
    // products, because the next computation needs the arrival of all lanes.
    if (emulated::wait(warp.barrier, 32)) {
        auto bf16 = [](unsigned word, int half) {
            unsigned bits = half ? word & 0xffff0000u : word << 16;
            float value;
            std::memcpy(&value, &bits, sizeof value);
            return value;
        };
        float left[16][16], right[8][16];
        for (int k = 0; k < 16; k++) {
            for (int row = 0; row < 16; row++)
                left[row][k] = bf16(warp.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
            for (int column = 0; column < 8; column++)
                right[column][k] = bf16(warp.b[column * 4 + k % 8 / 2][k / 8], k % 2);
        }
        for (int to = 0; to < 32; to++)
            for (int i = 0; i < 4; i++) {
                int row = to / 4 + i / 2 * 8, column = to % 4 * 2 + i % 2;
                float sum = 0;
                for (int k = 0; k < 16; k++) sum += left[row][k] * right[column][k];
                warp.product[to][i] = sum;
            }
    }
    d0 += warp.product[lane][0];
    d1 += warp.product[lane][1];
    d2 += warp.product[lane][2];
    d3 += warp.product[lane][3];
}

inline void multiply_8x8x16(float& d0, float& d1, const unsigned (&a)[2], const unsigned (&b)[2]) {
    float unused0 = 0, unused1 = 0;
    const unsigned whole[4] = {a[0], 0, a[1], 0};
    multiply_16x8x16(d0, d1, unused0, unused1, whole, b);
}

inline float exchange(float value, int mask) {
    emulated::Warp& warp = emulated::warp();
    int lane = threadIdx.x % 32;
    warp.exchanged[lane] = value;
    emulated::wait(warp.barrier, 32);
    float other = warp.exchanged[lane ^ mask];
    // All lanes have read theirs before the next exchange.
    emulated::wait(warp.barrier, 32);
    return other;
}

#define EMULATED_KERNEL(name) {#name, [](void** arguments) { emulated::call(name, arguments); }}

// Defines `emulate`, which runs a kernel over a grid. Returns 0 if it ended, 1 if the kernel does not exist, 2 if
// threads are deadlocked.
#define EMULATED_KERNELS(...)                                                                                        \
    extern "C" int emulate(                                                                                          \
        const char* name, const unsigned* grid, unsigned threads, unsigned shared, void** arguments, uint64_t seed) { \
        static const emulated::Kernel kernels[] = {__VA_ARGS__};                                                     \
        for (const emulated::Kernel& kernel : kernels) {                                                             \
            if (std::strcmp(kernel.name, name) != 0) continue;                                                       \
            emulated::body = kernel.body;                                                                            \
            emulated::arguments = arguments;                                                                         \
            for (unsigned x = 0; x < grid[0]; x++)                                                                   \
                for (unsigned y = 0; y < grid[1]; y++) {                                                             \
                    emulated::Block block;                                                                           \
                    block.index = {x, y, 0};                                                                         \
                    block.shared.assign(shared, 0xff);                                                               \
                    block.threads = std::vector<emulated::Thread>(threads);                                          \
                    block.warps.resize(threads / 32);                                                                \
                    block.random = seed * 2 + 1;                                                                     \
                    if (!emulated::run(block)) return 2;                                                             \
                }                                                                                                    \
            return 0;                                                                                                \
        }                                                                                                            \
        return 1;                                                                                                    \
    }
