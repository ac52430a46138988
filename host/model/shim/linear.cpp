// Matrix products by oneDNN, which libtorch contains but exposes only to TorchScript.
//
// `at::mm` calls MKL, whose kernels for CPUs of other makers than Intel stop at AVX2; oneDNN's kernels use all that
// the CPU supports. Arguments and results are pointers to at::Tensor, as torch-sys passes them.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>

#include <cstdio>
#include <exception>
#include <optional>

namespace {

// Empty if this libtorch was built without oneDNN.
const std::optional<c10::OperatorHandle>& linear() {
  static const auto found =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  return found;
}

}  // namespace

extern "C" {

bool pl_linear_available() { return linear().has_value(); }

// x [T, in] times the transpose of w [out, in]; null on failure, with the reason in `reason`.
at::Tensor* pl_linear(const at::Tensor* x, const at::Tensor* w, char* reason, size_t size) {
  try {
    at::NoGradGuard none;
    torch::jit::Stack stack;
    stack.emplace_back(*x);
    stack.emplace_back(*w);
    stack.emplace_back();
    stack.emplace_back("none");
    stack.emplace_back(c10::List<std::optional<at::Scalar>>());
    stack.emplace_back("");
    linear().value().callBoxed(stack);
    return new at::Tensor(std::move(stack.at(0)).toTensor());
  } catch (const std::exception& error) {
    std::snprintf(reason, size, "%s", error.what());
    return nullptr;
  } catch (...) {
    // No exception may reach Rust.
    std::snprintf(reason, size, "an exception of an unknown type");
    return nullptr;
  }
}
}
