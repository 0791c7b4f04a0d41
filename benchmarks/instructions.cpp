// The normal equations of one record, some times over: what callgrind counts (benchmarks/second_order.py).
// Arguments: samples, states, hidden units of f, repetitions.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "../src/tausid/engine/csrc/second_order.h"

using namespace tausid::second_order;

namespace {

std::mt19937 generator(0);

std::vector<double> numbers(size_t n, double size) {
  std::vector<double> all(n);
  for (double& value : all) value = std::uniform_real_distribution<double>(-size, size)(generator);
  return all;
}

}  // namespace

int main(int, char** words) {
  const int samples = std::atoi(words[1]), nx = std::atoi(words[2]), hidden = std::atoi(words[3]);
  Net f{}, g{};
  f.n_in = g.n_in = nx + 1;
  f.n_out = nx, g.n_out = 1;
  f.layers = 1, f.width[0] = hidden, f.activation = tausid::kTanh;
  f.bias = g.bias = 1;
  const double a[16] = {0, 0, 0, 0, .5, 0, 0, 0, 0, .5, 0, 0, 0, 0, 1, 0}, b[4] = {1. / 6, 1. / 3, 1. / 3, 1. / 6};
  const double c[4] = {0, .5, .5, 1}, hold[1] = {0}, low[1] = {-INFINITY}, high[1] = {INFINITY};
  std::vector<double> rate(size_t(nx), 1.0);
  System s{nx, 1, 1, f, g, 4, 1, a, b, c, hold, rate.data(), low, high};
  const size_t N = size_t(samples), P = size_t(parameters(f) + parameters(g)), n = size_t(nx);
  std::vector<double> theta = numbers(P, 0.1), u = numbers(N, 1.0), y = numbers(N, 1.0), w(N, 1.0), dt(N, 0.05), x0(n, 0.0);
  for (int r = 0; r < nx; r++) theta[size_t(r * (features(f) + 1))] -= 1.0;
  const int64_t length = samples;
  Samples records{1, &length, u.data(), y.data(), w.data(), dt.data()};
  const tausid::second_order::Kernels& kernels = tausid::avx2::second_order_kernels;
  std::vector<double> work(size_t(kernels.work(s, true))), sums(size_t(kernels.sums(s, true)));
  std::vector<double> H(P * P), h(P), G(n * P), K(n * n), k(n);
  double cost = 0;
  Sums out{&cost, H.data(), h.data(), G.data(), K.data(), k.data()};
  for (int i = 0; i < std::atoi(words[4]); i++) {
    cost = kernels.normal(s, theta.data(), x0.data(), records, 0, 1, 0, true, sums.data(), out, work.data());
    kernels.collect(s, sums.data(), H.data(), h.data());
  }
  return std::isfinite(cost) ? 0 : 1;
}
