// Numbers in bf16, for all kernels: put before a kernel's source, also where a C++ compiler emulates it.

typedef unsigned short bf16;  // its bits

// The numbers in the lower and the upper half of a word.
__device__ __forceinline__ float low_bf16(unsigned word) {
    return __uint_as_float(word << 16);
}

__device__ __forceinline__ float high_bf16(unsigned word) {
    return __uint_as_float(word & 0xffff0000u);
}

// To the nearest bf16, ties to even.
__device__ __forceinline__ bf16 to_bf16(float value) {
    unsigned bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
