// Simulation of whole records in double precision, and the normal equations of its error: what the calls
// (second_order_calls.cpp, compiled once) and the kernels (second_order.cpp, compiled once per instruction set) agree
// on. Only plain types, as in kernel.h. All sizes are run-time values: no structure costs a compilation.
#pragma once
#include <cstdint>

#include "kernel.h"

namespace tausid {
namespace second_order {

constexpr int kSoftplus = kActivations;  // besides those of the rollout
constexpr int kMaxDegree = 8;            // of monomials

// out = readout [z; h; m; 1], h = s(W_n ... s(W_1 z + b_1) ... + b_n), m products of entries of z.
// Its parameters lie in this order: for each output the row [linear, hidden, monomials, bias] of `readout`, then for
// each hidden layer (n_in + 1, width), row-major: the weights of each of its inputs, and last its bias.
struct Net {
  int n_in, n_out, layers;
  int width[kMaxLayers];
  int activation;
  int monomials, degree;   // `factors` (monomials, degree): indices into z; -1 for no further factor
  const int32_t* factors;
  int bias;                // whether there is a constant
};

// dx/dt = rate f(x, u), y = clip(g(x, u), low, high), or g(x) where g has nx inputs.
struct System {
  int nx, nu, ny;
  Net f, g;
  int stages, substeps;
  const double *a, *b, *c;  // tableau; a is stages x stages, zero on and above the diagonal
  const double* hold;       // share of the way to the next sample that each input goes within a step
  const double* rate;       // 1 / tau of each state
  const double *low, *high; // limits of the outputs; infinite where there are none
};

// Records one after the other: u (N, nu), y and w (N, ny), dt (N), of which the last of a record is not used.
// The error of an output counts w times; w is zero where nothing was measured.
struct Samples {
  int64_t records;
  const int64_t* lengths;
  const double *u, *y, *w, *dt;
};

// Sums over records: the error r = w (y_hat - y) and its Jacobian J in the parameters (P of them) and the initial
// states. Any of them may be null, but for the cost.
struct Sums {
  double* cost;  // r'r; infinite where a simulation diverges
  double *H, *h; // (P, P), (P)
  double *G;     // (records, nx, P): between each initial state and the parameters
  double *K, *k; // (records, nx, nx), (records, nx)
};

struct Kernels {
  int lanes;
  // Numbers of working memory; `columns` as below.
  int64_t (*work)(const System&, bool with_theta);
  // Numbers of one accumulator.
  int64_t (*sums)(const System&, bool with_theta);
  // Simulate records [first, last) and add up; x (N, nx) and y_hat (N, ny) may be null. Returns r'r.
  double (*run)(const System&, const double* theta, const double* x0, const Samples&, int64_t first, int64_t last,
                int64_t sample, double* x, double* y_hat, double* work);
  // The same with the Jacobian; the accumulator is set to zero first. G, K, k of these records are written.
  double (*normal)(const System&, const double* theta, const double* x0, const Samples&, int64_t first, int64_t last,
                   int64_t sample, bool with_theta, double* sums, const Sums&, double* work);
  // H and h from an accumulator, added to what is there.
  void (*collect)(const System&, const double* sums, double* H, double* h);
};

inline int64_t features(const Net& n) {
  return n.n_in + (n.layers ? n.width[n.layers - 1] : 0) + n.monomials + n.bias;
}
inline int64_t parameters(const Net& n) {
  int64_t count = n.n_out * features(n), in = n.n_in;
  for (int l = 0; l < n.layers; l++) {
    count += (in + 1) * n.width[l];
    in = n.width[l];
  }
  return count;
}

}  // namespace second_order
namespace avx512 { extern const second_order::Kernels second_order_kernels; }
namespace avx2 { extern const second_order::Kernels second_order_kernels; }
namespace plain { extern const second_order::Kernels second_order_kernels; }
}  // namespace tausid
