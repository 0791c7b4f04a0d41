// What the handlers (handlers.cpp, compiled once) and the kernels (kernel.cpp, compiled once per instruction set)
// agree on. Only plain types: an inline function of the standard library, compiled here with AVX-512 and merged by the
// linker with its plain twin, would crash an older processor.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tausid {

constexpr int kMaxLayers = 4;   // hidden layers
constexpr int kMaxStages = 16;  // stages of a Runge-Kutta method
constexpr int kTileLanes = 64;  // most trajectories that are advanced together

enum Activation : int { kLeakyRelu, kRelu, kTanh, kElu, kSigmoid, kActivations };

// y = F [a_n; z], a_l = s(W_l a_{l-1} + b_l), a_0 = z. Matrices are row-major; F = [W_{n+1} L] has the linear part of
// the network behind the output layer, so that both are one product.
template <class R>
struct Network {
  int layers, n_in, n_out;
  int width[kMaxLayers];
  const R* weight[kMaxLayers];
  const R* bias[kMaxLayers];
  const R* last;
  Activation activation;
};

// dx/dt = network([x; u]). Arrays as in Python: x0 (B, nx), u (J, B, nu), dt (J-1, B), x (J, B, nx).
template <class R>
struct Rollout {
  Network<R> network;
  int nx, nu, stages, substeps;
  int64_t samples, batch;      // J, B
  const double *a, *b, *c;     // tableau; a is stages x stages, zero on and above the diagonal
  const double* hold;          // share of the way to the next sample that each input goes within a step
  const R *x0, *u, *dt;
};

// Trajectories (or points) first, ..., first + count - 1, in `width` lanes. Lanes beyond `count` repeat the last
// trajectory, so that they overflow only where it does; their gradient is zero.
struct Tile {
  int64_t first;
  int count, width;
};

template <class R>
struct Kernels {
  int lanes;  // trajectories per vector register
  // Numbers per trajectory that a forward pass keeps for the backward one.
  int64_t (*rollout_kept)(const Rollout<R>&);
  int64_t (*network_kept)(const Network<R>&);
  // Numbers of working memory that each thread needs, for any of the functions below.
  int64_t (*rollout_work)(const Rollout<R>&);
  int64_t (*network_work)(const Network<R>&);
  // Where `kept` is null, the forward pass keeps nothing and the backward pass evaluates each step once more.
  void (*rollout_forward)(const Rollout<R>&, const Tile*, int tiles, R* x, R* kept, R* work);
  void (*rollout_backward)(const Rollout<R>&, const Tile*, int tiles, const R* x, const R* kept, const R* grad_x,
                           R* grad_x0, R* grad_u, R* grad_dt, R* grad_weights, R* work);
  void (*network_forward)(const Network<R>&, const Tile*, int tiles, const R* z, R* y, R* kept, R* work);
  void (*network_backward)(const Network<R>&, const Tile*, int tiles, const R* z, const R* kept, const R* grad_y,
                           R* grad_z, R* grad_weights, R* work);
  // One trajectory, with the features of a layer along the vector lanes.
  void (*rollout_single)(const Rollout<R>&, int64_t trajectory, R* x, R* work);
};

// Numbers in all weights: W_1, b_1, ..., W_n, b_n, F, in this order; the order of `grad_weights`.
template <class R>
int64_t count_weights(const Network<R>& net) {
  int64_t n = 0;
  int64_t in = net.n_in;
  for (int l = 0; l < net.layers; l++) {
    n += (in + 1) * net.width[l];
    in = net.width[l];
  }
  return n + (in + net.n_in) * net.n_out;
}

namespace avx512 { extern const Kernels<float> kernels_f32; extern const Kernels<double> kernels_f64; }
namespace avx2 { extern const Kernels<float> kernels_f32; extern const Kernels<double> kernels_f64; }
namespace plain { extern const Kernels<float> kernels_f32; extern const Kernels<double> kernels_f64; }

}  // namespace tausid
