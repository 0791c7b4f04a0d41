// What Python calls by ctypes: check sizes, choose the instruction set, share records among threads.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "second_order.h"

namespace tausid {
namespace second_order {
namespace {

// What a call returns; the order of compiled.py's messages.
enum Outcome : int { kDone, kInvalid, kNoMemory, kNoInstructions };

// The same order as in handlers.cpp.
enum Isa : int { kAvx512, kAvx2, kPlain };

const Kernels* kernels_for(int isa) {
#ifdef TAUSID_HAVE_AVX512
  if (isa == kAvx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return &avx512::second_order_kernels;
#endif
#ifdef TAUSID_HAVE_AVX2
  if (isa == kAvx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return &avx2::second_order_kernels;
#endif
  return isa == kPlain ? &plain::second_order_kernels : nullptr;
}

// Bounds far beyond any use, so that no product of sizes overflows.
constexpr int64_t kMaxWidth = 1 << 14, kMaxColumns = 1 << 15, kMaxMonomials = 1 << 14;
constexpr int64_t kMaxSamples = int64_t(1) << 40;
// Records are cut into this many shares, whatever the number of threads, so that sums do not depend on it.
constexpr int64_t kShares = 8;

bool within(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

bool valid(const Net& n, int n_in, int n_out) {
  if (n.n_in != n_in || n.n_out != n_out || !within(n.layers, 0, kMaxLayers)) return false;
  for (int l = 0; l < n.layers; l++)
    if (!within(n.width[l], 1, kMaxWidth)) return false;
  if (!within(n.activation, 0, kSoftplus) || !within(n.bias, 0, 1)) return false;
  if (!within(n.monomials, 0, kMaxMonomials) || (n.monomials && !within(n.degree, 1, kMaxDegree))) return false;
  for (int64_t i = 0; i < int64_t(n.monomials) * n.degree; i++)
    if (!within(n.factors[i], -1, n_in - 1)) return false;
  return true;
}

bool valid(const System& s, const Samples& d) {
  if (!within(s.nx, 1, 1024) || !within(s.nu, 0, 1024) || !within(s.ny, 1, 1024)) return false;
  if (!within(s.stages, 1, kMaxStages) || !within(s.substeps, 1, 1 << 20)) return false;
  int g_in = s.g.n_in == s.nx ? s.nx : s.nx + s.nu;
  if (!valid(s.f, s.nx + s.nu, s.nx) || !valid(s.g, g_in, s.ny)) return false;
  if (parameters(s.f) + parameters(s.g) > kMaxColumns || !within(d.records, 0, kMaxSamples)) return false;
  int64_t samples = 0;
  for (int64_t b = 0; b < d.records; b++) {
    if (!within(d.lengths[b], 0, kMaxSamples - samples)) return false;
    samples += d.lengths[b];
  }
  return true;
}

// Records [first, last), which begin with a sample.
struct Share {
  int64_t first, last, sample;
};

std::vector<Share> cut(const Samples& d) {
  int64_t all = 0, count = std::min(d.records, kShares);
  for (int64_t b = 0; b < d.records; b++) all += d.lengths[b];
  std::vector<Share> shares;
  int64_t record = 0, sample = 0, done = 0;
  for (int64_t i = 0; i < count; i++) {
    Share share{record, record, sample};
    int64_t until = all / count * (i + 1);
    while (share.last < d.records - (count - 1 - i) && (share.last == share.first || done + d.lengths[share.last] / 2 < until || i + 1 == count))
      done += d.lengths[share.last++];
    record = share.last;
    sample = done;
    shares.push_back(share);
  }
  return shares;
}

std::unique_ptr<double[]> numbers(int64_t count) { return std::unique_ptr<double[]>(new double[size_t(count) + 8]); }

double* aligned(double* p) { return reinterpret_cast<double*>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64); }

// Call `work(i)` for each i below `count`, on several threads.
template <class Work>
void share_out(int64_t count, int threads, const Work& work) {
  int64_t used = std::min<int64_t>(std::max(threads, 1), count);
  auto some = [&](int64_t t) {
    for (int64_t i = t; i < count; i += used) work(i);
  };
  std::vector<std::thread> others;
  int64_t started = 1;
  try {
    for (; started < used; started++) others.emplace_back(some, started);
  } catch (const std::system_error&) {  // no more threads: this one does their part
  }
  some(0);
  for (int64_t t = started; t < used; t++) some(t);
  for (auto& other : others) other.join();
}

int simulate(const Kernels& k, const System& s, const double* theta, const double* x0, const Samples& d, double* x,
             double* y, double* cost) {
  auto work = numbers(k.work(s, false));
  *cost = k.run(s, theta, x0, d, 0, d.records, 0, x, y, aligned(work.get()));
  return kDone;
}

int normal(const Kernels& k, const System& s, int threads, const double* theta, const double* x0, const Samples& d,
           bool with_theta, const Sums& out) {
  std::vector<Share> shares = cut(d);
  int64_t count = int64_t(shares.size()), size = k.sums(s, with_theta), work = k.work(s, with_theta);
  int64_t P = parameters(s.f) + parameters(s.g);
  std::vector<std::unique_ptr<double[]>> sums(static_cast<size_t>(count)), works(static_cast<size_t>(count));
  for (auto& part : sums) part = numbers(size);
  for (auto& part : works) part = numbers(work);
  std::vector<double> costs(static_cast<size_t>(count), 0.0);
  share_out(count, threads, [&](int64_t i) {
    size_t at = static_cast<size_t>(i);
    costs[at] = k.normal(s, theta, x0, d, shares[at].first, shares[at].last, shares[at].sample, with_theta,
                         aligned(sums[at].get()), out, aligned(works[at].get()));
  });
  *out.cost = 0.0;
  for (double cost : costs) *out.cost += cost;
  if (!with_theta) return kDone;
  std::fill(out.H, out.H + P * P, 0.0);
  std::fill(out.h, out.h + P, 0.0);
  if (std::isfinite(*out.cost))
    for (auto& part : sums) k.collect(s, aligned(part.get()), out.H, out.h);
  return kDone;
}

template <class Work>
int guarded(int isa, const System& s, const Samples& d, const Work& work) {
  const Kernels* k = kernels_for(isa);
  if (!k) return kNoInstructions;
  if (!valid(s, d)) return kInvalid;
  try {
    return work(*k);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

}  // namespace
}  // namespace second_order
}  // namespace tausid

using namespace tausid::second_order;

// States x (N, nx) and outputs y (N, ny) along records, NaN after one has diverged, and the cost; x and y may be null.
extern "C" int tausid_simulate(int isa, const System* s, const double* theta, const double* x0, const Samples* d, double* x,
                               double* y, double* cost) {
  return guarded(isa, *s, *d, [&](const Kernels& k) { return simulate(k, *s, theta, x0, *d, x, y, cost); });
}

// The normal equations; without theta only those of the initial states.
extern "C" int tausid_normal(int isa, const System* s, int threads, const double* theta, const double* x0, const Samples* d,
                             int with_theta, const Sums* out) {
  return guarded(isa, *s, *d, [&](const Kernels& k) { return normal(k, *s, threads, theta, x0, *d, with_theta != 0, *out); });
}

extern "C" int64_t tausid_parameters(const System* s) { return parameters(s->f) + parameters(s->g); }
