// Numbers in bf16 and f32, for all kernels: put before a kernel's source, also where a C++ compiler emulates it.

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

__device__ __forceinline__ float widen(bf16 number) {
    return low_bf16(number);
}

__device__ __forceinline__ float widen(float number) {
    return number;
}

// Rounds a value to a number's format.
__device__ __forceinline__ void assign(bf16& number, float value) {
    number = to_bf16(value);
}

__device__ __forceinline__ void assign(float& number, float value) {
    number = value;
}

const int PACK = 8;  // numbers that a thread reads at a time

struct Numbers {
    float at[PACK];
};

// Numbers as they are in memory, at an address that is a multiple of 16.
template <class T>
struct Pack;

template <>
struct Pack<bf16> {
    uint4 words;
};

template <>
struct Pack<float> {
    float4 first, second;
};

__device__ __forceinline__ Numbers widen(const Pack<bf16>& pack) {
    Numbers out;
    out.at[0] = low_bf16(pack.words.x), out.at[1] = high_bf16(pack.words.x);
    out.at[2] = low_bf16(pack.words.y), out.at[3] = high_bf16(pack.words.y);
    out.at[4] = low_bf16(pack.words.z), out.at[5] = high_bf16(pack.words.z);
    out.at[6] = low_bf16(pack.words.w), out.at[7] = high_bf16(pack.words.w);
    return out;
}

__device__ __forceinline__ Numbers widen(const Pack<float>& pack) {
    Numbers out;
    out.at[0] = pack.first.x, out.at[1] = pack.first.y, out.at[2] = pack.first.z, out.at[3] = pack.first.w;
    out.at[4] = pack.second.x, out.at[5] = pack.second.y, out.at[6] = pack.second.z, out.at[7] = pack.second.w;
    return out;
}

template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
    return *(const Pack<T>*)from;
}

template <class T>
__device__ __forceinline__ Numbers load(const T* from) {
    return widen(load_pack(from));
}

// A word of two numbers.
__device__ __forceinline__ unsigned word_of(float low, float high) {
    return to_bf16(low) | (unsigned)to_bf16(high) << 16;
}

// The lower halves of two words in one, or the upper ones.
__device__ __forceinline__ unsigned half_words(unsigned first, unsigned second, bool upper) {
    return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffff) | second << 16;
}

__device__ __forceinline__ void store(bf16* to, const Numbers& numbers) {
    Pack<bf16> pack;
    pack.words.x = word_of(numbers.at[0], numbers.at[1]);
    pack.words.y = word_of(numbers.at[2], numbers.at[3]);
    pack.words.z = word_of(numbers.at[4], numbers.at[5]);
    pack.words.w = word_of(numbers.at[6], numbers.at[7]);
    *(Pack<bf16>*)to = pack;
}

__device__ __forceinline__ void store(float* to, const Numbers& numbers) {
    Pack<float> pack;
    pack.first = {numbers.at[0], numbers.at[1], numbers.at[2], numbers.at[3]};
    pack.second = {numbers.at[4], numbers.at[5], numbers.at[6], numbers.at[7]};
    *(Pack<float>*)to = pack;
}
