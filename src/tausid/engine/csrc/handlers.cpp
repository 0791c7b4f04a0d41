// What XLA calls: unpack and check buffers and attributes, share tiles among threads, add up the threads' gradients.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kernel.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace tausid {
namespace {

// The order of TAUSID_FUSED_ISA's names in fused.py.
enum Isa : int { kAvx512, kAvx2, kPlain };

template <class R>
const Kernels<R>* pick(const Kernels<float>& f32, const Kernels<double>& f64) {
  if constexpr (sizeof(R) == 4) return &f32;
  else return &f64;
}

// Null where this library or this processor lacks the instruction set.
template <class R>
const Kernels<R>* kernels_for(int64_t isa) {
#ifdef TAUSID_HAVE_AVX512
  if (isa == kAvx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return pick<R>(avx512::kernels_f32, avx512::kernels_f64);
#endif
#ifdef TAUSID_HAVE_AVX2
  if (isa == kAvx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return pick<R>(avx2::kernels_f32, avx2::kernels_f64);
#endif
  return isa == kPlain ? pick<R>(plain::kernels_f32, plain::kernels_f64) : nullptr;
}

// ---------------------------------------------------------------------------------------------------------------------
// Checks. The kernels trust their sizes, so that all of them are compared here before anything is written.

// A call that cannot be answered; `guarded` turns it into XLA's error.
struct Invalid : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bounds far beyond any use, so that no product of sizes overflows: int within the kernels, int64_t here.
constexpr int64_t kMaxWidth = 1 << 16;     // inputs, outputs and units of a layer
constexpr int64_t kMaxSubsteps = 1 << 20;  // of one step
constexpr int64_t kMaxSteps = INT32_MAX;   // substeps of a trajectory in all
constexpr int64_t kMaxBatch = int64_t(1) << 36;
constexpr int64_t kMaxThreads = 1024;

void check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  std::string range = std::to_string(least) + (most > least ? " to " + std::to_string(most) : "");
  throw Invalid("`" + std::string(name) + "` must be " + range + "; got " + std::to_string(value));
}

// A dimension of an array: its name and, where the other arrays imply it, its size.
constexpr int64_t kAny = -1;
struct Dim {
  const char* name;
  int64_t size = kAny;
};
using Shape = std::initializer_list<Dim>;
using Sizes = ffi::Span<const int64_t>;

std::string text(const Dim& dim) { return dim.name + (dim.size == kAny ? "" : " = " + std::to_string(dim.size)); }
std::string text(int64_t size) { return std::to_string(size); }

template <class List>
std::string list(const List& items) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ", ") + text(item);
  return "(" + all + ")";
}

bool fits(Sizes sizes, Shape shape) {
  auto fit = [](int64_t size, const Dim& dim) { return dim.size == kAny || dim.size == size; };
  return sizes.size() == shape.size() && std::equal(sizes.begin(), sizes.end(), shape.begin(), fit);
}

template <class R>
constexpr ffi::DataType kType = sizeof(R) == 4 ? ffi::DataType::F32 : ffi::DataType::F64;

template <class R>
void check_array(const char* name, const ffi::AnyBuffer& buffer, Shape shape) {
  if (buffer.element_type() != kType<R>)
    throw Invalid("`" + std::string(name) + "` must be of type float" + std::to_string(8 * sizeof(R)));
  if (!fits(buffer.dimensions(), shape))
    throw Invalid("`" + std::string(name) + "` must have shape " + list(shape) + "; got " + list(buffer.dimensions()));
}

void check_numbers(const char* name, ffi::Span<const double> numbers, int64_t count) {
  if (int64_t(numbers.size()) != count)
    throw Invalid("`" + std::string(name) + "` must have " + std::to_string(count) + " numbers; got " +
                  std::to_string(numbers.size()));
  for (double number : numbers)
    if (!std::isfinite(number)) throw Invalid("`" + std::string(name) + "` must be finite");
}

ffi::Error failure(ffi::ErrorCode code, const std::string& what) {
  return ffi::Error(code, "tausid fused engine: " + what);
}

// Nothing may be thrown through XLA's interface, which is C.
template <class Work>
ffi::Error guarded(const Work& work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const Invalid& error) {
    return failure(ffi::ErrorCode::kInvalidArgument, error.what());
  } catch (const std::bad_alloc&) {
    return failure(ffi::ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::system_error& error) {
    return failure(ffi::ErrorCode::kResourceExhausted, std::string("a thread cannot be started: ") + error.what());
  } catch (...) {
    return failure(ffi::ErrorCode::kInternal, "unknown error");
  }
}

// ---------------------------------------------------------------------------------------------------------------------

// Arguments and results by position, checked as they are taken.
template <class R>
struct Buffers {
  const ffi::RemainingArgs& args;
  const ffi::RemainingRets& rets;

  ffi::AnyBuffer arg(size_t i) const {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) throw Invalid("argument " + std::to_string(i) + " is missing or no array");
    return *buffer;
  }
  ffi::AnyBuffer ret(size_t i) const {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) throw Invalid("result " + std::to_string(i) + " is missing or no array");
    return **buffer;
  }
  Sizes sizes(const char* name, size_t i, Shape shape) const {
    check_array<R>(name, arg(i), shape);
    return arg(i).dimensions();
  }
  const R* in(const char* name, size_t i, Shape shape) const {
    check_array<R>(name, arg(i), shape);
    return static_cast<const R*>(arg(i).untyped_data());
  }
  R* out(const char* name, size_t i, Shape shape) const {
    check_array<R>(name, ret(i), shape);
    return data(i);
  }
  R* data(size_t i) const { return static_cast<R*>(ret(i).untyped_data()); }

  void check_results(int64_t count) const { check_range("number of results", rets.size(), count, count); }

  // A backward pass returns the gradients to its first arguments, each in the shape of its argument.
  void check_gradients(size_t count) const {
    check_results(count);
    for (size_t i = 0; i < count; i++) {
      auto wanted = arg(i).dimensions(), got = ret(i).dimensions();
      if (ret(i).element_type() != kType<R> || !std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()))
        throw Invalid("gradient " + std::to_string(i) + " must have its argument's type and shape " + list(wanted) +
                      "; got " + list(got));
    }
  }
};

struct AlignedDelete {
  void operator()(void* p) const { ::operator delete[](p, std::align_val_t(64)); }
};

template <class R>
using Memory = std::unique_ptr<R[], AlignedDelete>;

// `n` numbers for each thread.
template <class R>
Memory<R> allocate(int64_t n, int64_t threads) {
  if (n > INT64_MAX / int64_t(sizeof(R)) / threads) throw std::bad_alloc();
  size_t bytes = size_t(std::max<int64_t>(n, 1)) * threads * sizeof(R);
  return Memory<R>(static_cast<R*>(::operator new[](bytes, std::align_val_t(64))));
}

// Numbers to keep of `rows` a trajectory, in whole vectors; null where the array `kept` is empty and nothing is kept.
template <class R>
R* check_kept(const ffi::AnyBuffer& buffer, int64_t rows, int64_t batch, int lanes) {
  check_array<R>("kept", buffer, {{"n"}});
  int64_t got = buffer.dimensions()[0], wanted;
  if (got == 0) return nullptr;
  if (__builtin_mul_overflow(rows, (batch + lanes - 1) / lanes * lanes, &wanted) || got != wanted)
    throw Invalid("`kept` must be empty or have " + std::to_string(rows) + " numbers a trajectory, in vectors of " +
                  std::to_string(lanes) + " trajectories; got " + std::to_string(got) + " for " + std::to_string(batch));
  return static_cast<R*>(buffer.untyped_data());
}

// Tiles of whole vectors, as even as can be, enough of them for every thread.
std::vector<Tile> make_tiles(int64_t batch, int lanes, int64_t threads) {
  int64_t vectors = (batch + lanes - 1) / lanes, most = kTileLanes / lanes;
  int64_t count = std::max((vectors + most - 1) / most, std::min(threads, vectors));
  std::vector<Tile> tiles;
  for (int64_t t = 0; t < count; t++) {
    int64_t begin = vectors * t / count * lanes, end = vectors * (t + 1) / count * lanes;
    tiles.push_back({begin, int(std::min(end, batch) - begin), int(end - begin)});
  }
  return tiles;
}

// Threads that are waited for, also where the next one cannot be started.
struct Threads {
  std::vector<std::thread> all;
  ~Threads() {
    for (auto& thread : all) thread.join();
  }
};

// work(thread, first tile, number of tiles), on `threads` threads; thread 0 is the caller's.
template <class Work>
void share(int64_t tiles, int64_t threads, const Work& work) {
  auto part = [&](int64_t t) { work(t, tiles * t / threads, tiles * (t + 1) / threads - tiles * t / threads); };
  Threads others;
  others.all.reserve(threads - 1);
  for (int64_t t = 1; t < threads; t++) others.all.emplace_back(part, t);
  part(0);
}

int64_t useful_threads(int64_t threads, const std::vector<Tile>& tiles) {
  return std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, tiles.size()));
}

template <class R>
const Kernels<R>& choose_kernels(int64_t isa, int64_t threads) {
  check_range("isa", isa, kAvx512, kPlain);
  check_range("threads", threads, 1, kMaxThreads);
  const Kernels<R>* kernels = kernels_for<R>(isa);
  if (!kernels) throw Invalid("this processor lacks the instruction set");
  return *kernels;
}

// W_1, b_1, ..., W_n, b_n, F from argument `at` on; n from the number of arguments in all, `others` of which are none.
template <class R>
Network<R> read_network(const Buffers<R>& buffers, size_t at, size_t others, int64_t activation) {
  static const char* const kNames[] = {"W1", "b1", "W2", "b2", "W3", "b3", "W4", "b4"};
  static_assert(sizeof kNames == 2 * kMaxLayers * sizeof *kNames);
  Network<R> net;
  int64_t weights = int64_t(buffers.args.size()) - int64_t(others);
  check_range("number of hidden layers", weights < 0 ? 0 : weights / 2, 1, kMaxLayers);
  if (weights % 2 == 0) throw Invalid("weights must be W1, b1, ..., F; got " + std::to_string(weights) + " of them");
  check_range("activation", activation, 0, kActivations - 1);
  net.layers = int(weights / 2);
  net.activation = Activation(activation);
  int64_t k = buffers.sizes("W1", at, {{"width"}, {"n_in"}})[1];
  check_range("n_in", k, 1, kMaxWidth);
  net.n_in = int(k);
  for (int l = 0; l < net.layers; l++) {
    size_t i = at + 2 * l;
    int64_t m = buffers.sizes(kNames[2 * l], i, {{"width"}, {"n_in", k}})[0];
    check_range("width", m, 1, kMaxWidth);
    net.width[l] = int(m);
    net.weight[l] = buffers.in(kNames[2 * l], i, {{"width", m}, {"n_in", k}});
    net.bias[l] = buffers.in(kNames[2 * l + 1], i + 1, {{"width", m}});
    k = m;
  }
  size_t last = at + 2 * net.layers;
  net.last = buffers.in("F", last, {{"n_out"}, {"width + n_in", k + net.n_in}});
  check_range("n_out", buffers.arg(last).dimensions()[0], 1, kMaxWidth);
  net.n_out = int(buffers.arg(last).dimensions()[0]);
  return net;
}

// Gradients to the weights, each thread's behind the other's, in one pass and in order: the sum does not depend on
// which thread was first.
template <class R>
void write_weights(const Network<R>& net, const R* sums, int64_t threads, const Buffers<R>& buffers, size_t at) {
  int64_t total = count_weights(net), offset = 0;
  for (int i = 0; i <= 2 * net.layers; i++) {
    int64_t n = int64_t(buffers.ret(at + i).element_count());
    R* out = buffers.data(at + i);
    std::copy(sums + offset, sums + offset + n, out);
    for (int64_t t = 1; t < threads; t++)
      for (int64_t k = 0; k < n; k++) out[k] += sums[t * total + offset + k];
    offset += n;
  }
}

// ---------------------------------------------------------------------------------------------------------------------

struct RolloutOptions {
  int64_t isa, threads, activation, substeps;
  ffi::Span<const double> a, b, c, hold;
};

void check_tableau(const RolloutOptions& options) {
  int64_t stages = options.b.size();
  check_range("number of stages", stages, 1, kMaxStages);
  check_numbers("a", options.a, stages * stages);
  check_numbers("b", options.b, stages);
  check_numbers("c", options.c, stages);
  for (int64_t i = 0; i < stages; i++)
    for (int64_t j = i; j < stages; j++)
      if (options.a[i * stages + j] != 0) throw Invalid("`a` must be zero on and above its diagonal (explicit methods)");
}

template <class R>
Rollout<R> read_rollout(const Buffers<R>& buffers, size_t others, const RolloutOptions& options) {
  Rollout<R> run;
  run.network = read_network(buffers, 3, others, options.activation);
  auto u = buffers.sizes("u", 1, {{"J"}, {"B"}, {"nu"}});
  int64_t J = u[0], B = u[1], nu = u[2], nx = run.network.n_out;
  check_range("J", J, 1, kMaxSteps);
  check_range("B", B, 0, kMaxBatch);
  check_range("substeps", options.substeps, 1, std::min(kMaxSubsteps, kMaxSteps / std::max<int64_t>(J - 1, 1)));
  if (run.network.n_in != nx + nu)
    throw Invalid("`W1` must take nx + nu = " + std::to_string(nx + nu) + " inputs; got " +
                  std::to_string(run.network.n_in));
  check_tableau(options);
  check_numbers("hold", options.hold, nu + 1);  // and one more, as XLA has no empty attributes
  run.x0 = buffers.in("x0", 0, {{"B", B}, {"nx", nx}});
  run.u = buffers.in("u", 1, {{"J", J}, {"B", B}, {"nu", nu}});
  run.dt = buffers.in("dt", 2, {{"J - 1", J - 1}, {"B", B}});
  run.samples = J;
  run.batch = B;
  run.nx = int(nx);
  run.nu = int(nu);
  run.stages = int(options.b.size());
  run.substeps = int(options.substeps);
  run.a = options.a.begin();
  run.b = options.b.begin();
  run.c = options.c.begin();
  run.hold = options.hold.begin();
  return run;
}

template <class R>
void rollout_forward(const RolloutOptions& options, const Buffers<R>& buffers) {
  const Kernels<R>& kernels = choose_kernels<R>(options.isa, options.threads);
  Rollout<R> run = read_rollout(buffers, 3, options);
  buffers.check_results(2);
  R* x = buffers.out("x", 0, {{"J", run.samples}, {"B", run.batch}, {"nx", run.nx}});
  R* kept = check_kept<R>(buffers.ret(1), kernels.rollout_kept(run), run.batch, kernels.lanes);
  // Few trajectories do not fill the lanes: one at a time is faster then.
  bool single = !kept && run.batch <= kernels.lanes / 2;
  auto tiles = make_tiles(run.batch, single ? 1 : kernels.lanes, single ? run.batch : options.threads);
  int64_t threads = useful_threads(options.threads, tiles), work = kernels.rollout_work(run);
  auto memory = allocate<R>(work, threads);
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    R* mine = memory.get() + t * work;
    if (!single) return kernels.rollout_forward(run, tiles.data() + first, int(count), x, kept, mine);
    for (int64_t i = first; i < first + count; i++) kernels.rollout_single(run, i, x, mine);
  });
}

template <class R>
void rollout_backward(const RolloutOptions& options, const Buffers<R>& buffers) {
  const Kernels<R>& kernels = choose_kernels<R>(options.isa, options.threads);
  Rollout<R> run = read_rollout(buffers, 6, options);
  size_t behind = buffers.args.size() - 3;
  buffers.check_gradients(behind);
  const R* x = buffers.in("x", behind, {{"J", run.samples}, {"B", run.batch}, {"nx", run.nx}});
  const R* kept = check_kept<R>(buffers.arg(behind + 1), kernels.rollout_kept(run), run.batch, kernels.lanes);
  const R* grad_x = buffers.in("grad_x", behind + 2, {{"J", run.samples}, {"B", run.batch}, {"nx", run.nx}});
  R *grad_x0 = buffers.data(0), *grad_u = buffers.data(1), *grad_dt = buffers.data(2);
  auto tiles = make_tiles(run.batch, kernels.lanes, options.threads);
  int64_t threads = useful_threads(options.threads, tiles);
  int64_t work = kernels.rollout_work(run), weights = count_weights(run.network);
  auto memory = allocate<R>(work, threads), sums = allocate<R>(weights, threads);
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    kernels.rollout_backward(run, tiles.data() + first, int(count), x, kept, grad_x, grad_x0, grad_u, grad_dt,
                             sums.get() + t * weights, memory.get() + t * work);
  });
  write_weights(run.network, sums.get(), threads, buffers, 3);
}

// ---------------------------------------------------------------------------------------------------------------------

struct NetworkOptions {
  int64_t isa, threads, activation;
};

template <class R>
int64_t count_points(const Buffers<R>& buffers, const Network<R>& net) {
  int64_t count = buffers.sizes("z", 0, {{"N"}, {"n_in", net.n_in}})[0];
  check_range("N", count, 0, kMaxBatch);
  return count;
}

template <class R>
void network_forward(const NetworkOptions& options, const Buffers<R>& buffers) {
  const Kernels<R>& kernels = choose_kernels<R>(options.isa, options.threads);
  Network<R> net = read_network(buffers, 1, 1, options.activation);
  int64_t points = count_points(buffers, net);
  buffers.check_results(2);
  const R* z = buffers.in("z", 0, {{"N", points}, {"n_in", net.n_in}});
  R* y = buffers.out("y", 0, {{"N", points}, {"n_out", net.n_out}});
  R* kept = check_kept<R>(buffers.ret(1), kernels.network_kept(net), points, kernels.lanes);
  auto tiles = make_tiles(points, kernels.lanes, options.threads);
  int64_t threads = useful_threads(options.threads, tiles), work = kernels.network_work(net);
  auto memory = allocate<R>(work, threads);
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    kernels.network_forward(net, tiles.data() + first, int(count), z, y, kept, memory.get() + t * work);
  });
}

template <class R>
void network_backward(const NetworkOptions& options, const Buffers<R>& buffers) {
  const Kernels<R>& kernels = choose_kernels<R>(options.isa, options.threads);
  Network<R> net = read_network(buffers, 1, 3, options.activation);
  int64_t points = count_points(buffers, net);
  size_t behind = buffers.args.size() - 2;
  buffers.check_gradients(behind);
  const R* z = buffers.in("z", 0, {{"N", points}, {"n_in", net.n_in}});
  const R* kept = check_kept<R>(buffers.arg(behind), kernels.network_kept(net), points, kernels.lanes);
  const R* grad_y = buffers.in("grad_y", behind + 1, {{"N", points}, {"n_out", net.n_out}});
  R* grad_z = buffers.data(0);
  auto tiles = make_tiles(points, kernels.lanes, options.threads);
  int64_t threads = useful_threads(options.threads, tiles);
  int64_t work = kernels.network_work(net), weights = count_weights(net);
  auto memory = allocate<R>(work, threads), sums = allocate<R>(weights, threads);
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    kernels.network_backward(net, tiles.data() + first, int(count), z, kept, grad_y, grad_z, sums.get() + t * weights,
                             memory.get() + t * work);
  });
  write_weights(net, sums.get(), threads, buffers, 1);
}

template <class R, void (*F)(const RolloutOptions&, const Buffers<R>&)>
ffi::Error with_rollout_options(int64_t isa, int64_t threads, int64_t activation, int64_t substeps, ffi::Span<const double> a,
                                ffi::Span<const double> b, ffi::Span<const double> c, ffi::Span<const double> hold,
                                ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return guarded([&] { F({isa, threads, activation, substeps, a, b, c, hold}, {args, rets}); });
}

template <class R, void (*F)(const NetworkOptions&, const Buffers<R>&)>
ffi::Error with_network_options(int64_t isa, int64_t threads, int64_t activation, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return guarded([&] { F({isa, threads, activation}, {args, rets}); });
}

}  // namespace
}  // namespace tausid

using Numbers = ffi::Span<const double>;

#define TAUSID_ROLLOUT(symbol, function, R)                                                                       \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(symbol, (tausid::with_rollout_options<R, tausid::function<R>>),                   \
                                ffi::Ffi::Bind().Attr<int64_t>("isa").Attr<int64_t>("threads")                    \
                                    .Attr<int64_t>("activation").Attr<int64_t>("substeps").Attr<Numbers>("a")     \
                                    .Attr<Numbers>("b").Attr<Numbers>("c").Attr<Numbers>("hold")                  \
                                    .RemainingArgs().RemainingRets())
#define TAUSID_NETWORK(symbol, function, R)                                                                       \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(symbol, (tausid::with_network_options<R, tausid::function<R>>),                   \
                                ffi::Ffi::Bind().Attr<int64_t>("isa").Attr<int64_t>("threads")                    \
                                    .Attr<int64_t>("activation").RemainingArgs().RemainingRets())

TAUSID_ROLLOUT(tausid_rollout_forward_f32, rollout_forward, float);
TAUSID_ROLLOUT(tausid_rollout_forward_f64, rollout_forward, double);
TAUSID_ROLLOUT(tausid_rollout_backward_f32, rollout_backward, float);
TAUSID_ROLLOUT(tausid_rollout_backward_f64, rollout_backward, double);
TAUSID_NETWORK(tausid_network_forward_f32, network_forward, float);
TAUSID_NETWORK(tausid_network_forward_f64, network_forward, double);
TAUSID_NETWORK(tausid_network_backward_f32, network_backward, float);
TAUSID_NETWORK(tausid_network_backward_f64, network_backward, double);
