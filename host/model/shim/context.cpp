// Settings of libtorch that its C interface lacks.

#include <ATen/Context.h>

extern "C" {

// Chooses deterministic algorithms where an operation has one. Those that have none go on; new memory is not filled.
void pl_deterministic(bool on) {
  at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

bool pl_is_deterministic() { return at::globalContext().deterministicAlgorithms(); }

}  // extern "C"
