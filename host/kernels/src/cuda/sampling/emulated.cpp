// The sampling of tokens on a CPU; see emulated.h.
#include "../emulated.h"

#include "../numbers.cu"
#include "../sampling.cu"

EMULATED_KERNELS(EMULATED_KERNEL(sum_parts), EMULATED_KERNEL(choose_tokens))
