// Stands in for CUDA where there is no GPU: runs a kernel's own source on a processor, thread by thread, so that what
// it computes can be tested anywhere. Slow, and made to find faults rather than to hide them:
//
//  - The threads of a block take turns only where they wait for each other, and in an order drawn from a seed: a result
//    that depends on the order (a missing __syncthreads) differs between seeds.
//  - Asynchronous copies happen as late as allowed, when a thread waits for them.
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

// Where threads wait until a number of them has come.
struct Meeting {
    std::vector<Thread*> waiting;
};

struct Warp {
    unsigned a[32][4], b[32][2];
    Meeting before, after;
};

struct Block {
    Index index;
    std::vector<unsigned char> shared;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Meeting everyone;
    std::vector<Thread*> ready;
    uint64_t random;
    ucontext_t scheduler;

    // The next of the threads that can go on; xorshift (Marsaglia 2003).
    Thread* draw() {
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

inline void meet(Meeting& meeting, size_t count) {
    meeting.waiting.push_back(current);
    if (meeting.waiting.size() < count) {
        swapcontext(&current->context, &block->scheduler);
        return;
    }
    // The last to come goes on at once, so that its next step comes before the others' as often as after them.
    for (Thread* thread : meeting.waiting)
        if (thread != current) block->ready.push_back(thread);
    meeting.waiting.clear();
}

inline Warp& warp() {
    return block->warps[current->index.x / 32];
}

static void enter() {
    body(arguments);
    current->done = true;
    swapcontext(&current->context, &block->scheduler);
}

// Runs a block to its end. False where threads wait for others that will never come.
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
    while (!block->ready.empty()) {
        current = block->draw();
        swapcontext(&block->scheduler, &current->context);
    }
    return std::all_of(block->threads.begin(), block->threads.end(), [](const Thread& t) { return t.done; });
}

template <class... Arguments, size_t... I>
void call(void (*kernel)(Arguments...), void** from, std::index_sequence<I...>) {
    kernel(*(Arguments*)from[I]...);
}

// As a launch gives them: each argument by its address.
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
    emulated::meet(emulated::block->everyone, emulated::block->threads.size());
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

struct alignas(16) float4 {
    float x, y, z, w;
};

// As in primitives.cu.
inline void copy_16_bytes(void* to, const void* from, bool there) {
    emulated::current->copies.push_back({to, there ? from : nullptr, emulated::current->groups});
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
    int lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
    std::copy(a, a + 4, warp.a[lane]);
    std::copy(b, b + 2, warp.b[lane]);
    emulated::meet(warp.before, 32);
    auto bf16 = [](unsigned word, int half) {
        unsigned bits = half ? word & 0xffff0000u : word << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    };
    auto dot = [&](int row, int column) {
        float sum = 0;
        for (int k = 0; k < 16; k++) {
            float left = bf16(warp.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
            float right = bf16(warp.b[column * 4 + k % 8 / 2][k / 8], k % 2);
            sum += left * right;
        }
        return sum;
    };
    d0 += dot(group, 2 * pair);
    d1 += dot(group, 2 * pair + 1);
    d2 += dot(group + 8, 2 * pair);
    d3 += dot(group + 8, 2 * pair + 1);
    emulated::meet(warp.after, 32);
}

#define EMULATED_KERNEL(name) {#name, [](void** arguments) { emulated::call(name, arguments); }}

// Defines `emulate`: runs a kernel over a grid. 0: done; 1: no such kernel; 2: threads wait for each other for ever.
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
