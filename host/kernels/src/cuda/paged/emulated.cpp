// The kernels of the attention over paged keys and values on a CPU; see emulated.h.
#include "../emulated.h"

#include "../numbers.cu"
#include "../paged.cu"

EMULATED_KERNELS(
    EMULATED_KERNEL(attend_span_bf16_1), EMULATED_KERNEL(attend_span_bf16_2), EMULATED_KERNEL(attend_span_bf16_4),
    EMULATED_KERNEL(attend_span_bf16_8), EMULATED_KERNEL(attend_span_f32_1), EMULATED_KERNEL(attend_span_f32_2),
    EMULATED_KERNEL(attend_span_f32_4), EMULATED_KERNEL(attend_span_f32_8), EMULATED_KERNEL(merge_spans_bf16),
    EMULATED_KERNEL(merge_spans_f32), EMULATED_KERNEL(attend_span_mma_64), EMULATED_KERNEL(attend_span_mma_128),
    EMULATED_KERNEL(attend_span_mma_256))
