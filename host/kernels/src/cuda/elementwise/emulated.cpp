// The operations between the matrix products on a CPU; see emulated.h.
#include "../emulated.h"

#include "../numbers.cu"
#include "../elementwise.cu"

EMULATED_KERNELS(
    EMULATED_KERNEL(rms_norm_bf16), EMULATED_KERNEL(rms_norm_f32), EMULATED_KERNEL(normalize_bf16),
    EMULATED_KERNEL(normalize_f32), EMULATED_KERNEL(normalize_backward_bf16), EMULATED_KERNEL(normalize_backward_f32),
    EMULATED_KERNEL(rotate_bf16), EMULATED_KERNEL(rotate_f32), EMULATED_KERNEL(gated_bf16),
    EMULATED_KERNEL(gated_f32), EMULATED_KERNEL(gated_backward_bf16), EMULATED_KERNEL(gated_backward_f32),
    EMULATED_KERNEL(add_rms_norm_bf16), EMULATED_KERNEL(add_rms_norm_f32), EMULATED_KERNEL(rotate_and_store_bf16),
    EMULATED_KERNEL(rotate_and_store_f32), EMULATED_KERNEL(gain_gradient_bf16), EMULATED_KERNEL(gain_gradient_f32))
