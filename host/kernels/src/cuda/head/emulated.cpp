// The head's kernels on a CPU; see emulated.h.
#include "../emulated.h"

#include "../numbers.cu"
#include "../head.cu"

EMULATED_KERNELS(
    EMULATED_KERNEL(partial_sums_bf16), EMULATED_KERNEL(partial_sums_f32), EMULATED_KERNEL(merge_sums),
    EMULATED_KERNEL(logit_gradient_bf16), EMULATED_KERNEL(logit_gradient_f32))
