// The kernels of the attention over paged keys and values on a CPU; see emulated.h.
#include "../emulated.h"

#include "../bf16.cu"
#include "../paged.cu"

EMULATED_KERNELS(
    EMULATED_KERNEL(attend_span_bf16), EMULATED_KERNEL(attend_span_f32), EMULATED_KERNEL(merge_spans_bf16),
    EMULATED_KERNEL(merge_spans_f32))
