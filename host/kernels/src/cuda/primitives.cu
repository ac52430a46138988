// Instructions of the hardware that C++ lacks, for NVRTC, sm_80 and newer. A kernel's source is appended to this one.
// `emulated.h` has the same names for a C++ compiler, so that kernels can run without a GPU.

// Memory that a block's threads share; its size is given at the launch.
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]

// Starts to copy 16 bytes to shared memory, or zeros if `inside` is false. Both addresses are aligned to 16 bytes;
// `from` is valid in both cases.
__device__ __forceinline__ void copy_16_bytes(void* to, const void* from, bool inside) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}

// Ends a group of copies.
__device__ __forceinline__ void end_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until this thread's copies have ended, except the newest `PENDING` groups.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// d += a b of a 16 x 16 and a 16 x 8 matrix in bf16, by a whole warp. Each thread has a part of all three, in the
// layout of mma.m16n8k16 in the PTX manual. With group = lane / 4 and pair = lane % 4:
//   a: rows group (words 0, 2) and group + 8 (1, 3), columns 2 pair and 2 pair + 1 (words 0, 1) and these + 8 (2, 3)
//   b: rows 2 pair and 2 pair + 1 (word 0) and these + 8 (1), column group
//   d: rows group (0, 1) and group + 8 (2, 3), columns 2 pair and 2 pair + 1
__device__ __forceinline__ void multiply_16x8x16(
    float& d0, float& d1, float& d2, float& d3, const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The first 8 rows of the above: those of a matrix of 8 rows. a: row group, columns 2 pair and 2 pair + 1 (word 0) and these + 8
// (1). d: row group, columns 2 pair and 2 pair + 1.
__device__ __forceinline__ void multiply_8x8x16(float& d0, float& d1, const unsigned (&a)[2], const unsigned (&b)[2]) {
    float unused0, unused1;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %10, %10};"
        : "+f"(d0), "+f"(d1), "=f"(unused0), "=f"(unused1)
        : "r"(a[0]), "r"(0), "r"(a[1]), "r"(0), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// The value of the lane of a warp whose number differs in the bits of `mask`. All lanes call it.
__device__ __forceinline__ float exchange(float value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
