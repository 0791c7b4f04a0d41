// The rollout of dx/dt = network([x; u]) and its adjoint, for one instruction set; compiled once for each, with
// TAUSID_ISA as the namespace. Trajectories lie along the vector lanes: every array is [feature][lane] of one tile, and
// each layer is a product of weights, broadcast, with a tile. See docs/engines.md for the why.
#include "kernel.h"

#include <cstring>
#include <utility>

namespace tausid {
namespace TAUSID_ISA {
namespace {

#include "lanes.h"
#include "multiply.h"

constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// Working memory, handed out from front to back. Every piece starts at a multiple of 64 bytes if the first one does.
// Without memory it only counts.
template <class R>
struct Arena {
  R* memory;
  int64_t used = 0;
  R* take(int64_t n) {
    R* p = rest();
    used += (n + 15) / 16 * 16;
    return p;
  }
  R* rest() const { return memory ? memory + used : nullptr; }
};

// ---------------------------------------------------------------------------------------------------------------------
// One evaluation of the network on a tile. A block holds what the adjoint needs: rows a_2, ..., a_n, z. The first layer
// (where it is not the last) is left out: to compute it once more from z costs less than to store and fetch it.

template <class R>
int first_kept(const Network<R>& net) {
  return net.layers > 1 ? 1 : 0;
}

template <class R>
int block_rows_of(const Network<R>& net) {
  int rows = net.n_in;
  for (int l = first_kept(net); l < net.layers; l++) rows += net.width[l];
  return rows;
}

template <class R, class Pointer>
Pointer input_rows(const Network<R>& net, Pointer block, int lanes) {
  return block + size_t(block_rows_of(net) - net.n_in) * lanes;
}

template <class R, int A>
void activate_rows(R* a, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes<R>) store(a + i, activate<R, A>(load(a + i)));
}

// out = s(W in + b). The ramps are applied to sums in registers; the others are long, and run over the finished rows.
template <class R>
void layer(Activation s, const R* weight, const R* bias, int m, int k, const R* in, R* out, int lanes) {
  switch (s) {
    case kLeakyRelu: return multiply(weight, k, in, lanes, m, k, lanes, Activate<R, kLeakyRelu>{out, lanes, bias});
    case kRelu: return multiply(weight, k, in, lanes, m, k, lanes, Activate<R, kRelu>{out, lanes, bias});
    default: multiply(weight, k, in, lanes, m, k, lanes, Activate<R, kActivations>{out, lanes, bias});
  }
  if (s == kTanh) activate_rows<R, kTanh>(out, int64_t(m) * lanes);
  if (s == kElu) activate_rows<R, kElu>(out, int64_t(m) * lanes);
  if (s == kSigmoid) activate_rows<R, kSigmoid>(out, int64_t(m) * lanes);
}

// From the z rows of the block to its other rows, and to the network's value y; `first` is room for the first layer.
template <class R>
void evaluate(const Network<R>& net, R* block, R* first, R* y, int lanes) {
  const R* in = input_rows(net, block, lanes);
  int k = net.n_in;
  R* next = block;
  for (int l = 0; l < net.layers; l++) {
    R* out = l < first_kept(net) ? first : next;
    layer(net.activation, net.weight[l], net.bias[l], net.width[l], k, in, out, lanes);
    in = out;
    k = net.width[l];
    if (out == next) next += size_t(k) * lanes;
  }
  k += net.n_in;  // the last layer's rows and z are neighbours
  multiply(net.last, k, in, lanes, net.n_out, k, lanes, Assign<R>{y, lanes});
}

// ---------------------------------------------------------------------------------------------------------------------
// The adjoint of one evaluation.

// Sum over lanes (and over time) of d a^T, d (m x lanes), a (k x lanes). Where m or k is narrow, every product keeps a
// vector of partial sums, reduced across lanes at the very end; else `a` is transposed and the sum is a product of
// matrices.
template <class R>
struct OuterSum {
  int m, k;
  R* sum;
  bool narrow() const { return m < kLanes<R> / 2 || k < kLanes<R> / 2; }
  int64_t size() const { return narrow() ? int64_t(m) * k * kLanes<R> : int64_t(m) * round_up(k, kLanes<R>); }
};

// Partial sums of MW rows of the wide factor with MN rows of the narrow one.
template <class R, int MW, int MN>
TAUSID_INLINE void outer_block(const R* wide, const R* narrow, int lanes, R* sum, int ld) {
  Vec<R> s[MW][MN];
  for (int i = 0; i < MW; i++)
    for (int q = 0; q < MN; q++) s[i][q] = load(sum + size_t(i * ld + q) * kLanes<R>);
  for (int lane = 0; lane < lanes; lane += kLanes<R>) {
    Vec<R> w[MW];
    for (int i = 0; i < MW; i++) w[i] = load(wide + size_t(i) * lanes + lane);
    for (int q = 0; q < MN; q++) {
      Vec<R> n = load(narrow + size_t(q) * lanes + lane);
      for (int i = 0; i < MW; i++) s[i][q] += w[i] * n;
    }
  }
  for (int i = 0; i < MW; i++)
    for (int q = 0; q < MN; q++) store(sum + size_t(i * ld + q) * kLanes<R>, s[i][q]);
}

// All rows of the narrow factor, in blocks that fit the registers.
template <class R, int MW>
TAUSID_INLINE void outer_rows(const R* wide, const R* narrow, int narrow_rows, int lanes, R* sum) {
  for (int q = 0; q < narrow_rows;) {
    const R* from = narrow + size_t(q) * lanes;
    R* to = sum + q * kLanes<R>;
    switch (narrow_rows - q) {
      case 1: outer_block<R, MW, 1>(wide, from, lanes, to, narrow_rows); q += 1; break;
      case 2: outer_block<R, MW, 2>(wide, from, lanes, to, narrow_rows); q += 2; break;
      case 3: outer_block<R, MW, 3>(wide, from, lanes, to, narrow_rows); q += 3; break;
      case 5: outer_block<R, MW, 5>(wide, from, lanes, to, narrow_rows); q += 5; break;
      default: outer_block<R, MW, 4>(wide, from, lanes, to, narrow_rows); q += 4;
    }
  }
}

// sum[wide][narrow][lane]
template <class R>
void outer_narrow(const R* wide, int wide_rows, const R* narrow, int narrow_rows, int lanes, R* sum) {
  constexpr int MW = TAUSID_REGISTERS == 32 ? 4 : 2;
  int i = 0;
  size_t ld = size_t(narrow_rows) * kLanes<R>;
  for (; i + MW <= wide_rows; i += MW) outer_rows<R, MW>(wide + size_t(i) * lanes, narrow, narrow_rows, lanes, sum + i * ld);
  for (; i < wide_rows; i++) outer_rows<R, 1>(wide + size_t(i) * lanes, narrow, narrow_rows, lanes, sum + i * ld);
}

template <class R>
void add_outer(const OuterSum<R>& o, const R* d, const R* a, int lanes, R* turned) {
  if (o.narrow() && o.m < o.k) return outer_narrow(a, o.k, d, o.m, lanes, o.sum);
  if (o.narrow()) return outer_narrow(d, o.m, a, o.k, lanes, o.sum);
  int ld = round_up(o.k, kLanes<R>);
  transpose(a, o.k, lanes, turned, ld);
  multiply(d, lanes, turned, ld, o.m, lanes, ld, Accumulate<R>{o.sum, ld});
}

// The sum as a row-major matrix.
template <class R>
R* write_outer(const OuterSum<R>& o, R* out) {
  for (int i = 0; i < o.m; i++)
    for (int q = 0; q < o.k; q++) {
      size_t at = o.m < o.k ? size_t(q) * o.m + i : size_t(i) * o.k + q;
      *out++ = o.narrow() ? sum_lanes<R>(load(o.sum + at * kLanes<R>)) : o.sum[size_t(i) * round_up(o.k, kLanes<R>) + q];
    }
  return out;
}

// Everything that the adjoint holds for the length of a call.
template <class R>
struct Adjoint {
  const Network<R>* net;
  OuterSum<R> weight[kMaxLayers], last;
  R* bias[kMaxLayers];            // partial sums, a vector a row
  R* back[kMaxLayers];            // [l] takes d_l to d_{l-1}: W_l transposed; [0] takes [d_1; dy] to dz: [W_1^T L^T]
  R* back_last;                   // takes dy to d_n
  R* d[kMaxLayers];               // d_n, ..., d_1, dy are neighbours in this order
  R* dy;
  R* turned;                      // a transposed tile
  R* first;                       // the first layer, once more
  R *sums, *totals;               // all sums above, and where they are moved to now and then
  int64_t size;
};

// Sums move to their totals every so many evaluations: a long sum of small terms would lose digits (float32, 10 000
// samples), a sum of sums does not.
constexpr int kSettleEvery = 128;

template <class R>
void settle(const Adjoint<R>& adj) {
  for (int64_t i = 0; i < adj.size; i++) {
    adj.totals[i] += adj.sums[i];
    adj.sums[i] = 0;
  }
}

template <class R>
void transpose_weights(const R* in, int ld_in, int rows, int columns, R* out, int ld_out) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) out[size_t(j) * ld_out + i] = in[size_t(i) * ld_in + j];
}

// Lay out the working memory, transpose the weights into it and set sums to zero.
template <class R>
Adjoint<R> make_adjoint(const Network<R>& net, Arena<R>& arena) {
  Adjoint<R> adj;
  adj.net = &net;
  int n = net.layers, h = net.width[n - 1], widest = h + net.n_in;
  int64_t first_sum = arena.used;
  for (int l = 0; l < n; l++) {
    int k = l ? net.width[l - 1] : net.n_in;
    adj.weight[l] = {net.width[l], k, nullptr};
    adj.weight[l].sum = arena.take(adj.weight[l].size());
    adj.bias[l] = arena.take(int64_t(net.width[l]) * kLanes<R>);
    if (k > widest) widest = k;
  }
  adj.last = {net.n_out, h + net.n_in, nullptr};
  adj.last.sum = arena.take(adj.last.size());
  adj.size = arena.used - first_sum;
  adj.totals = arena.take(adj.size);
  for (int l = 1; l < n; l++) adj.back[l] = arena.take(int64_t(net.width[l]) * net.width[l - 1]);
  int ld = net.width[0] + net.n_out;
  adj.back[0] = arena.take(int64_t(net.n_in) * ld);
  adj.back_last = arena.take(int64_t(h) * net.n_out);
  int64_t rows = net.n_out;
  for (int l = 0; l < n; l++) rows += net.width[l];
  R* d = arena.take(rows * kTileLanes);
  adj.d[n - 1] = d;
  adj.turned = arena.take(int64_t(round_up(widest, kLanes<R>)) * kTileLanes);
  adj.first = arena.take(int64_t(net.width[0]) * kTileLanes);
  if (!arena.memory) return adj;
  adj.sums = arena.memory + first_sum;
  memset(adj.sums, 0, size_t(adj.size) * sizeof(R));
  memset(adj.totals, 0, size_t(adj.size) * sizeof(R));
  for (int l = 1; l < n; l++)
    transpose_weights(net.weight[l], net.width[l - 1], net.width[l], net.width[l - 1], adj.back[l], net.width[l]);
  transpose_weights(net.weight[0], net.n_in, net.width[0], net.n_in, adj.back[0], ld);
  transpose_weights(net.last + h, h + net.n_in, net.n_out, net.n_in, adj.back[0] + net.width[0], ld);
  transpose_weights(net.last, h + net.n_in, net.n_out, h, adj.back_last, net.n_out);
  return adj;
}

// Where the d of this tile lie: neighbours, without gaps, whatever the width of the tile.
template <class R>
void place_rows(Adjoint<R>& adj, int lanes) {
  R* d = adj.d[adj.net->layers - 1];
  for (int l = adj.net->layers - 1; l >= 0; l--) {
    adj.d[l] = d;
    d += size_t(adj.net->width[l]) * lanes;
  }
  adj.dy = d;
}

template <class R, int A>
void pull_rows(R* d, const R* a, R* total, int rows, int lanes) {
  for (int i = 0; i < rows; i++) {
    Vec<R> s = load(total + i * kLanes<R>);
    for (int lane = 0; lane < lanes; lane += kLanes<R>) {
      size_t at = size_t(i) * lanes + lane;
      Vec<R> v = pull_activation<R, A>(load(d + at), load(a + at));
      store(d + at, v);
      s += v;
    }
    store(total + i * kLanes<R>, s);
  }
}

// out = (left right) * s'(a)
template <class R>
void pull_layer(Activation s, const R* left, const R* right, int m, int k, const R* a, R* out, R* total, int lanes) {
  switch (s) {
    case kLeakyRelu: return multiply(left, k, right, lanes, m, k, lanes, PullActivation<R, kLeakyRelu>{out, lanes, a, total});
    case kRelu: return multiply(left, k, right, lanes, m, k, lanes, PullActivation<R, kRelu>{out, lanes, a, total});
    default: multiply(left, k, right, lanes, m, k, lanes, Assign<R>{out, lanes});
  }
  if (s == kTanh) pull_rows<R, kTanh>(out, a, total, m, lanes);
  if (s == kElu) pull_rows<R, kElu>(out, a, total, m, lanes);
  if (s == kSigmoid) pull_rows<R, kSigmoid>(out, a, total, m, lanes);
}

// Bring quarter `q` of the block that is needed next towards the caches: it was written long ago, and waiting for it
// costs a tenth of the time. In quarters, among the products, so that the requests do not queue up.
template <class R>
void fetch_ahead(const R* next, int64_t size, int q) {
  if (!next) return;
  constexpr int line = 64 / int(sizeof(R));
  for (int64_t i = size * q / 4; i < size * (q + 1) / 4; i += line) __builtin_prefetch(next + i, 0, 2);
}

// From the gradient to the network's value (adj.dy) to that of its input, dz; weight gradients are added up. `next` is
// the block that the following call will get, or null.
template <class R>
void pull(const Adjoint<R>& adj, const R* block, const R* next, R* dz, int lanes) {
  const Network<R>& net = *adj.net;
  int n = net.layers;
  int64_t size = int64_t(block_rows_of(net)) * lanes;
  const R* a[kMaxLayers + 1];  // a[l] is the input of layer l; a[n] that of the last
  a[0] = input_rows(net, block, lanes);
  a[1] = adj.first;
  if (first_kept(net)) layer(net.activation, net.weight[0], net.bias[0], net.width[0], net.n_in, a[0], adj.first, lanes);
  for (int l = first_kept(net); l < n; l++) {
    a[l + 1] = block;
    block += size_t(net.width[l]) * lanes;
  }
  pull_layer(net.activation, adj.back_last, adj.dy, net.width[n - 1], net.n_out, a[n], adj.d[n - 1], adj.bias[n - 1], lanes);
  fetch_ahead(next, size, 0);
  add_outer(adj.last, adj.dy, a[n], lanes, adj.turned);
  fetch_ahead(next, size, 1);
  for (int l = n - 1; l > 0; l--) {
    add_outer(adj.weight[l], adj.d[l], a[l], lanes, adj.turned);
    pull_layer(net.activation, adj.back[l], adj.d[l], net.width[l - 1], net.width[l], a[l], adj.d[l - 1], adj.bias[l - 1], lanes);
  }
  fetch_ahead(next, size, 2);
  add_outer(adj.weight[0], adj.d[0], a[0], lanes, adj.turned);
  fetch_ahead(next, size, 3);
  int k = net.width[0] + net.n_out;
  multiply(adj.back[0], k, adj.d[0], lanes, net.n_in, k, lanes, Assign<R>{dz, lanes});
}

template <class R>
void write_weights(const Adjoint<R>& adj, R* out) {
  settle(adj);
  memcpy(adj.sums, adj.totals, size_t(adj.size) * sizeof(R));
  for (int l = 0; l < adj.net->layers; l++) {
    out = write_outer(adj.weight[l], out);
    for (int i = 0; i < adj.net->width[l]; i++) *out++ = sum_lanes<R>(load(adj.bias[l] + i * kLanes<R>));
  }
  write_outer(adj.last, out);
}

// ---------------------------------------------------------------------------------------------------------------------
// Between Python's arrays, [trajectory][feature], and tiles, [feature][lane].

template <class R>
void read_tile(const R* from, int features, const Tile& tile, R* to) {
  from += tile.first * features;
  for (int lane = 0; lane < tile.width; lane++) {
    const R* row = from + int64_t(lane < tile.count ? lane : tile.count - 1) * features;
    for (int i = 0; i < features; i++) to[size_t(i) * tile.width + lane] = row[i];
  }
}

template <class R>
void write_tile(const R* from, int features, const Tile& tile, R* to) {
  to += tile.first * features;
  for (int lane = 0; lane < tile.count; lane++)
    for (int i = 0; i < features; i++) to[int64_t(lane) * features + i] = from[size_t(i) * tile.width + lane];
}

// to += from, and nothing in the lanes beyond the last trajectory
template <class R>
void add_tile(const R* from, int features, const Tile& tile, R* to) {
  from += tile.first * features;
  for (int lane = 0; lane < tile.count; lane++)
    for (int i = 0; i < features; i++) to[size_t(i) * tile.width + lane] += from[int64_t(lane) * features + i];
}

// ---------------------------------------------------------------------------------------------------------------------
// Time. A substep keeps the blocks of its stages and then the stages' derivatives k_1, ..., k_S.

// The tile of one step, and what both directions of time share.
template <class R>
struct Step {
  const Rollout<R>* run;
  int lanes;
  R *x, *u_now, *u_next, *h;  // h: seconds of a substep, by lane
  R* first;                   // room for a network's first layer
};

template <class R>
int64_t substep_rows(const Rollout<R>& run) {
  return int64_t(run.stages) * (block_rows_of(run.network) + run.nx);
}

// to = x + h * sum_r weights[r] k_r
template <class R>
void advance(const Step<R>& step, const double* weights, int count, const R* k, R* to) {
  int nx = step.run->nx, lanes = step.lanes;
  for (int i = 0; i < nx; i++)
    for (int lane = 0; lane < lanes; lane += kLanes<R>) {
      size_t at = size_t(i) * lanes + lane;
      Vec<R> s = {};
      for (int r = 0; r < count; r++)
        if (weights[r] != 0) s += R(weights[r]) * load(k + size_t(r) * nx * lanes + at);
      store(to + at, load(step.x + at) + load(step.h + lane) * s);
    }
}

// The share of the next sample in input q at a stage.
template <class R>
R share_of_next(const Rollout<R>& run, int substep, int stage, int q) {
  return R(run.hold[q] * (substep + run.c[stage]) / run.substeps);
}

template <class R>
void hold_inputs(const Step<R>& step, int substep, int stage, R* to) {
  for (int q = 0; q < step.run->nu; q++) {
    R share = share_of_next(*step.run, substep, stage, q);
    for (int lane = 0; lane < step.lanes; lane += kLanes<R>) {
      size_t at = size_t(q) * step.lanes + lane;
      Vec<R> now = load(step.u_now + at);
      store(to + at, step.run->hold[q] == 0 ? now : now + share * (load(step.u_next + at) - now));
    }
  }
}

// Advance step.x by one sampling interval. Without `keep`, all stages of all substeps share one block.
template <class R>
void take_step(const Step<R>& step, R* kept, bool keep) {
  const Rollout<R>& run = *step.run;
  size_t block = size_t(block_rows_of(run.network)) * step.lanes, slope = size_t(run.nx) * step.lanes;
  for (int i = 0; i < run.substeps; i++) {
    R* k = kept + (keep ? block * run.stages : block);
    for (int s = 0; s < run.stages; s++) {
      R* here = kept + (keep ? s * block : 0);
      R* z = input_rows(run.network, here, step.lanes);
      advance(step, run.a + s * run.stages, s, k, z);
      hold_inputs(step, i, s, z + slope);
      evaluate(run.network, here, step.first, k + s * slope, step.lanes);
    }
    advance(step, run.b, run.stages, k, step.x);
    if (keep) kept += substep_rows(run) * step.lanes;
  }
}

template <class R>
void read_step(const Step<R>& step, int64_t j, const Tile& tile) {
  const Rollout<R>& run = *step.run;
  read_tile(run.u + j * run.batch * run.nu, run.nu, tile, step.u_now);
  read_tile(run.u + (j + 1) * run.batch * run.nu, run.nu, tile, step.u_next);
  read_tile(run.dt + j * run.batch, 1, tile, step.h);
  for (int lane = 0; lane < tile.width; lane++) step.h[lane] /= R(run.substeps);
}

template <class R>
Step<R> make_step(const Rollout<R>& run, Arena<R>& arena) {
  Step<R> step;
  step.run = &run;
  step.lanes = kTileLanes;
  step.x = arena.take(int64_t(run.nx) * kTileLanes);
  step.u_now = arena.take(int64_t(run.nu) * kTileLanes);
  step.u_next = arena.take(int64_t(run.nu) * kTileLanes);
  step.h = arena.take(kTileLanes);
  step.first = arena.take(int64_t(run.network.width[0]) * kTileLanes);
  return step;
}

template <class R>
int64_t rollout_kept(const Rollout<R>& run) {
  return (run.samples - 1) * run.substeps * substep_rows(run);
}

template <class R>
void rollout_forward(const Rollout<R>& run, const Tile* tiles, int count, R* x, R* kept, R* work) {
  Arena<R> arena{work};
  Step<R> step = make_step(run, arena);
  R* scratch = arena.rest();
  for (int t = 0; t < count; t++) {
    const Tile& tile = tiles[t];
    step.lanes = tile.width;
    R* keep = kept ? kept + tile.first * rollout_kept(run) : scratch;
    read_tile(run.x0, run.nx, tile, step.x);
    write_tile(step.x, run.nx, tile, x);
    for (int64_t j = 0; j + 1 < run.samples; j++) {
      read_step(step, j, tile);
      take_step(step, keep, kept != nullptr);
      write_tile(step.x, run.nx, tile, x + (j + 1) * run.batch * run.nx);
      if (kept) keep += run.substeps * substep_rows(run) * tile.width;
    }
  }
}

// What the adjoint carries backwards in time.
template <class R>
struct Carry {
  R *x, *u_now, *u_next, *h;  // gradients to the state, to the inputs of a step and to its substep
  R* z;                       // gradient to [x; u] of every stage
};

template <class R>
Carry<R> make_carry(const Rollout<R>& run, Arena<R>& arena) {
  Carry<R> carry;
  carry.x = arena.take(int64_t(run.nx) * kTileLanes);
  carry.u_now = arena.take(int64_t(run.nu) * kTileLanes);
  carry.u_next = arena.take(int64_t(run.nu) * kTileLanes);
  carry.h = arena.take(kTileLanes);
  carry.z = arena.take(int64_t(run.stages) * run.network.n_in * kTileLanes);
  return carry;
}

// dy = h (b_s lambda + sum_{r > s} a_rs v_r), v_r the gradient to stage r's state; and this stage's part of d(loss)/dh.
template <class R>
void pull_slope(const Step<R>& step, const Carry<R>& carry, int s, const R* k, R* dy) {
  const Rollout<R>& run = *step.run;
  int lanes = step.lanes;
  for (int lane = 0; lane < lanes; lane += kLanes<R>) {
    Vec<R> dh = load(carry.h + lane), h = load(step.h + lane);
    for (int i = 0; i < run.nx; i++) {
      size_t at = size_t(i) * lanes + lane;
      Vec<R> e = R(run.b[s]) * load(carry.x + at);
      for (int r = s + 1; r < run.stages; r++)
        if (run.a[r * run.stages + s] != 0)
          e += R(run.a[r * run.stages + s]) * load(carry.z + size_t(r) * run.network.n_in * lanes + at);
      dh += e * load(k + at);
      store(dy + at, h * e);
    }
    store(carry.h + lane, dh);
  }
}

template <class R>
void pull_inputs(const Step<R>& step, const Carry<R>& carry, int substep, int s, const R* dz) {
  const Rollout<R>& run = *step.run;
  for (int q = 0; q < run.nu; q++) {
    R share = share_of_next(run, substep, s, q);
    for (int lane = 0; lane < step.lanes; lane += kLanes<R>) {
      size_t at = size_t(q) * step.lanes + lane;
      Vec<R> d = load(dz + at + size_t(run.nx) * step.lanes);
      store(carry.u_now + at, load(carry.u_now + at) + (R(1) - share) * d);
      store(carry.u_next + at, load(carry.u_next + at) + share * d);
    }
  }
}

// The adjoint of take_step: carry.x from after the step to before it. `more`: an earlier step lies before this one.
template <class R>
void pull_step(const Step<R>& step, const Adjoint<R>& adj, const Carry<R>& carry, const R* kept, bool more) {
  const Rollout<R>& run = *step.run;
  int lanes = step.lanes;
  size_t block = size_t(block_rows_of(run.network)) * lanes, slope = size_t(run.nx) * lanes;
  size_t input = size_t(run.network.n_in) * lanes;
  for (int i = run.substeps - 1; i >= 0; i--) {
    const R* here = kept + i * substep_rows(run) * lanes;
    const R* k = here + run.stages * block;
    for (int s = run.stages - 1; s >= 0; s--) {
      R* dz = carry.z + s * input;
      pull_slope(step, carry, s, k + s * slope, adj.dy);
      const R* before = i > 0 || more ? here - substep_rows(run) * lanes + (run.stages - 1) * block : nullptr;
      pull(adj, here + s * block, s > 0 ? here + (s - 1) * block : before, dz, lanes);
      pull_inputs(step, carry, i, s, dz);
    }
    for (int s = 0; s < run.stages; s++)
      for (size_t at = 0; at < slope; at += kLanes<R>)
        store(carry.x + at, load(carry.x + at) + load(carry.z + s * input + at));
  }
}

// d(loss)/dt = d(loss)/dh / substeps
template <class R>
void write_step_gradient(const Rollout<R>& run, const Carry<R>& carry, int64_t j, const Tile& tile, R* grad_u, R* grad_dt) {
  for (int lane = 0; lane < tile.width; lane++) carry.h[lane] /= R(run.substeps);
  write_tile(carry.h, 1, tile, grad_dt + j * run.batch);
  write_tile(carry.u_next, run.nu, tile, grad_u + (j + 1) * run.batch * run.nu);
}

template <class R>
void backward_tile(const Rollout<R>& run, const Tile& tile, const R* x, const R* kept, const R* grad_x, R* grad_x0,
                   R* grad_u, R* grad_dt, Step<R>& step, Adjoint<R>& adj, Carry<R>& carry, R* scratch) {
  step.lanes = tile.width;
  place_rows(adj, tile.width);
  int64_t per_step = run.substeps * substep_rows(run) * tile.width;
  size_t input_bytes = size_t(run.nu) * tile.width * sizeof(R), state_bytes = size_t(run.nx) * tile.width * sizeof(R);
  int64_t steps_between = kSettleEvery / (run.stages * run.substeps) + 1;
  memset(carry.x, 0, state_bytes);
  memset(carry.u_next, 0, input_bytes);
  add_tile(grad_x + (run.samples - 1) * run.batch * run.nx, run.nx, tile, carry.x);
  for (int64_t j = run.samples - 2; j >= 0; j--) {
    memset(carry.u_now, 0, input_bytes);
    memset(carry.h, 0, size_t(tile.width) * sizeof(R));
    read_step(step, j, tile);
    if (!kept) {
      read_tile(x + j * run.batch * run.nx, run.nx, tile, step.x);
      take_step(step, scratch, true);
    }
    pull_step(step, adj, carry, kept ? kept + j * per_step : scratch, kept && j > 0);
    if (j % steps_between == 0) settle(adj);
    write_step_gradient(run, carry, j, tile, grad_u, grad_dt);
    add_tile(grad_x + j * run.batch * run.nx, run.nx, tile, carry.x);
    R* swap = carry.u_next;  // what sample j has received from its own step waits for step j - 1
    carry.u_next = carry.u_now;
    carry.u_now = swap;
  }
  write_tile(carry.u_next, run.nu, tile, grad_u);
  write_tile(carry.x, run.nx, tile, grad_x0);
}

template <class R>
void rollout_backward(const Rollout<R>& run, const Tile* tiles, int count, const R* x, const R* kept, const R* grad_x,
                      R* grad_x0, R* grad_u, R* grad_dt, R* grad_weights, R* work) {
  Arena<R> arena{work};
  Step<R> step = make_step(run, arena);
  Carry<R> carry = make_carry(run, arena);
  Adjoint<R> adj = make_adjoint(run.network, arena);
  R* const first_row = adj.d[run.network.layers - 1];
  for (int t = 0; t < count; t++) {
    adj.d[run.network.layers - 1] = first_row;
    const R* mine = kept ? kept + tiles[t].first * rollout_kept(run) : nullptr;
    backward_tile(run, tiles[t], x, mine, grad_x, grad_x0, grad_u, grad_dt, step, adj, carry, arena.rest());
  }
  write_weights(adj, grad_weights);
}

// ---------------------------------------------------------------------------------------------------------------------
// One trajectory: there are no trajectories to fill the lanes with, so the features of a layer do.

// Weights transposed, [input][output], outputs padded with zeros to whole vectors.
template <class R>
struct Single {
  R *weight[kMaxLayers], *bias[kMaxLayers], *last, *linear;
  R *a[2], *z, *x, *zero, *k;  // activations of two layers; [x; u]; state; start of a sum; derivatives of all stages
  int padded[kMaxLayers], nx;
};

template <class R>
R* pack(const R* in, int ld_in, int rows, int columns, R* out, int ld_out) {
  if (!out) return out;
  memset(out, 0, size_t(columns) * ld_out * sizeof(R));
  transpose_weights(in, ld_in, rows, columns, out, ld_out);
  return out;
}

template <class R>
Single<R> make_single(const Rollout<R>& run, Arena<R>& arena) {
  const Network<R>& net = run.network;
  Single<R> one;
  int k = net.n_in, widest = 0;
  for (int l = 0; l < net.layers; l++) {
    int m = net.width[l], ld = one.padded[l] = round_up(m, kLanes<R>);
    one.weight[l] = pack(net.weight[l], k, m, k, arena.take(int64_t(k) * ld), ld);
    one.bias[l] = pack(net.bias[l], 1, m, 1, arena.take(ld), ld);
    k = m;
    if (ld > widest) widest = ld;
  }
  int ld = one.nx = round_up(run.nx, kLanes<R>);
  one.last = pack(net.last, k + net.n_in, run.nx, k, arena.take(int64_t(k) * ld), ld);
  one.linear = pack(net.last + k, k + net.n_in, run.nx, net.n_in, arena.take(int64_t(net.n_in) * ld), ld);
  one.a[0] = arena.take(widest);
  one.a[1] = arena.take(widest);
  one.z = arena.take(ld + run.nu);
  one.x = arena.take(ld);
  one.zero = arena.take(ld);
  one.k = arena.take(int64_t(run.stages) * ld);
  if (arena.memory) memset(one.zero, 0, size_t(ld) * sizeof(R));
  return one;
}

// NV vectors of out = start + sum_k weight[k] in[k]; the sum is split into interleaved parts, so that enough additions
// are under way at once.
template <class R, int NV, int PARTS>
TAUSID_INLINE void single_panel(const R* weight, int ld, const R* in, int k_end, const R* start, R* out) {
  Vec<R> sum[PARTS][NV] = {};
  int k = 0;
  for (; k + PARTS <= k_end; k += PARTS)
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) sum[p][j] += in[k + p] * load(weight + size_t(k + p) * ld + j * kLanes<R>);
  for (; k < k_end; k++)
    for (int j = 0; j < NV; j++) sum[0][j] += in[k] * load(weight + size_t(k) * ld + j * kLanes<R>);
  for (int p = 1; p < PARTS; p++)
    for (int j = 0; j < NV; j++) sum[0][j] += sum[p][j];
  for (int j = 0; j < NV; j++) store(out + j * kLanes<R>, load(start + j * kLanes<R>) + sum[0][j]);
}

template <class R>
void single_product(const R* weight, int ld, const R* in, int k, const R* start, R* out) {
  int column = 0;
  for (; column + 4 * kLanes<R> <= ld; column += 4 * kLanes<R>)
    single_panel<R, 4, 2>(weight + column, ld, in, k, start + column, out + column);
  for (; column < ld; column += kLanes<R>) single_panel<R, 1, 8>(weight + column, ld, in, k, start + column, out + column);
}

template <class R>
void single_activate(Activation s, R* a, int count) {
  switch (s) {
    case kLeakyRelu: return activate_rows<R, kLeakyRelu>(a, count);
    case kRelu: return activate_rows<R, kRelu>(a, count);
    case kTanh: return activate_rows<R, kTanh>(a, count);
    case kElu: return activate_rows<R, kElu>(a, count);
    default: return activate_rows<R, kSigmoid>(a, count);
  }
}

template <class R>
void single_evaluate(const Network<R>& net, const Single<R>& one, R* y) {
  const R* in = one.z;
  int k = net.n_in;
  for (int l = 0; l < net.layers; l++) {
    R* out = one.a[l % 2];
    single_product(one.weight[l], one.padded[l], in, k, one.bias[l], out);
    single_activate(net.activation, out, one.padded[l]);
    in = out;
    k = net.width[l];
  }
  single_product(one.linear, one.nx, one.z, net.n_in, one.zero, y);
  single_product(one.last, one.nx, in, k, y, y);
}

template <class R>
void single_advance(const Single<R>& one, R h, const double* weights, int count, R* to) {
  for (int i = 0; i < one.nx; i += kLanes<R>) {
    Vec<R> s = {};
    for (int r = 0; r < count; r++)
      if (weights[r] != 0) s += R(weights[r]) * load(one.k + size_t(r) * one.nx + i);
    store(to + i, load(one.x + i) + h * s);
  }
}

template <class R>
void rollout_single(const Rollout<R>& run, int64_t trajectory, R* x, R* work) {
  Arena<R> arena{work};
  Single<R> one = make_single(run, arena);
  memset(one.x, 0, size_t(one.nx) * sizeof(R));
  memcpy(one.x, run.x0 + trajectory * run.nx, size_t(run.nx) * sizeof(R));
  memcpy(x + trajectory * run.nx, one.x, size_t(run.nx) * sizeof(R));
  for (int64_t j = 0; j + 1 < run.samples; j++) {
    int64_t at = j * run.batch + trajectory;
    const R *now = run.u + at * run.nu, *next = now + run.batch * run.nu;
    R h = run.dt[at] / R(run.substeps);
    for (int i = 0; i < run.substeps; i++) {
      for (int s = 0; s < run.stages; s++) {
        single_advance(one, h, run.a + s * run.stages, s, one.z);
        for (int q = 0; q < run.nu; q++)
          one.z[run.nx + q] = run.hold[q] == 0 ? now[q] : now[q] + share_of_next(run, i, s, q) * (next[q] - now[q]);
        single_evaluate(run.network, one, one.k + size_t(s) * one.nx);
      }
      single_advance(one, h, run.b, run.stages, one.x);
    }
    memcpy(x + (at + run.batch) * run.nx, one.x, size_t(run.nx) * sizeof(R));
  }
}

// Working memory of both directions: backward needs the most.
template <class R>
int64_t rollout_work(const Rollout<R>& run) {
  Arena<R> arena{nullptr};
  make_step(run, arena);
  make_carry(run, arena);
  make_adjoint(run.network, arena);
  arena.take(run.substeps * substep_rows(run) * kTileLanes);
  Arena<R> single{nullptr};
  make_single(run, single);
  return arena.used > single.used ? arena.used : single.used;
}

// ---------------------------------------------------------------------------------------------------------------------
// A network alone, at many points: tiles of points, no time.

template <class R>
int64_t network_kept(const Network<R>& net) {
  return block_rows_of(net);
}

template <class R>
void network_forward(const Network<R>& net, const Tile* tiles, int count, const R* z, R* y, R* kept, R* work) {
  Arena<R> arena{work};
  R* value = arena.take(int64_t(net.n_out) * kTileLanes);
  R* first = arena.take(int64_t(net.width[0]) * kTileLanes);
  for (int t = 0; t < count; t++) {
    R* block = kept ? kept + tiles[t].first * network_kept(net) : arena.rest();
    read_tile(z, net.n_in, tiles[t], input_rows(net, block, tiles[t].width));
    evaluate(net, block, first, value, tiles[t].width);
    write_tile(value, net.n_out, tiles[t], y);
  }
}

template <class R>
void network_backward(const Network<R>& net, const Tile* tiles, int count, const R* z, const R* kept, const R* grad_y,
                      R* grad_z, R* grad_weights, R* work) {
  Arena<R> arena{work};
  R* value = arena.take(int64_t(net.n_out) * kTileLanes);
  R* dz = arena.take(int64_t(net.n_in) * kTileLanes);
  Adjoint<R> adj = make_adjoint(net, arena);
  R* const first_row = adj.d[net.layers - 1];
  for (int t = 0; t < count; t++) {
    adj.d[net.layers - 1] = first_row;
    place_rows(adj, tiles[t].width);
    const R* block = kept ? kept + tiles[t].first * network_kept(net) : arena.rest();
    if (!kept) {
      read_tile(z, net.n_in, tiles[t], input_rows(net, arena.rest(), tiles[t].width));
      evaluate(net, arena.rest(), adj.first, value, tiles[t].width);
    }
    memset(adj.dy, 0, size_t(net.n_out) * tiles[t].width * sizeof(R));
    add_tile(grad_y, net.n_out, tiles[t], adj.dy);
    const R* next = kept && t + 1 < count ? kept + tiles[t + 1].first * network_kept(net) : nullptr;
    pull(adj, block, next, dz, tiles[t].width);
    write_tile(dz, net.n_in, tiles[t], grad_z);
    if (t % kSettleEvery == 0) settle(adj);
  }
  write_weights(adj, grad_weights);
}

template <class R>
int64_t network_work(const Network<R>& net) {
  Arena<R> arena{nullptr};
  arena.take(int64_t(net.n_out) * kTileLanes);
  arena.take(int64_t(net.n_in) * kTileLanes);
  make_adjoint(net, arena);
  arena.take(network_kept(net) * kTileLanes);
  return arena.used;
}

template <class R>
constexpr Kernels<R> make_kernels() {
  return {kLanes<R>,         rollout_kept<R>,     network_kept<R>,    rollout_work<R>,     network_work<R>,
          rollout_forward<R>, rollout_backward<R>, network_forward<R>, network_backward<R>, rollout_single<R>};
}

}  // namespace

extern const Kernels<float> kernels_f32 = make_kernels<float>();
extern const Kernels<double> kernels_f64 = make_kernels<double>();

}  // namespace TAUSID_ISA
}  // namespace tausid
