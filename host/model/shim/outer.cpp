// Sums of outer products into gradients by MKL, which is a part of libtorch on x86-64.
//
// MKL divides products among its threads as it likes, some of them along the sum, so the bits of a result depend on the number of
// threads. Here the result is divided into blocks that depend on its shape alone, and one thread computes each.

#if defined(__x86_64__)

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

extern "C" {

void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb, const float* beta,
            float* c, const int* ldc);
int MKL_Set_Num_Threads_Local(int threads);

// Adds the transpose of a [T, out] times b [T, in] to c [out, in], all in rows of `lda`, `ldb` and `ldc` numbers.
void pl_add_outer(float* c, int ldc, const float* a, int lda, const float* b, int ldb, int terms, int out, int in) {
  // Large enough for the speed of a whole product, small enough for several threads. Few rows, as an adapter's, leave more columns.
  const int rows = 256, columns = out <= 64 ? 128 : 1024;
  const int64_t across = (in + columns - 1) / columns, blocks = (out + rows - 1) / rows * across;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const int before = MKL_Set_Num_Threads_Local(1);
    for (int64_t block = begin; block < end; ++block) {
      const int row = static_cast<int>(block / across) * rows, column = static_cast<int>(block % across) * columns;
      const int height = std::min(rows, out - row), width = std::min(columns, in - column);
      const float one = 1;
      // MKL reads columns first, so to it every matrix is its transpose.
      sgemm_("N", "T", &width, &height, &terms, &one, b + column, &ldb, a + row, &lda, &one,
             c + static_cast<int64_t>(row) * ldc + column, &ldc);
    }
    MKL_Set_Num_Threads_Local(before);
  });
}

}  // extern "C"

#endif
