// A step of AdamW over lists of tensors in one launch, which torch-sys lacks.

#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <vector>

namespace {

std::vector<at::Tensor> list(const at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(*tensors[i]);
  return out;
}

}  // namespace

extern "C" {

// One step with `count` parameters, gradients and moments; `step` is a scalar with the number of the step, from 1. Gradients
// are divided by `divisor` unless it is null, and are zero afterwards. False on failure, with the reason in `reason`.
bool pl_fused_adamw(const at::Tensor* const* parameters, const at::Tensor* const* gradients,
                    const at::Tensor* const* means, const at::Tensor* const* squares, size_t count,
                    const at::Tensor* step, const at::Tensor* divisor, double rate, double beta1, double beta2,
                    double decay, double epsilon, char* reason, size_t size) {
  try {
    at::NoGradGuard none;
    const auto own = list(parameters, count), grads = list(gradients, count);
    const std::vector<at::Tensor> steps(count, *step);
    std::optional<at::Tensor> scale;
    if (divisor) scale = *divisor;
    at::_fused_adamw_(own, grads, list(means, count), list(squares, count), {}, steps, rate, beta1, beta2, decay,
                      epsilon, /*amsgrad=*/false, /*maximize=*/false, scale);
    at::_foreach_zero_(grads);
    return true;
  } catch (const std::exception& error) {
    std::snprintf(reason, size, "%s", error.what());
  } catch (...) {
    std::snprintf(reason, size, "an unknown exception");
  }
  return false;
}

}  // extern "C"
