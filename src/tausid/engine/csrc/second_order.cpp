// The simulation error of whole records and its normal equations, for one instruction set; compiled once for each, with
// TAUSID_ISA as the namespace. One trajectory at a time: hidden units, features and parameters lie along the vector
// lanes. A step x+ = Phi(x, theta) has the Jacobians A = dx+/dx and B = dx+/dtheta; S = dx/d(theta, x0) is carried along
// as S+ = A S + B. Both come from the stages backwards: with N_i = dx+/dk_i, A = I + sum N_i dk_i/dx and
// B = sum N_i dk_i/dtheta, so that S is touched once per step and not once per stage. Rows of J are collected in blocks
// and summed as J'J; the residual is one more column, which makes J'r and r'r part of the same product.
#include "second_order.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

namespace tausid {
namespace TAUSID_ISA {
namespace {

#include "lanes.h"

using namespace second_order;
using V = Vec<double>;
constexpr int L = kLanes<double>;
// Beyond this a normalized state has run away.
constexpr double kRunaway = 1e8;
// Blocks of J: rows, columns of a panel, and rows of the product that stay in registers.
constexpr int kRows = 128, kVectors = 3, kPanelColumns = kVectors * L, kProductRows = TAUSID_REGISTERS == 32 ? 8 : 4;
static_assert(kPanelColumns % kProductRows == 0 || L == 2, "panels are cut into whole blocks of rows");

constexpr int64_t padded(int64_t n) { return (n + 7) / 8 * 8; }
constexpr int64_t whole(int64_t n) { return (n + L - 1) / L * L; }

struct Arena {
  double* memory;
  int64_t used = 0;
  // Memory that is written before it is read; and zeros.
  double* reserve(int64_t n) {
    double* p = memory ? memory + used : nullptr;
    used += padded(n) + 8;  // vectors may reach beyond the end
    return p;
  }
  double* take(int64_t n) {
    double* p = reserve(n);
    if (p) std::memset(p, 0, size_t(padded(n) + 8) * sizeof(double));
    return p;
  }
};

// A network with its weights copied to rows of whole vectors, filled up with zeros.
struct Copy {
  const Net* net;
  const double* theta;
  int64_t nf, ld_out, ldx;         // features; outputs and states, as whole vectors
  double* readout;                 // (nf + 1, ld_out), transposed, times the rate of each output; last a row of zeros
  double* layer[kMaxLayers];       // (n_in + 1, ld)
  int64_t ld[kMaxLayers];
  // For slopes:
  double* of_hidden;               // (n_out, ld of the last layer): the readout of the hidden units
  double* of_states;               // (n_out, ldx): the readout of the states
  double* back[kMaxLayers];        // (width, ld of the layer before): a layer, transposed; the first for states only
};

// A network at a point: features [z; h; m; 1], activations of its layers, and derivatives of the outputs: by the inputs
// of each layer's activation, and by the states.
struct Point {
  double* features;                // nf
  double* z;                       // n_in: where the features begin
  double* a[kMaxLayers];           // activations; those of the last layer are among the features
  double* t[kMaxLayers];           // (n_out, ld)
  double* dz;                      // (n_out, ldx)
};

Copy take_copy(Arena& arena, const Net& n, int nx, bool slopes) {
  Copy c{};
  c.net = &n;
  c.nf = second_order::features(n);
  c.ld_out = whole(n.n_out);
  c.ldx = whole(nx);
  c.readout = arena.take((c.nf + 1) * c.ld_out);
  int64_t in = n.n_in, ld_in = c.ldx;
  for (int l = 0; l < n.layers; l++) {
    c.ld[l] = whole(n.width[l]);
    c.layer[l] = arena.take((in + 1) * c.ld[l]);
    if (slopes) c.back[l] = arena.take(n.width[l] * ld_in);
    in = n.width[l];
    ld_in = c.ld[l];
  }
  if (slopes && n.layers) c.of_hidden = arena.take(n.n_out * ld_in);
  if (slopes) c.of_states = arena.take(n.n_out * c.ldx);
  return c;
}

Point take_point(Arena& arena, const Copy& c, bool slopes) {
  Point p{};
  p.z = p.features = arena.take(c.nf);  // what a last layer fills up its last vector with fits behind the end
  for (int l = 0; l < c.net->layers; l++) {
    p.a[l] = l + 1 < c.net->layers ? arena.take(c.ld[l]) : p.features + c.net->n_in;
    if (slopes) p.t[l] = arena.take(c.net->n_out * c.ld[l]);
  }
  if (slopes) p.dz = arena.take(c.net->n_out * c.ldx);
  return p;
}

// `rate` of each output; none for all one.
void fill_copy(Copy& c, const double* theta, const double* rate, int nx) {
  const Net& n = *c.net;
  c.theta = theta;
  for (int o = 0; o < n.n_out; o++)
    for (int64_t i = 0; i < c.nf; i++) c.readout[i * c.ld_out + o] = (rate ? rate[o] : 1.0) * theta[o * c.nf + i];
  const double* weights = theta + n.n_out * c.nf;
  int64_t in = n.n_in, states = nx, ld_in = c.ldx;
  for (int l = 0; l < n.layers; l++) {
    const int64_t width = n.width[l];
    for (int64_t j = 0; c.back[l] && j < width; j++)
      for (int64_t i = 0; i < states; i++) c.back[l][j * ld_in + i] = weights[i * width + j];
    for (int64_t i = 0; i <= in; i++, weights += width) std::memcpy(c.layer[l] + i * c.ld[l], weights, size_t(width) * 8);
    in = states = width;
    ld_in = c.ld[l];
  }
  for (int o = 0; c.of_hidden && o < n.n_out; o++)
    std::memcpy(c.of_hidden + o * ld_in, theta + o * c.nf + n.n_in, size_t(in) * 8);
  for (int o = 0; c.of_states && o < n.n_out; o++)
    std::memcpy(c.of_states + o * c.ldx, theta + o * c.nf, size_t(nx) * 8);
}

// ---------------------------------------------------------------------------------------------------------------------
// Networks

// Activations of K vectors of units, taken together as they do not wait for one another.
template <int A, int K>
TAUSID_INLINE void units(const double* weights, int64_t ld, const double* in, int64_t count, double* a) {
  V v[K];
#pragma GCC unroll 4
  for (int k = 0; k < K; k++) v[k] = load(weights + count * ld + k * L);
  for (int64_t i = 0; i < count; i++) {
    const V x = broadcast<double>(in[i]);
#pragma GCC unroll 4
    for (int k = 0; k < K; k++) v[k] += load(weights + i * ld + k * L) * x;
  }
#pragma GCC unroll 4
  for (int k = 0; k < K; k++) store(a + k * L, activate<double, A>(v[k]));
}

// a = s(W in + b) of a layer.
template <int A>
void layer_of(const double* weights, int64_t ld, const double* in, int64_t count, double* a) {
  constexpr int kTogether = L == 2 ? 4 : 2;
  int64_t j = 0;
  for (; j + kTogether * L <= ld; j += kTogether * L) units<A, kTogether>(weights + j, ld, in, count, a + j);
  for (; j < ld; j += L) units<A, 1>(weights + j, ld, in, count, a + j);
  if constexpr (A == kSoftplus)
    for (j = 0; j < ld; j++)
      a[j] = (a[j] > 0 ? a[j] : 0.0) + std::log1p(std::exp(-std::fabs(a[j]))) + (a[j] - a[j]);  // NaN stays NaN
}

// t = from * s'(a) for each row of a matrix.
template <int A>
void pull(const double* from, int64_t ld, int rows, const double* a, double* t) {
  for (int64_t j = 0; j < ld; j += L) {
    const V x = load(a + j);
    for (int64_t q = j; q < rows * ld; q += ld)
      if constexpr (A == kSoftplus) store(t + q, -load(from + q) * expm1_negative<double>(-x));
      else store(t + q, pull_activation<double, A>(load(from + q), x));
  }
}

// Call `work` with the activation as a type.
template <class Work>
TAUSID_INLINE void with_activation(int activation, const Work& work) {
  switch (activation) {
    case kLeakyRelu: return work(std::integral_constant<int, kLeakyRelu>());
    case kRelu: return work(std::integral_constant<int, kRelu>());
    case kTanh: return work(std::integral_constant<int, kTanh>());
    case kElu: return work(std::integral_constant<int, kElu>());
    case kSigmoid: return work(std::integral_constant<int, kSigmoid>());
    default: return work(std::integral_constant<int, kSoftplus>());
  }
}

// out = start + in columns, of N rows and with S sums for each, that do not wait for one another. `start` may be null.
template <int N, int S>
TAUSID_INLINE void rows_times(const double* in, int64_t ld_in, int64_t count, const double* columns, int64_t ld,
                              const double* start, double* out) {
  for (int64_t j = 0; j < ld; j += L) {
    V s[N][S] = {};
#pragma GCC unroll 4
    for (int n = 0; n < N; n++)
      if (start) s[n][0] = load(start + n * ld + j);
    const double* column = columns + j;
    int64_t i = 0;
    for (; i + S <= count; i += S)
#pragma GCC unroll 4
      for (int k = 0; k < S; k++, column += ld) {
        const V x = load(column);
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) s[n][k] += x * in[n * ld_in + i + k];
      }
    for (; i < count; i++, column += ld)
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) s[n][0] += load(column) * in[n * ld_in + i];
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      V sum = s[n][0];
      if constexpr (S == 4) sum = (sum + s[n][1]) + (s[n][2] + s[n][3]);
      store(out + n * ld + j, sum);
    }
  }
}

// The product of a matrix with another, whose rows are whole vectors: no sums over lanes.
void multiply(const double* in, int64_t ld_in, int rows, int64_t count, const double* columns, int64_t ld,
              const double* start, double* out) {
  const auto some = [&](auto known) TAUSID_LAMBDA {
    constexpr int N = known.value;
    rows_times<N, 1>(in, ld_in, count, columns, ld, start, out);
    rows -= N, in += N * ld_in, out += N * ld;
    if (start) start += N * ld;
  };
  while (rows >= 4) some(std::integral_constant<int, 4>());
  while (rows >= 2) some(std::integral_constant<int, 2>());
  if (rows) some(std::integral_constant<int, 1>());
}

double product(const int32_t* factors, int degree, const double* z, int without) {
  double p = 1.0;
  for (int i = 0; i < degree && factors[i] >= 0; i++)
    if (i != without) p *= z[factors[i]];
  return p;
}

// The value at p.z, times the rates.
void forward(const Copy& c, const Point& p, double* out) {
  const Net& n = *c.net;
  const double* in = p.z;
  int64_t count = n.n_in;
  for (int l = 0; l < n.layers; l++) {
    with_activation(n.activation, [&](auto known) { layer_of<known.value>(c.layer[l], c.ld[l], in, count, p.a[l]); });
    count = n.width[l];
    in = p.a[l];
  }
  double* f = p.features + n.n_in + (n.layers ? count : 0);
  for (int m = 0; m < n.monomials; m++) *f++ = product(n.factors + int64_t(m) * n.degree, n.degree, p.z, -1);
  if (n.bias) *f = 1.0;
  const int64_t varying = c.nf - n.bias;
  rows_times<1, 4>(p.features, 0, varying, c.readout, c.ld_out, c.readout + varying * c.ld_out, out);
}

// Derivatives of the outputs by what each layer's activations see, and by the states, the first nx of z.
void slopes(const Copy& c, const Point& p, int nx) {
  const Net& n = *c.net;
  const int last = n.layers - 1;
  for (int l = last; l >= 0; l--) {
    const int64_t ld = c.ld[l];
    if (l < last) multiply(p.t[l + 1], c.ld[l + 1], n.n_out, n.width[l + 1], c.back[l + 1], ld, nullptr, p.t[l]);
    const double* from = l < last ? p.t[l] : c.of_hidden;
    with_activation(n.activation, [&](auto known) { pull<known.value>(from, ld, n.n_out, p.a[l], p.t[l]); });
  }
  if (n.layers) multiply(p.t[0], c.ld[0], n.n_out, n.width[0], c.back[0], c.ldx, c.of_states, p.dz);
  else std::memcpy(p.dz, c.of_states, size_t(n.n_out * c.ldx) * 8);
  for (int o = 0; n.monomials && o < n.n_out; o++) {
    double* dz = p.dz + o * c.ldx;
    const double* weights = c.theta + (o + 1) * c.nf - n.bias - n.monomials;
    for (int m = 0; m < n.monomials; m++) {
      const int32_t* factors = n.factors + int64_t(m) * n.degree;
      for (int i = 0; i < n.degree && factors[i] >= 0; i++)
        if (factors[i] < nx) dz[factors[i]] += weights[m] * product(factors, n.degree, p.z, i);
    }
  }
}

// Call `work(j)` for each vector of a row with so many entries, from the last on: it reaches beyond the row, where the
// others write later.
template <class Work>
TAUSID_INLINE void each_vector(int64_t width, const Work& work) {
  for (int64_t j = (width - 1) / L * L; j >= 0; j -= L) work(j);
}

// row = factor d out_o / d parameters. Vectors reach beyond a piece: the next piece, which lies behind it, is written
// later.
void gradient(const Copy& c, const Point& p, int o, double factor, double* row) {
  const Net& n = *c.net;
  for (int other = 0; other < n.n_out; other++, row += c.nf)
    for (int64_t j = 0; j < c.nf; j += L) store(row + j, load(p.features + j) * (other == o ? factor : 0.0));
  int64_t in = n.n_in;
  const double* z = p.z;
  for (int l = 0; l < n.layers; l++) {
    const int64_t width = n.width[l];
    const double* t = p.t[l] + o * c.ld[l];
    each_vector(width, [&](int64_t j) TAUSID_LAMBDA {
      const V u = load(t + j) * factor;
      for (int64_t i = 0; i < in; i++) store(row + i * width + j, u * z[i]);
      store(row + in * width + j, u);
    });
    row += (in + 1) * width;
    in = width;
    z = p.a[l];
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Simulation

struct Simulator {
  const System& s;
  Copy f, g;
  Point stage[kMaxStages];
  Point at_output;
  int64_t ldx;                     // states as whole vectors
  double *x, *k, *y;               // (ldx); (stages, ldx): slopes of the state; outputs
  int points;

  Simulator(const System& s, Arena& arena, bool jacobian) : s(s), ldx(whole(s.nx)) {
    f = take_copy(arena, s.f, s.nx, jacobian);
    g = take_copy(arena, s.g, s.nx, jacobian);
    points = jacobian ? s.stages : 1;
    for (int i = 0; i < points; i++) stage[i] = take_point(arena, f, jacobian);
    at_output = take_point(arena, g, jacobian);
    x = arena.take(ldx);
    k = arena.take(s.stages * ldx);
    y = arena.take(s.ny);
  }

  void fill(const double* theta) {
    fill_copy(f, theta, s.rate, s.nx);
    fill_copy(g, theta + parameters(s.f), nullptr, s.nx);
  }

  // The output at the state now, before its limits.
  void output(const double* u) {
    for (int64_t r = 0; r < ldx; r += L) store(at_output.z + r, load(x + r));
    for (int r = s.nx; r < s.g.n_in; r++) at_output.z[r] = u[r - s.nx];
    forward(g, at_output, y);
  }

  // Stage i of a substep of length h: its slope of the state. Vectors of states reach beyond them: inputs come later.
  const Point& take_stage(int i, int substep, double h, const double* u, const double* u_next) {
    const Point& p = stage[points > 1 ? i : 0];
    for (int64_t r = 0; r < ldx; r += L) {
      V z = load(x + r);
      for (int j = 0; j < i; j++)
        if (s.a[i * s.stages + j] != 0.0) z += load(k + j * ldx + r) * (h * s.a[i * s.stages + j]);
      store(p.z + r, z);
    }
    for (int r = 0; r < s.nu; r++) {
      p.z[s.nx + r] = u[r];
      if (s.hold[r] != 0.0) p.z[s.nx + r] += s.hold[r] * (substep + s.c[i]) / s.substeps * (u_next[r] - u[r]);
    }
    forward(f, p, k + i * ldx);
    return p;
  }

  // Whether the state is still in its bounds after the substep.
  bool advance(double h) {
    for (int64_t r = 0; r < ldx; r += L) {
      V sum = V{};
      for (int i = 0; i < s.stages; i++) sum += load(k + i * ldx + r) * s.b[i];
      store(x + r, load(x + r) + sum * h);
    }
    return in_bounds();
  }

  bool in_bounds() const {
    bool fine = true;
    for (int r = 0; r < s.nx; r++) fine = fine && std::fabs(x[r]) < kRunaway;
    return fine;
  }
};

double limited(double y, double low, double high) { return y < low ? low : y > high ? high : y; }

int64_t run_work(const System& s) {
  Arena arena{nullptr};
  Simulator simulator(s, arena, false);
  return arena.used;
}

void fill_nan(double* p, int64_t n) {
  if (p)
    for (int64_t i = 0; i < n; i++) p[i] = NAN;
}

double run(const System& s, const double* theta, const double* x0, const Samples& d, int64_t first, int64_t last,
           int64_t sample, double* x_out, double* y_out, double* work) {
  Arena arena{work};
  Simulator sim(s, arena, false);
  sim.fill(theta);
  double cost = 0.0;
  for (int64_t b = first; b < last; b++) {
    int64_t n = d.lengths[b];
    std::memcpy(sim.x, x0 + b * s.nx, size_t(s.nx) * 8);
    bool fine = sim.in_bounds();
    if (!fine && n > 0) cost = INFINITY;
    for (int64_t i = 0; i < n; i++, sample++) {
      const double *u = d.u + sample * s.nu, *u_next = i + 1 < n ? u + s.nu : u;
      if (!fine) {
        if (x_out) fill_nan(x_out + sample * s.nx, s.nx);
        if (y_out) fill_nan(y_out + sample * s.ny, s.ny);
        continue;
      }
      sim.output(u);
      if (x_out) std::memcpy(x_out + sample * s.nx, sim.x, size_t(s.nx) * 8);
      for (int o = 0; o < s.ny; o++) {
        double y = limited(sim.y[o], s.low[o], s.high[o]), w = d.w ? d.w[sample * s.ny + o] : 0.0;
        if (y_out) y_out[sample * s.ny + o] = y;
        double r = w != 0.0 ? w * (y - d.y[sample * s.ny + o]) : 0.0;
        cost += r * r;
      }
      if (i + 1 == n) continue;
      double h = d.dt[sample] / s.substeps;
      for (int step = 0; step < s.substeps && fine; step++) {
        for (int q = 0; q < s.stages; q++) sim.take_stage(q, step, h, u, u_next);
        fine = sim.advance(h);
      }
      if (!fine) {
        cost = INFINITY;
        if (!x_out && !y_out) return cost;
      }
    }
  }
  return cost == cost ? cost : INFINITY;
}

// ---------------------------------------------------------------------------------------------------------------------
// J'J

// Columns of J: parameters of f, of g, initial state, residual; in panels of kPanelColumns.
struct Columns {
  int64_t of_f, of_g, nx, all, panels;
  Columns(const System& s, bool with_theta) {
    of_f = with_theta ? parameters(s.f) : 0;
    of_g = with_theta ? parameters(s.g) : 0;
    nx = s.nx;
    all = of_f + of_g + nx + 1;
    panels = (all + kPanelColumns - 1) / kPanelColumns;
  }
  int64_t theta() const { return of_f + of_g; }
  int64_t width() const { return panels * kPanelColumns; }
};

// sums[row + i][column...] += sum over n of left[n][i] right[n][...]
template <int MR, int VECTORS>
void add_block(const double* left, const double* right, int rows, double* sums, int64_t ld) {
  V s[MR][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) s[i][j] = load(sums + i * ld + j * L);
#pragma GCC unroll 2
  for (int n = 0; n < rows; n++, left += kPanelColumns, right += kPanelColumns) {
    V x[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) x[j] = load(right + j * L);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
      V w = broadcast<double>(left[i]);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; j++) s[i][j] += w * x[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) store(sums + i * ld + j * L, s[i][j]);
}

// Rows of J in panels, [panel][row][column], and their product.
struct Rows {
  const Columns& columns;
  double* block;
  double* sums;  // (width, width), its lower panels
  int count = 0;

  void add(const double* row) {
    for (int64_t p = 0; p < columns.panels; p++)
      std::memcpy(block + (p * kRows + count) * kPanelColumns, row + p * kPanelColumns, kPanelColumns * sizeof(double));
    if (++count == kRows) flush();
  }

  void flush() {
    constexpr int MR = kPanelColumns % kProductRows ? kPanelColumns : kProductRows;
    constexpr decltype(&add_block<MR, 1>) add[] = {add_block<MR, 1>, add_block<MR, 2>, add_block<MR, kVectors>};
    int64_t ld = columns.width();
    for (int64_t i = 0; i < columns.panels; i++)
      for (int64_t j = 0; j <= i; j++)
        for (int r = 0; r < kPanelColumns && i * kPanelColumns + r < columns.all; r += MR) {
          const int last = i == j ? (r + MR - 1) / L : kVectors - 1;  // vector with the diagonal
          add[last](block + i * kRows * kPanelColumns + r, block + j * kRows * kPanelColumns, count,
                    sums + (i * kPanelColumns + r) * ld + j * kPanelColumns, ld);
        }
    count = 0;
  }
};

// Call `work` with the number of states as a type, where it is small; with 0 for any other.
template <class Work>
TAUSID_INLINE void with_states(int nx, const Work& work) {
  switch (nx) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 3: return work(std::integral_constant<int, 3>());
    case 4: return work(std::integral_constant<int, 4>());
    case 5: return work(std::integral_constant<int, 5>());
    case 6: return work(std::integral_constant<int, 6>());
    default: return work(std::integral_constant<int, 0>());
  }
}

struct Sensitivity {
  Simulator sim;
  Columns columns;
  int64_t ld;               // of S: parameters of f, initial state
  double *S, *S_next;       // (nx, ld)
  int64_t ldx, square;      // of small matrices: their rows are whole vectors
  double *A, *N, *rate;     // (nx, ldx); (stages, nx, ldx); (ldx)
  double *row, *block;
  bool with_theta;

  Sensitivity(const System& s, Arena& arena, bool with_theta)
      : sim(s, arena, true), columns(s, with_theta), with_theta(with_theta) {
    ld = padded(columns.of_f + s.nx) + 8;  // vectors reach beyond the end
    S = arena.take(s.nx * ld);
    S_next = arena.take(s.nx * ld);
    ldx = sim.ldx;
    square = s.nx * ldx;
    A = arena.take(square);
    N = arena.take(s.stages * square);
    rate = arena.take(ldx);
    if (rate) std::memcpy(rate, s.rate, size_t(s.nx) * 8);
    row = arena.take(columns.width() + 8);
    block = arena.reserve(columns.panels * kRows * kPanelColumns);
  }

  void begin(const double* x0) {
    int nx = sim.s.nx;
    std::memcpy(sim.x, x0, size_t(nx) * 8);
    std::memset(S, 0, size_t(nx * ld) * 8);
    for (int r = 0; r < nx; r++) S[r * ld + columns.of_f + r] = 1.0;
  }

  // One substep: the state, and S+ = A S + B.
  bool step(int substep, double h, const double* u, const double* u_next) {
    const System& s = sim.s;
    for (int i = 0; i < s.stages; i++) {
      const Point& p = sim.take_stage(i, substep, h, u, u_next);
      slopes(sim.f, p, s.nx);
    }
    with_states(s.nx, [&](auto known) { carry<known.value>(h); });
    double* last = S;
    S = S_next;
    S_next = last;
    return sim.advance(h);
  }

  // S+ = A S + B, row by row. NX states where they are known, so that loops over them unroll.
  template <int NX>
  void carry(double h) {
    const System& s = sim.s;
    const Point* p = sim.stage;
    // N_i = h (b_i I + sum over later stages m of a_mi N_m dk_m/dx) rate: the rate is in the columns already.
    for (int i = s.stages - 1; i >= 0; i--) {
      double* n = N + i * square;
      set_diagonal(n, h * s.b[i]);
      for (int m = i + 1; m < s.stages; m++)
        if (s.a[m * s.stages + i] != 0.0) add_product<NX>(n, h * s.a[m * s.stages + i], N + m * square, p[m].dz);
      for (int64_t q = 0; q < square; q += ldx)
        for (int64_t c = 0; c < ldx; c += L) store(n + q + c, load(n + q + c) * load(rate + c));
    }
    set_diagonal(A, 1.0);
    for (int i = 0; i < s.stages; i++) add_product<NX>(A, 1.0, N + i * square, p[i].dz);
    for (int r = 0; r < s.nx; r++)
      if (s.stages == 4) carry_row<NX, 4>(r);
      else carry_row<NX, 0>(r);
  }

  void set_diagonal(double* matrix, double value) const {
    for (int64_t q = 0; q < square; q += L) store(matrix + q, V{});
    for (int r = 0; r < sim.s.nx; r++) matrix[r * (ldx + 1)] = value;
  }

  // out += factor a b
  template <int NX>
  TAUSID_INLINE void add_product(double* out, double factor, const double* a, const double* b) const {
    const int nx = NX ? NX : sim.s.nx;
    for (int64_t c = 0; c < (NX ? (NX + L - 1) / L * L : ldx); c += L)
      for (int r = 0; r < nx; r++) {
        V sum = V{};
        for (int m = 0; m < nx; m++) sum += load(b + m * ldx + c) * a[r * ldx + m];
        store(out + r * ldx + c, load(out + r * ldx + c) + sum * factor);
      }
  }

  // A row of S+: B = sum over stages i and outputs o of N_i rate_o dk_i,o/dtheta. NX states and ST stages where they are
  // known, so that loops over them unroll.
  template <int NX, int ST>
  void carry_row(int r) {
    const int nx = NX ? NX : sim.s.nx, stages = ST ? ST : sim.s.stages;
    constexpr int kStages = ST ? ST : kMaxStages;
    const Net& n = sim.s.f;
    const Copy& f = sim.f;
    const Point* p = sim.stage;
    const double *a = A + r * ldx, *from = S;
    double* to = S_next + r * ld;
    V by[NX ? NX : 1];
    for (int c = 0; c < NX; c++) by[c] = broadcast<double>(a[c]);
    const auto carried = [&](int64_t q) TAUSID_LAMBDA {
      V sum = V{};
      for (int c = 0; c < nx; c++) sum += load(from + c * ld + q) * (NX ? by[c] : broadcast<double>(a[c]));
      return sum;
    };
    const auto left = [&](int i, int o) TAUSID_LAMBDA { return broadcast<double>(N[i * square + r * ldx + o]); };
    int64_t at = 0;
    for (int o = 0; with_theta && o < nx; o++, at += f.nf) {
      V w[kStages];
      for (int i = 0; i < stages; i++) w[i] = left(i, o);
      for (int64_t j = 0; j < f.nf; j += L) {
        V sum = carried(at + j);
        for (int i = 0; i < stages; i++) sum += load(p[i].features + j) * w[i];
        store(to + at + j, sum);
      }
    }
    int64_t in = n.n_in;
    for (int l = 0; with_theta && l < n.layers; l++) {
      const int64_t width = n.width[l];
      const double* z[kStages];
      for (int i = 0; i < stages; i++) z[i] = l ? p[i].a[l - 1] : p[i].z;
      each_vector(width, [&](int64_t j) TAUSID_LAMBDA {
        V u[kStages];
        for (int i = 0; i < stages; i++) {
          u[i] = V{};
          for (int o = 0; o < nx; o++) u[i] += load(p[i].t[l] + o * f.ld[l] + j) * left(i, o);
        }
        int64_t q = at + j;
        for (int64_t c = 0; c < in; c++, q += width) {
          V sum = carried(q);
          for (int i = 0; i < stages; i++) sum += u[i] * z[i][c];
          store(to + q, sum);
        }
        V sum = carried(q);
        for (int i = 0; i < stages; i++) sum += u[i];
        store(to + q, sum);
      });
      at += (in + 1) * width;
      in = width;
    }
    for (int64_t q = columns.of_f; q < columns.of_f + nx; q += L) store(to + q, carried(q));
  }

  // The part of the row of J for the parameters of f: sum over states c of w dz_c S_c.
  template <int NX>
  void state_parameters(double w, const double* dz) {
    V by[NX ? NX : 1];
    for (int c = 0; c < NX; c++) by[c] = broadcast<double>(w * dz[c]);
    for (int64_t q = 0; q < columns.of_f; q += L) {
      V sum = V{};
      for (int c = 0; c < (NX ? NX : sim.s.nx); c++) sum += load(S + c * ld + q) * (NX ? by[c] : broadcast<double>(w * dz[c]));
      store(row + q, sum);
    }
  }

  // The row of J of output o, times w, and its residual.
  const double* jacobian(int o, double w, bool at_limit, double residual) {
    const int nx = sim.s.nx;
    if (at_limit) {
      std::memset(row, 0, size_t(columns.all) * 8);
    } else {
      const double* dz = sim.at_output.dz + o * ldx;
      if (with_theta) {
        with_states(nx, [&](auto known) { state_parameters<known.value>(w, dz); });
        gradient(sim.g, sim.at_output, o, w, row + columns.of_f);
      }
      for (int i = 0; i < nx; i++) {
        double sum = 0.0;
        for (int c = 0; c < nx; c++) sum += w * dz[c] * S[c * ld + columns.of_f + i];
        row[columns.theta() + i] = sum;
      }
    }
    row[columns.all - 1] = residual;
    for (int64_t q = columns.all; q < columns.width(); q++) row[q] = 0.0;
    return row;
  }
};

int64_t normal_work(const System& s, bool with_theta) {
  Arena arena{nullptr};
  Sensitivity sensitivity(s, arena, with_theta);
  return arena.used;
}

int64_t sums_size(const System& s, bool with_theta) {
  Columns columns(s, with_theta);
  return columns.width() * columns.width() + 8;
}

// What belongs to the initial state of record b leaves the sums.
void take_state(const Columns& c, double* sums, int64_t b, const Sums& out) {
  int64_t P = c.theta(), nx = c.nx, ld = c.width();
  for (int64_t i = 0; i < nx; i++) {
    double* row = sums + (P + i) * ld;
    if (out.G) std::memcpy(out.G + (b * nx + i) * P, row, size_t(P) * 8);
    for (int64_t j = 0; j < nx; j++)
      if (out.K) out.K[(b * nx + i) * nx + j] = i >= j ? row[P + j] : sums[(P + j) * ld + P + i];
    if (out.k) out.k[b * nx + i] = sums[(P + nx) * ld + P + i];
  }
  for (int64_t i = 0; i < nx; i++) {
    std::memset(sums + (P + i) * ld, 0, size_t(ld) * 8);
    sums[(P + nx) * ld + P + i] = 0.0;
  }
}

double normal(const System& s, const double* theta, const double* x0, const Samples& d, int64_t first, int64_t last,
              int64_t sample, bool with_theta, double* sums, const Sums& out, double* work) {
  Arena arena{work};
  Sensitivity sens(s, arena, with_theta);
  sens.sim.fill(theta);
  const Columns& columns = sens.columns;
  Rows rows{columns, sens.block, sums};
  std::memset(sums, 0, size_t(sums_size(s, with_theta)) * 8);
  for (int64_t b = first; b < last; b++) {
    int64_t n = d.lengths[b];
    sens.begin(x0 + b * s.nx);
    if (n > 0 && !sens.sim.in_bounds()) return INFINITY;
    for (int64_t i = 0; i < n; i++, sample++) {
      const double *u = d.u + sample * s.nu, *u_next = i + 1 < n ? u + s.nu : u;
      const double *w = d.w + sample * s.ny, *y = d.y + sample * s.ny;
      bool measured = false;
      for (int o = 0; o < s.ny; o++) measured = measured || w[o] != 0.0;
      if (measured) {
        sens.sim.output(u);
        slopes(sens.sim.g, sens.sim.at_output, s.nx);
        for (int o = 0; o < s.ny; o++) {
          if (w[o] == 0.0) continue;
          double free = sens.sim.y[o], y_hat = limited(free, s.low[o], s.high[o]);
          rows.add(sens.jacobian(o, w[o], y_hat != free, w[o] * (y_hat - y[o])));
        }
      }
      if (i + 1 == n) continue;
      double h = d.dt[sample] / s.substeps;
      for (int step = 0; step < s.substeps; step++)
        if (!sens.step(step, h, u, u_next)) return INFINITY;
    }
    rows.flush();
    take_state(columns, sums, b, out);
  }
  int64_t last_row = columns.all - 1;
  double cost = sums[last_row * columns.width() + last_row];
  return cost == cost ? cost : INFINITY;
}

void collect(const System& s, const double* sums, double* H, double* h) {
  Columns columns(s, true);
  int64_t P = columns.theta(), ld = columns.width();
  for (int64_t i = 0; i < P; i++)
    for (int64_t j = 0; j <= i; j++) {
      H[i * P + j] += sums[i * ld + j];
      if (j < i) H[j * P + i] = H[i * P + j];
    }
  for (int64_t i = 0; i < P; i++) h[i] += sums[(P + columns.nx) * ld + i];
}

int64_t work_size(const System& s, bool with_theta) {
  int64_t a = run_work(s), b = normal_work(s, with_theta);
  return a > b ? a : b;
}

}  // namespace

extern const second_order::Kernels second_order_kernels = {L, work_size, sums_size, run, normal, collect};

}  // namespace TAUSID_ISA
}  // namespace tausid
