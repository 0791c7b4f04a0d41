// The kernels on a grid of sizes, each array in a heap block of exactly its size, for AddressSanitizer and UBSan to
// watch (tests/sanitize.sh). Results of every instruction set, kept or recomputed, must agree with the plain one in
// double precision.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernel.h"

using namespace tausid;

struct Case {
  int batch, samples, nx, nu;
  std::vector<int> hidden;
  Activation activation;
  int stages, substeps;
};

// Where the tableau's entries matter not, random ones do.
const Case kCases[] = {
    {1, 1, 1, 0, {1}, kLeakyRelu, 1, 1},        {1, 2, 1, 1, {1}, kTanh, 4, 1},      {5, 4, 3, 2, {7, 5}, kRelu, 2, 3},
    {13, 3, 5, 3, {17, 23}, kSigmoid, 4, 2},    {64, 3, 4, 1, {64, 64}, kLeakyRelu, 4, 1},
    {63, 3, 8, 0, {8, 31, 20, 15}, kElu, 3, 1}, {65, 2, 2, 1, {16, 16, 16}, kTanh, 1, 1},
    {130, 3, 17, 9, {3, 40}, kLeakyRelu, 2, 2}, {7, 5, 40, 3, {2, 130}, kSigmoid, 4, 1},
};

// Exactly `n` numbers, so that the one behind them is foreign; the same numbers for every type.
template <class R>
std::unique_ptr<R[]> fill(int64_t n, double scale, unsigned seed) {
  std::unique_ptr<R[]> p(new R[n]);
  srand(seed);
  for (int64_t i = 0; i < n; i++) p[i] = R(scale * (2.0 * rand() / RAND_MAX - 1.0));
  return p;
}

std::vector<Tile> tiles_of(int64_t count, int lanes) {
  std::vector<Tile> tiles;
  for (int64_t first = 0; first < count; first += kTileLanes) {
    int here = int(std::min<int64_t>(kTileLanes, count - first));
    tiles.push_back({first, here, (here + lanes - 1) / lanes * lanes});
  }
  return tiles;
}

template <class R>
void append(std::vector<double>& all, const R* values, int64_t n) {
  all.insert(all.end(), values, values + n);
}

// States and all gradients of a rollout, then of the network alone, in one list.
template <class R>
std::vector<double> compute(const Kernels<R>& kernels, const Case& c, bool keep) {
  Rollout<R> run;
  Network<R>& net = run.network;
  net.layers = int(c.hidden.size());
  net.n_in = c.nx + c.nu;
  net.n_out = c.nx;
  net.activation = c.activation;
  std::vector<std::unique_ptr<R[]>> weights;
  int k = net.n_in;
  for (int l = 0; l < net.layers; l++) {
    int m = net.width[l] = c.hidden[l];
    weights.push_back(fill<R>(int64_t(m) * k, 1 / std::sqrt(k), 10 + l));
    net.weight[l] = weights.back().get();
    weights.push_back(fill<R>(m, 0.5, 20 + l));
    net.bias[l] = weights.back().get();
    k = m;
  }
  weights.push_back(fill<R>(int64_t(c.nx) * (k + net.n_in), 1 / std::sqrt(k), 30));
  net.last = weights.back().get();
  int s = c.stages;
  auto a = fill<double>(s * s, 1, 1), b = fill<double>(s, 1, 2), cc = fill<double>(s, 1, 3), hold = fill<double>(c.nu, 1, 4);
  for (int i = 0; i < s; i++)
    for (int j = i; j < s; j++) a[i * s + j] = 0;
  auto x0 = fill<R>(c.batch * c.nx, 1, 5), u = fill<R>(c.samples * c.batch * c.nu, 1, 6);
  auto dt = fill<R>((c.samples - 1) * c.batch, 0.1, 7), grad_x = fill<R>(c.samples * c.batch * c.nx, 1, 8);
  run.nx = c.nx, run.nu = c.nu, run.stages = s, run.substeps = c.substeps, run.samples = c.samples, run.batch = c.batch;
  run.a = a.get(), run.b = b.get(), run.c = cc.get(), run.hold = hold.get();
  run.x0 = x0.get(), run.u = u.get(), run.dt = dt.get();

  auto tiles = tiles_of(c.batch, kernels.lanes);
  int64_t padded = tiles.back().first + tiles.back().width, count = count_weights(net);
  auto x = fill<R>(c.samples * c.batch * c.nx, 0, 0), kept = fill<R>(kernels.rollout_kept(run) * padded, 0, 0);
  auto work = fill<R>(kernels.rollout_work(run), 0, 0), grad_w = fill<R>(count, 0, 0);
  auto grad_x0 = fill<R>(c.batch * c.nx, 0, 0), grad_u = fill<R>(c.samples * c.batch * c.nu, 0, 0);
  auto grad_dt = fill<R>((c.samples - 1) * c.batch, 0, 0);
  R* keeps = keep ? kept.get() : nullptr;
  kernels.rollout_forward(run, tiles.data(), int(tiles.size()), x.get(), keeps, work.get());
  kernels.rollout_backward(run, tiles.data(), int(tiles.size()), x.get(), keeps, grad_x.get(), grad_x0.get(), grad_u.get(),
                           grad_dt.get(), grad_w.get(), work.get());
  std::vector<double> all;
  append(all, x.get(), c.samples * c.batch * c.nx);
  append(all, grad_x0.get(), c.batch * c.nx);
  append(all, grad_u.get(), c.samples * c.batch * c.nu);
  append(all, grad_dt.get(), (c.samples - 1) * c.batch);
  append(all, grad_w.get(), count);
  for (int i = 0; i < c.batch; i++) kernels.rollout_single(run, i, x.get(), work.get());
  append(all, x.get(), c.samples * c.batch * c.nx);

  auto z = fill<R>(c.batch * net.n_in, 1, 9), y = fill<R>(c.batch * c.nx, 0, 0), grad_z = fill<R>(c.batch * net.n_in, 0, 0);
  auto points = fill<R>(kernels.network_kept(net) * padded, 0, 0), network_work = fill<R>(kernels.network_work(net), 0, 0);
  R* points_kept = keep ? points.get() : nullptr;
  kernels.network_forward(net, tiles.data(), int(tiles.size()), z.get(), y.get(), points_kept, network_work.get());
  kernels.network_backward(net, tiles.data(), int(tiles.size()), z.get(), points_kept, y.get(), grad_z.get(), grad_w.get(),
                           network_work.get());
  append(all, y.get(), c.batch * c.nx);
  append(all, grad_z.get(), c.batch * net.n_in);
  append(all, grad_w.get(), count);
  return all;
}

int failures = 0;

template <class R>
void check(const char* isa, const Kernels<R>& kernels, double tolerance) {
  for (const Case& c : kCases)
    for (bool keep : {true, false}) {
      auto wanted = compute(plain::kernels_f64, c, true), got = compute(kernels, c, keep);
      double scale = 0, error = 0;
      for (double w : wanted) scale = std::max(scale, std::abs(w));
      for (size_t i = 0; i < wanted.size(); i++) error = std::max(error, std::abs(got[i] - wanted[i]));
      if (!(error <= tolerance * scale)) {
        printf("FAILED %s, %zu bytes, case %td: error %g\n", isa, sizeof(R), &c - kCases, error / scale);
        failures++;
      }
    }
  printf("%s, %zu bytes: %zu cases\n", isa, sizeof(R), sizeof kCases / sizeof *kCases);
}

int main() {
  check("plain", plain::kernels_f32, 1e-5);
  check("plain", plain::kernels_f64, 1e-12);
// sanitize.sh compiles what this processor can run.
#ifdef TAUSID_HAVE_AVX2
  check("avx2", avx2::kernels_f32, 1e-5);
  check("avx2", avx2::kernels_f64, 1e-12);
#endif
#ifdef TAUSID_HAVE_AVX512
  check("avx512", avx512::kernels_f32, 1e-5);
  check("avx512", avx512::kernels_f64, 1e-12);
#endif
  return failures != 0;
}
