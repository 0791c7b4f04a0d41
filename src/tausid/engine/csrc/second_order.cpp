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

struct Arena {
  double* memory;
  int64_t used = 0;
  double* take(int64_t n) {
    double* p = memory ? memory + used : nullptr;
    used += padded(n) + 8;  // vectors may reach beyond the end
    if (p) std::memset(p, 0, size_t(padded(n) + 8) * sizeof(double));
    return p;
  }
};

// A network with its weights copied to rows of whole vectors, filled up with zeros.
struct Copy {
  const Net* net;
  int64_t nf, ld_readout;
  double* readout;                 // (n_out, ld)
  double* of_hidden;               // (n_out, ld of the last layer): its part for the hidden units
  double* layer[kMaxLayers];       // (n_in + 1, ld)
  int64_t ld[kMaxLayers];
};

// A network at a point: features [z; h; m; 1], activations and slopes of its layers, and derivatives of the outputs:
// by the inputs of each layer's activation, and by z.
struct Point {
  double* features;                // nf
  double* z;                       // n_in: where the features begin
  double* a[kMaxLayers];           // activations; those of the last layer are among the features
  double* d[kMaxLayers];           // slopes
  double* t[kMaxLayers];           // (n_out, ld)
  double* dz;                      // (n_out, n_in)
};

Copy take_copy(Arena& arena, const Net& n) {
  Copy c{};
  c.net = &n;
  c.nf = second_order::features(n);
  c.ld_readout = padded(c.nf);
  c.readout = arena.take(n.n_out * c.ld_readout);
  int64_t in = n.n_in;
  for (int l = 0; l < n.layers; l++) {
    c.ld[l] = padded(n.width[l]);
    c.layer[l] = arena.take((in + 1) * c.ld[l]);
    in = n.width[l];
  }
  if (n.layers) c.of_hidden = arena.take(n.n_out * c.ld[n.layers - 1]);
  return c;
}

Point take_point(Arena& arena, const Copy& c, bool slopes) {
  Point p{};
  p.z = p.features = arena.take(c.nf);  // what a last layer fills up its last vector with fits behind the end
  for (int l = 0; l < c.net->layers; l++) {
    p.a[l] = l + 1 < c.net->layers ? arena.take(c.ld[l]) : p.features + c.net->n_in;
    p.d[l] = arena.take(c.ld[l]);
    if (slopes) p.t[l] = arena.take(c.net->n_out * c.ld[l]);
  }
  if (slopes) p.dz = arena.take(int64_t(c.net->n_out) * c.net->n_in);
  return p;
}

void fill_copy(const Copy& c, const double* theta) {
  const Net& n = *c.net;
  for (int o = 0; o < n.n_out; o++, theta += c.nf) std::memcpy(c.readout + o * c.ld_readout, theta, size_t(c.nf) * 8);
  int64_t in = n.n_in;
  for (int l = 0; l < n.layers; l++) {
    for (int64_t i = 0; i <= in; i++, theta += n.width[l]) std::memcpy(c.layer[l] + i * c.ld[l], theta, size_t(n.width[l]) * 8);
    in = n.width[l];
  }
  for (int o = 0; n.layers && o < n.n_out; o++)
    std::memcpy(c.of_hidden + o * c.ld[n.layers - 1], c.readout + o * c.ld_readout + n.n_in, size_t(in) * 8);
}

// ---------------------------------------------------------------------------------------------------------------------
// Networks

// a = s(W in + b) of a layer, and its slopes d; vectors are taken together that do not wait for one another.
template <int A>
void layer_of(const double* weights, int64_t ld, const double* in, int64_t count, double* a, double* d) {
  constexpr int kTogether = 8 / L;  // ld is a multiple of 8
  const auto one = broadcast<double>(1.0);
  for (int64_t j = 0; j < ld; j += 8) {
    V v[kTogether];
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; k++) v[k] = load(weights + count * ld + j + k * L);
    for (int64_t i = 0; i < count; i++) {
      const V x = broadcast<double>(in[i]);
#pragma GCC unroll 4
      for (int k = 0; k < kTogether; k++) v[k] += load(weights + i * ld + j + k * L) * x;
    }
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; k++) {
      if constexpr (A != kSoftplus) {
        v[k] = activate<double, A>(v[k]);
        store(d + j + k * L, pull_activation<double, A>(one, v[k]));
      }
      store(a + j + k * L, v[k]);
    }
  }
  if constexpr (A == kSoftplus)
    for (int64_t j = 0; j < ld; j++) {
      const double x = a[j], e = std::exp(-std::fabs(x));
      a[j] = (x > 0 ? x : 0.0) + std::log1p(e) + (x - x);  // NaN stays NaN
      d[j] = (x < 0 ? e : 1.0) / (1.0 + e);
    }
}

void layer_of(int activation, const double* weights, int64_t ld, const double* in, int64_t count, double* a, double* d) {
  switch (activation) {
    case kLeakyRelu: return layer_of<kLeakyRelu>(weights, ld, in, count, a, d);
    case kRelu: return layer_of<kRelu>(weights, ld, in, count, a, d);
    case kTanh: return layer_of<kTanh>(weights, ld, in, count, a, d);
    case kElu: return layer_of<kElu>(weights, ld, in, count, a, d);
    case kSigmoid: return layer_of<kSigmoid>(weights, ld, in, count, a, d);
    default: return layer_of<kSoftplus>(weights, ld, in, count, a, d);
  }
}

// out[k] = a[k] b for N rows of a, at once; all are filled up with zeros.
template <int N>
TAUSID_INLINE void dots(const double* a, int64_t ld, const double* b, int64_t n, double* out) {
  V s[N] = {};
  for (int64_t j = 0; j < n; j += L) {
    V x = load(b + j);
#pragma GCC unroll 4
    for (int k = 0; k < N; k++) s[k] += load(a + k * ld + j) * x;
  }
#pragma GCC unroll 4
  for (int k = 0; k < N; k++) out[k] = sum_lanes<double>(s[k]);
}

// The products of all rows of a matrix with a vector.
void multiply(const double* a, int64_t ld, int64_t rows, const double* b, int64_t n, double* out) {
  for (; rows >= 4; rows -= 4, a += 4 * ld, out += 4) dots<4>(a, ld, b, n, out);
  switch (rows) {
    case 3: return dots<3>(a, ld, b, n, out);
    case 2: return dots<2>(a, ld, b, n, out);
    case 1: return dots<1>(a, ld, b, n, out);
  }
}

double product(const int32_t* factors, int degree, const double* z, int without) {
  double p = 1.0;
  for (int i = 0; i < degree && factors[i] >= 0; i++)
    if (i != without) p *= z[factors[i]];
  return p;
}

// The value at p.z.
void forward(const Copy& c, const Point& p, double* out) {
  const Net& n = *c.net;
  const double* in = p.z;
  int64_t count = n.n_in;
  for (int l = 0; l < n.layers; l++) {
    layer_of(n.activation, c.layer[l], c.ld[l], in, count, p.a[l], p.d[l]);
    count = n.width[l];
    in = p.a[l];
  }
  double* f = p.features + n.n_in + (n.layers ? count : 0);
  for (int m = 0; m < n.monomials; m++) *f++ = product(n.factors + int64_t(m) * n.degree, n.degree, p.z, -1);
  if (n.bias) *f = 1.0;
  multiply(c.readout, c.ld_readout, n.n_out, p.features, c.nf, out);
}

// Derivatives of the outputs by what each layer's activations see, and by the first nx of z.
void slopes(const Copy& c, const Point& p, int nx) {
  const Net& n = *c.net;
  const int last = n.layers - 1;
  for (int o = 0; o < n.n_out; o++) {
    const double* row = c.readout + o * c.ld_readout;
    double* dz = p.dz + int64_t(o) * n.n_in;
    for (int l = last; l >= 0; l--) {
      double* t = p.t[l] + o * c.ld[l];
      const double* from = c.of_hidden + o * c.ld[last];
      if (l < last) {
        multiply(c.layer[l + 1], c.ld[l + 1], n.width[l], p.t[l + 1] + o * c.ld[l + 1], c.ld[l + 1], t);
        from = t;
      }
      for (int64_t j = 0; j < c.ld[l]; j += L) store(t + j, load(from + j) * load(p.d[l] + j));
    }
    if (n.layers) multiply(c.layer[0], c.ld[0], nx, p.t[0] + o * c.ld[0], c.ld[0], dz);
    else std::memset(dz, 0, size_t(nx) * 8);
    for (int i = 0; i < nx; i++) dz[i] += row[i];
    const double* weights = row + n.n_in + (n.layers ? n.width[last] : 0);
    for (int m = 0; m < n.monomials; m++) {
      const int32_t* factors = n.factors + int64_t(m) * n.degree;
      for (int i = 0; i < n.degree && factors[i] >= 0; i++)
        if (factors[i] < nx) dz[factors[i]] += weights[m] * product(factors, n.degree, p.z, i);
    }
  }
}

// Call `work(j)` for each vector of a row with so many entries: first the one that reaches beyond it, as what lies behind
// it is written by others.
template <class Work>
TAUSID_INLINE void each_vector(int64_t width, const Work& work) {
  const int64_t whole = width / L * L;
  if (whole < width) work(whole);
  for (int64_t j = 0; j < whole; j += L) work(j);
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
    each_vector(width, [&](int64_t j) {
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
  double *x, *k, *y;
  int points;

  Simulator(const System& s, Arena& arena, bool jacobian) : s(s) {
    f = take_copy(arena, s.f);
    g = take_copy(arena, s.g);
    points = jacobian ? s.stages : 1;
    for (int i = 0; i < points; i++) stage[i] = take_point(arena, f, jacobian);
    at_output = take_point(arena, g, jacobian);
    x = arena.take(s.nx);
    k = arena.take(int64_t(s.stages) * s.nx);
    y = arena.take(s.ny);
  }

  void fill(const double* theta) {
    fill_copy(f, theta);
    fill_copy(g, theta + parameters(s.f));
  }

  // The output at the state now, before its limits.
  void output(const double* u) {
    std::memcpy(at_output.z, x, size_t(s.nx) * 8);
    if (s.g.n_in > s.nx) std::memcpy(at_output.z + s.nx, u, size_t(s.nu) * 8);
    forward(g, at_output, y);
  }

  // Stage i of a substep of length h: its slope of the state.
  const Point& take_stage(int i, int substep, double h, const double* u, const double* u_next) {
    const Point& p = stage[points > 1 ? i : 0];
    for (int r = 0; r < s.nx; r++) p.z[r] = x[r];
    for (int j = 0; j < i; j++) {
      const double a = h * s.a[i * s.stages + j];
      if (a == 0.0) continue;
      for (int r = 0; r < s.nx; r++) p.z[r] += a * k[j * s.nx + r];
    }
    for (int r = 0; r < s.nu; r++) {
      p.z[s.nx + r] = u[r];
      if (s.hold[r] != 0.0) p.z[s.nx + r] += s.hold[r] * (substep + s.c[i]) / s.substeps * (u_next[r] - u[r]);
    }
    forward(f, p, k + i * s.nx);
    for (int r = 0; r < s.nx; r++) k[i * s.nx + r] *= s.rate[r];
    return p;
  }

  // Whether the state is still in its bounds after the substep.
  bool advance(double h) {
    bool fine = true;
    for (int r = 0; r < s.nx; r++) {
      double sum = 0.0;
      for (int i = 0; i < s.stages; i++) sum += s.b[i] * k[i * s.nx + r];
      x[r] += h * sum;
      fine = fine && std::fabs(x[r]) < kRunaway;
    }
    return fine;
  }

  bool in_bounds() const {
    for (int r = 0; r < s.nx; r++)
      if (!(std::fabs(x[r]) < kRunaway)) return false;
    return true;
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
template <int MR>
TAUSID_INLINE void add_block(const double* left, const double* right, int rows, double* sums, int64_t ld) {
  V s[MR][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j++) s[i][j] = load(sums + i * ld + j * L);
#pragma GCC unroll 2
  for (int n = 0; n < rows; n++, left += kPanelColumns, right += kPanelColumns) {
    V x[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j++) x[j] = load(right + j * L);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
      V w = broadcast<double>(left[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; j++) s[i][j] += w * x[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j++) store(sums + i * ld + j * L, s[i][j]);
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
    int64_t ld = columns.width();
    for (int64_t i = 0; i < columns.panels; i++)
      for (int64_t j = 0; j <= i; j++)
        for (int r = 0; r < kPanelColumns; r += MR)
          add_block<MR>(block + i * kRows * kPanelColumns + r, block + j * kRows * kPanelColumns, count,
                        sums + (i * kPanelColumns + r) * ld + j * kPanelColumns, ld);
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
  double *A, *Jk, *N;         // (nx, ldx); (stages, nx, ldx) twice
  double *row, *block;
  bool with_theta;

  Sensitivity(const System& s, Arena& arena, bool with_theta)
      : sim(s, arena, true), columns(s, with_theta), with_theta(with_theta) {
    ld = padded(columns.of_f + s.nx) + 8;  // vectors reach beyond the end
    S = arena.take(s.nx * ld);
    S_next = arena.take(s.nx * ld);
    ldx = (s.nx + L - 1) / L * L;
    square = s.nx * ldx;
    A = arena.take(square);
    Jk = arena.take(s.stages * square);
    N = arena.take(s.stages * square);
    row = arena.take(columns.width() + 8);
    block = arena.take(columns.panels * kRows * kPanelColumns);
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
    const int nx = s.nx;
    for (int i = 0; i < s.stages; i++) {
      const Point& p = sim.take_stage(i, substep, h, u, u_next);
      slopes(sim.f, p, nx);
      for (int r = 0; r < nx; r++)
        for (int c = 0; c < nx; c++) Jk[i * square + r * ldx + c] = s.rate[r] * p.dz[r * s.f.n_in + c];
    }
    with_states(nx, [&](auto known) { carry<known.value>(h); });
    double* last = S;
    S = S_next;
    S_next = last;
    return sim.advance(h);
  }

  // S+ = A S + B, some rows at a time. NX states where they are known, so that loops over them unroll.
  template <int NX>
  void carry(double h) {
    const System& s = sim.s;
    for (int i = s.stages - 1; i >= 0; i--) {  // N_i = h (b_i I + sum over later stages m of a_mi N_m dk_m/dx)
      double* n = N + i * square;
      set_diagonal(n, h * s.b[i]);
      for (int m = i + 1; m < s.stages; m++)
        if (s.a[m * s.stages + i] != 0.0) add_product<NX>(n, h * s.a[m * s.stages + i], N + m * square, Jk + m * square);
    }
    set_diagonal(A, 1.0);
    for (int i = 0; i < s.stages; i++) add_product<NX>(A, 1.0, N + i * square, Jk + i * square);
    constexpr int R = NX == 0 ? 1 : NX < 4 ? NX : NX % 2 ? 1 : 2;
    for (int r = 0; r < s.nx; r += R)
      if (s.stages == 4) carry_rows<R, NX, 4>(r);
      else carry_rows<R, NX, 0>(r);
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

  // R rows of S+ from `first` on: B = sum over stages i and outputs o of N_i rate_o dk_i,o/dtheta. NX states and ST stages
  // where they are known, so that loops over them unroll.
  template <int R, int NX, int ST>
  void carry_rows(int first) {
    const int nx = NX ? NX : sim.s.nx, stages = ST ? ST : sim.s.stages;
    constexpr int kStages = ST ? ST : kMaxStages;
    const Net& n = sim.s.f;
    const Copy& f = sim.f;
    const Point* p = sim.stage;
    V by[R][NX ? NX : 1];
    for (int r = 0; r < R; r++)
      for (int c = 0; c < NX; c++) by[r][c] = broadcast<double>(A[(first + r) * ldx + c]);
    const auto carried = [&](int64_t q, V(&sum)[R]) TAUSID_LAMBDA {
      for (int r = 0; r < R; r++) sum[r] = V{};
      for (int c = 0; c < nx; c++) {
        const V s = load(S + c * ld + q);
        for (int r = 0; r < R; r++) sum[r] += s * (NX ? by[r][c] : broadcast<double>(A[(first + r) * ldx + c]));
      }
    };
    const auto write = [&](int64_t q, const V(&sum)[R]) TAUSID_LAMBDA {
      for (int r = 0; r < R; r++) store(S_next + (first + r) * ld + q, sum[r]);
    };
    const auto left = [&](int r, int i, int o) TAUSID_LAMBDA {
      return broadcast<double>(N[i * square + (first + r) * ldx + o] * sim.s.rate[o]);
    };
    int64_t at = 0;
    for (int o = 0; with_theta && o < nx; o++, at += f.nf) {
      V w[R][kStages];
      for (int r = 0; r < R; r++)
        for (int i = 0; i < stages; i++) w[r][i] = left(r, i, o);
      for (int64_t j = 0; j < f.nf; j += L) {
        V sum[R];
        carried(at + j, sum);
        for (int i = 0; i < stages; i++) {
          const V x = load(p[i].features + j);
          for (int r = 0; r < R; r++) sum[r] += x * w[r][i];
        }
        write(at + j, sum);
      }
    }
    int64_t in = n.n_in;
    for (int l = 0; with_theta && l < n.layers; l++) {
      const int64_t width = n.width[l];
      const double* z[kStages];
      for (int i = 0; i < stages; i++) z[i] = l ? p[i].a[l - 1] : p[i].z;
      each_vector(width, [&](int64_t j) {
        V u[R][kStages];
        for (int r = 0; r < R; r++)
          for (int i = 0; i < stages; i++) u[r][i] = V{};
        for (int o = 0; o < nx; o++)
          for (int i = 0; i < stages; i++) {
            const V t = load(p[i].t[l] + o * f.ld[l] + j);
            for (int r = 0; r < R; r++) u[r][i] += t * left(r, i, o);
          }
        for (int64_t c = 0; c <= in; c++) {
          const int64_t q = at + c * width + j;
          V sum[R];
          carried(q, sum);
          for (int i = 0; i < stages; i++) {
            const V x = broadcast<double>(c < in ? z[i][c] : 1.0);
            for (int r = 0; r < R; r++) sum[r] += u[r][i] * x;
          }
          write(q, sum);
        }
      });
      at += (in + 1) * width;
      in = width;
    }
    for (int64_t q = columns.of_f; q < columns.of_f + nx; q += L) {
      V sum[R];
      carried(q, sum);
      write(q, sum);
    }
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
      const double* dz = sim.at_output.dz + int64_t(o) * sim.s.g.n_in;
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
