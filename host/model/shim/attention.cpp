// Attention over sequences of different lengths in one launch, on GPUs. torch-sys has its backward pass alone.

#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <exception>
#include <utility>

extern "C" {

// Attention of queries [n, heads, D] to keys and values [m, kv_heads, D]; the offsets are those of the sequences, i32. Sets
// `out` to a tensor like the queries and `logsumexp` to one of [heads, n], f32; both belong to the caller. False on failure,
// with the reason in `reason`.
bool pl_varlen_attention(const at::Tensor* q, const at::Tensor* k, const at::Tensor* v, const at::Tensor* query_offsets,
                         const at::Tensor* key_offsets, int64_t longest_query, int64_t longest_key, bool causal,
                         at::Tensor** out, at::Tensor** logsumexp, char* reason, size_t size) {
  try {
    at::NoGradGuard none;
    auto result = at::_flash_attention_forward(*q, *k, *v, *query_offsets, *key_offsets, longest_query, longest_key,
                                               /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false);
    *out = new at::Tensor(std::move(std::get<0>(result)));
    *logsumexp = new at::Tensor(std::move(std::get<1>(result)));
    return true;
  } catch (const std::exception& error) {
    std::snprintf(reason, size, "%s", error.what());
  } catch (...) {
    std::snprintf(reason, size, "an unknown exception");
  }
  return false;
}

}  // extern "C"
