// The products of adapters on a CPU; see emulated.h.
#include "../emulated.h"

#include "../numbers.cu"
#include "../lora.cu"

EMULATED_KERNELS(
    EMULATED_KERNEL(lora_shrink_bf16), EMULATED_KERNEL(lora_shrink_f32), EMULATED_KERNEL(lora_expand_bf16),
    EMULATED_KERNEL(lora_expand_f32))
