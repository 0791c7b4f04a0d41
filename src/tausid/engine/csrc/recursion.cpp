// Linear recursions over long records, many signals side by side: what Python calls by ctypes (engine/recursion.py).
#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace {

constexpr int64_t kSide = 4;  // signals at a time: each waits for its own state
constexpr int64_t kMaxStates = 1 << 12, kMaxNumbers = int64_t(1) << 40;

enum Outcome : int { kDone, kInvalid, kNoMemory };  // as in second_order_calls.cpp

// Signals [first, first + kSide), of which those beyond the last are filled up with the last one.
void run(int64_t n, int64_t K, int64_t N, const double* A, const double* drive, const double* x0, int64_t first,
         double* work, double* x) {
  int64_t at[kSide];
  for (int64_t s = 0; s < kSide; s++) at[s] = std::min(first + s, K - 1);
  double *now = work, *next = work + n * kSide;
  for (int64_t i = 0; i < n; i++)
    for (int64_t s = 0; s < kSide; s++) now[i * kSide + s] = x0[i * K + at[s]];
  for (int64_t t = 0; t < N; t++) {
    for (int64_t i = 0; i < n; i++) {
      double sum[kSide];
      for (int64_t s = 0; s < kSide; s++) {
        x[(i * K + at[s]) * N + t] = now[i * kSide + s];
        sum[s] = drive[(i * K + at[s]) * N + t];
      }
      for (int64_t j = 0; j < n; j++) {
        const double a = A[i * n + j];
        for (int64_t s = 0; s < kSide; s++) sum[s] += a * now[j * kSide + s];
      }
      for (int64_t s = 0; s < kSide; s++) next[i * kSide + s] = sum[s];
    }
    std::swap(now, next);
  }
}

}  // namespace

// x[:, k, t + 1] = A x[:, k, t] + drive[:, k, t], from x0 (n, K); drive and x are (n, K, N).
extern "C" int tausid_recursion(int64_t n, int64_t K, int64_t N, const double* A, const double* drive, const double* x0,
                                double* x) {
  if (n < 1 || n > kMaxStates || K < 0 || N < 0 || (K && N > kMaxNumbers / K)) return kInvalid;
  try {
    std::vector<double> work(size_t(2 * n * kSide));
    for (int64_t first = 0; first < K; first += kSide) run(n, K, N, A, drive, x0, first, work.data(), x);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
  return kDone;
}
