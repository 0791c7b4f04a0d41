// Simulation and normal equations under the sanitizers: many structures, lengths and thread counts, in buffers of exactly
// the size that Python hands over. Finite differences of the cost say that what is computed is not nonsense. With
// a number of rounds as argument, eight threads also ask at once in every fifth.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "../src/tausid/engine/csrc/second_order.h"

using namespace tausid::second_order;
extern "C" int tausid_simulate(int, const System*, const double*, const double*, const Samples*, double*, double*, double*);
extern "C" int tausid_normal(int, const System*, int, const double*, const double*, const Samples*, int, const Sums*);
extern "C" int tausid_lanes(int, int);
extern "C" int tausid_recursion(int64_t, int64_t, int64_t, const double*, const double*, const double*, double*);

namespace {

std::mt19937 generator(0);
int whole(int least, int most) { return std::uniform_int_distribution<int>(least, most)(generator); }
std::vector<double> numbers(size_t n, double size) {
  std::vector<double> all(n);
  for (double& value : all) value = std::uniform_real_distribution<double>(-size, size)(generator);
  return all;
}

Net random_net(int n_in, int n_out, std::vector<int32_t>& factors) {
  Net n{};
  n.n_in = n_in;
  n.n_out = n_out;
  n.layers = whole(0, 3);
  for (int l = 0; l < n.layers; l++) n.width[l] = whole(1, 17);
  n.activation = whole(0, kSoftplus);
  n.bias = whole(0, 1);
  n.monomials = whole(0, 2) ? 0 : whole(1, 9);
  n.degree = n.monomials ? whole(1, 3) : 0;
  factors.resize(size_t(n.monomials * n.degree));
  for (int32_t& f : factors) f = whole(0, n_in - 1);
  n.factors = factors.data();
  return n;
}

// The same sums to the bit, where eight threads ask for them at once, with four threads each, and simulate.
bool same_from_eight_threads(int isa, const System& s, const std::vector<double>& theta, const std::vector<double>& x0,
                             const Samples& d, const std::vector<double>& H, double cost) {
  std::vector<int> good(8, 0);
  std::vector<std::thread> threads;
  for (int& mine : good)
    threads.emplace_back([&] {
      size_t P = theta.size(), nx = size_t(s.nx), records = x0.size() / nx;
      std::vector<double> h(P), H_now(P * P), G(records * nx * P), K(records * nx * nx), k(records * nx);
      double cost_now = 0, simulated = 0;
      Sums sums{&cost_now, H_now.data(), h.data(), G.data(), K.data(), k.data()};
      bool failed = tausid_normal(isa, &s, 4, theta.data(), x0.data(), &d, 1, &sums) ||
                    tausid_simulate(isa, &s, theta.data(), x0.data(), &d, nullptr, nullptr, &simulated);
      mine = !failed && cost_now == cost && H_now == H;
    });
  for (std::thread& thread : threads) thread.join();
  for (int one : good)
    if (!one) return false;
  return true;
}

int check(int isa, int round, bool eight_threads) {
  System s{};
  s.nx = whole(1, 5), s.nu = whole(0, 3), s.ny = whole(0, 9) ? whole(1, 3) : 41;
  std::vector<int32_t> factors_f, factors_g;
  s.f = random_net(s.nx + s.nu, s.nx, factors_f);
  s.g = random_net(whole(0, 1) ? s.nx : s.nx + s.nu, s.ny, factors_g);
  double a[16] = {0, 0, 0, 0, .5, 0, 0, 0, 0, .5, 0, 0, 0, 0, 1, 0}, b[4] = {1. / 6, 1. / 3, 1. / 3, 1. / 6}, c[4] = {0, .5, .5, 1};
  double euler[1] = {0}, one[1] = {1};
  bool rk4 = whole(0, 1);
  s.stages = rk4 ? 4 : 1, s.substeps = whole(1, 3);
  s.a = rk4 ? a : euler, s.b = rk4 ? b : one, s.c = rk4 ? c : euler;
  std::vector<double> hold = numbers(size_t(s.nu), 1.0), rate(size_t(s.nx), 0.7), low(size_t(s.ny), -5.0), high(size_t(s.ny), 5.0);
  s.hold = hold.data(), s.rate = rate.data(), s.low = low.data(), s.high = high.data();
  size_t P = size_t(parameters(s.f) + parameters(s.g)), nx = size_t(s.nx), ny = size_t(s.ny);
  int64_t records = whole(0, 11), N = 0;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < records; i++) lengths.push_back(whole(0, 9)), N += lengths.back();
  if (round % 7 == 0 && records) N += 300, lengths[0] += 300;
  std::vector<double> u = numbers(size_t(N * s.nu), 1), y = numbers(size_t(N) * ny, 1), w = numbers(size_t(N) * ny, 1), dt(size_t(N), 0.05);
  for (double& value : w) value = value < -0.5 ? 0.0 : 1.0;
  Samples d{records, lengths.data(), u.data(), y.data(), w.data(), dt.data()};
  std::vector<double> theta = numbers(P, 0.3), x0 = numbers(size_t(records) * nx, 0.5);
  std::vector<double> x(size_t(N) * nx), y_hat(size_t(N) * ny), H(P * P), h(P), G(size_t(records) * nx * P);
  std::vector<double> K(size_t(records) * nx * nx), k(size_t(records) * nx);
  double cost = 0, again = 0, more = 0;
  if (tausid_simulate(isa, &s, theta.data(), x0.data(), &d, x.data(), y_hat.data(), &cost)) return 1;
  Sums sums{&again, H.data(), h.data(), G.data(), K.data(), k.data()};
  if (tausid_normal(isa, &s, whole(1, 4), theta.data(), x0.data(), &d, 1, &sums)) return 2;
  if (!(std::fabs(cost - again) <= 1e-9 * (1 + cost)) && std::isfinite(cost)) return 3;
  if (eight_threads && round % 5 == 1 && std::isfinite(again) && !same_from_eight_threads(isa, s, theta, x0, d, H, again)) return 8;
  Sums only{&again, nullptr, nullptr, nullptr, K.data(), k.data()};
  if (tausid_normal(isa, &s, 2, theta.data(), x0.data(), &d, 0, &only)) return 4;
  if (N && std::isfinite(cost)) {  // along one random direction
    std::vector<double> way = numbers(P, 1.0), moved = theta;
    double slope = 0, step = 1e-6;
    for (size_t i = 0; i < P; i++) moved[i] += step * way[i], slope += 2 * h[i] * way[i];
    if (tausid_simulate(isa, &s, moved.data(), x0.data(), &d, nullptr, nullptr, &more)) return 5;
    if (!(std::fabs((more - cost) / step - slope) <= 2e-2 * (1 + std::fabs(slope)))) return 6;
  }
  s.nx = 0;
  return tausid_simulate(isa, &s, theta.data(), x0.data(), &d, nullptr, nullptr, &cost) == 1 ? 0 : 7;
}

int check_recursion() {
  for (int64_t n : {1, 3})
    for (int64_t K : {0, 1, 5})
      for (int64_t N : {0, 1, 7}) {
        std::vector<double> A = numbers(size_t(n * n), 0.5), drive = numbers(size_t(n * K * N), 1.0);
        std::vector<double> x0 = numbers(size_t(n * K), 1.0), x(size_t(n * K * N));
        if (tausid_recursion(n, K, N, A.data(), drive.data(), x0.data(), x.data())) return 1;
        if (N && K && x[size_t((n * K - 1) * N)] != x0[size_t(n * K - 1)]) return 2;
      }
  return tausid_recursion(0, 1, 1, nullptr, nullptr, nullptr, nullptr) == 1 ? 0 : 3;
}

}  // namespace

int main(int count, char** words) {
  int rounds = count > 1 ? std::atoi(words[1]) : 150;
  if (int failed = check_recursion()) return std::printf("recursion: check %d failed\n", failed);
  for (int isa = 0; isa < 3; isa++)
    for (int round = 0; tausid_lanes(isa, 8) && round < rounds; round++)
      if (int failed = check(isa, round, count > 1)) return std::printf("second order: check %d failed, instruction set %d, round %d\n", failed, isa, round);
  return 0;
}
