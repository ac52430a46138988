// The products of adapters on a CPU; see emulated.h.
#include "../emulated.h"

#include "../numbers.cu"
#include "../lora.cu"

EMULATED_KERNELS(EMULATED_KERNEL(lora_shrink), EMULATED_KERNEL(lora_expand))
