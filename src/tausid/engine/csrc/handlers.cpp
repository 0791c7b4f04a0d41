// What XLA calls: unpack buffers and attributes, share tiles among threads, add up the threads' gradients.
#include <algorithm>
#include <memory>
#include <new>
#include <string>
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

ffi::Error invalid(const std::string& what) { return ffi::Error::InvalidArgument("tausid fused engine: " + what); }

template <class R>
constexpr ffi::DataType kType = sizeof(R) == 4 ? ffi::DataType::F32 : ffi::DataType::F64;

// Buffers by position; a missing one or one of another type is remembered, not thrown.
template <class R>
struct Buffers {
  ffi::RemainingArgs& args;
  ffi::RemainingRets& rets;
  bool ok = true;

  ffi::Buffer<kType<R>> arg(size_t i) {
    auto buffer = args.get<ffi::Buffer<kType<R>>>(i);
    ok = ok && buffer.has_value();
    return buffer.has_value() ? *buffer : ffi::Buffer<kType<R>>(nullptr);
  }
  const R* in(size_t i) { return ok ? arg(i).typed_data() : nullptr; }
  R* out(size_t i) {
    auto buffer = rets.get<ffi::Buffer<kType<R>>>(i);
    ok = ok && buffer.has_value();
    return ok ? (*buffer)->typed_data() : nullptr;
  }
  bool empty(size_t i) { return arg(i).element_count() == 0; }
};

struct AlignedDelete {
  void operator()(void* p) const { ::operator delete[](p, std::align_val_t(64)); }
};

template <class R>
using Memory = std::unique_ptr<R[], AlignedDelete>;

template <class R>
Memory<R> allocate(int64_t n) {
  return Memory<R>(static_cast<R*>(::operator new[](size_t(std::max<int64_t>(n, 1)) * sizeof(R), std::align_val_t(64), std::nothrow)));
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

// work(thread, first tile, number of tiles), on `threads` threads; thread 0 is the caller's.
template <class Work>
void share(int64_t tiles, int64_t threads, const Work& work) {
  auto part = [&](int64_t t) { work(t, tiles * t / threads, tiles * (t + 1) / threads - tiles * t / threads); };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; t++) others.emplace_back(part, t);
  part(0);
  for (auto& thread : others) thread.join();
}

// W_1, b_1, ..., W_n, b_n, F from argument `at` on; n from the number of arguments in all.
template <class R>
ffi::Error read_network(Buffers<R>& buffers, size_t at, size_t others, int64_t activation, Network<R>& net) {
  size_t weights = buffers.args.size() - others;
  net.layers = int(weights / 2);
  if (weights % 2 == 0 || net.layers < 1 || net.layers > kMaxLayers) return invalid("one to four hidden layers");
  if (activation < 0 || activation >= kActivations) return invalid("unknown activation");
  net.activation = Activation(activation);
  for (int l = 0; l < net.layers; l++) {
    auto weight = buffers.arg(at + 2 * l);
    if (!buffers.ok || weight.dimensions().size() != 2) return invalid("weights must be matrices of the engine's type");
    net.width[l] = int(weight.dimensions()[0]);
    if (l == 0) net.n_in = int(weight.dimensions()[1]);
    net.weight[l] = weight.typed_data();
    net.bias[l] = buffers.in(at + 2 * l + 1);
  }
  auto last = buffers.arg(at + 2 * net.layers);
  if (!buffers.ok || last.dimensions().size() != 2) return invalid("weights must be matrices of the engine's type");
  net.n_out = int(last.dimensions()[0]);
  net.last = last.typed_data();
  return ffi::Error::Success();
}

// Gradients to the weights, each thread's behind the other's, in one pass and in order: the sum does not depend on
// which thread was first.
template <class R>
void write_weights(const Network<R>& net, const R* sums, int64_t threads, Buffers<R>& buffers, size_t at) {
  int64_t total = count_weights(net), offset = 0;
  for (int i = 0; i <= 2 * net.layers; i++) {
    auto buffer = *buffers.rets.template get<ffi::Buffer<kType<R>>>(at + i);
    int64_t n = int64_t(buffer->element_count());
    R* out = buffer->typed_data();
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

template <class R>
ffi::Error read_rollout(Buffers<R>& buffers, size_t others, const RolloutOptions& options, Rollout<R>& run) {
  if (buffers.args.size() < others + 3 || buffers.rets.size() < 2) return invalid("too few buffers");
  auto error = read_network(buffers, 3, others, options.activation, run.network);
  if (error.failure()) return error;
  auto x0 = buffers.arg(0), u = buffers.arg(1);
  run.dt = buffers.in(2);
  if (!buffers.ok) return invalid("x0, u and dt must be of the engine's type");
  run.x0 = x0.typed_data();
  run.u = u.typed_data();
  run.samples = u.dimensions()[0];
  run.batch = u.dimensions()[1];
  run.nu = int(u.dimensions()[2]);
  run.nx = int(x0.dimensions()[1]);
  run.stages = int(options.b.size());
  run.substeps = int(options.substeps);
  run.a = options.a.begin();
  run.b = options.b.begin();
  run.c = options.c.begin();
  run.hold = options.hold.begin();
  if (run.stages > kMaxStages || run.network.n_in != run.nx + run.nu || run.network.n_out != run.nx)
    return invalid("sizes of weights, x0 and u disagree");
  return ffi::Error::Success();
}

template <class R>
ffi::Error rollout_forward(const RolloutOptions& options, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  Buffers<R> buffers{args, rets};
  Rollout<R> run;
  auto error = read_rollout(buffers, 3, options, run);
  if (error.failure()) return error;
  const Kernels<R>* kernels = kernels_for<R>(options.isa);
  if (!kernels) return invalid("this processor lacks the instruction set");
  R *x = buffers.out(0), *kept = buffers.out(1);
  if (!buffers.ok) return invalid("x must be of the engine's type");
  bool keep = (*rets.get<ffi::Buffer<kType<R>>>(1))->element_count() > 0;
  // Few trajectories do not fill the lanes: one at a time is faster then.
  bool single = !keep && run.batch <= kernels->lanes / 2;
  auto tiles = make_tiles(run.batch, single ? 1 : kernels->lanes, single ? run.batch : options.threads);
  int64_t threads = std::clamp<int64_t>(options.threads, 1, std::max<int64_t>(1, tiles.size()));
  int64_t work = kernels->rollout_work(run);
  auto memory = allocate<R>(work * threads);
  if (!memory) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "tausid fused engine: out of memory");
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    R* mine = memory.get() + t * work;
    if (!single) return kernels->rollout_forward(run, tiles.data() + first, int(count), x, keep ? kept : nullptr, mine);
    for (int64_t i = first; i < first + count; i++) kernels->rollout_single(run, i, x, mine);
  });
  return ffi::Error::Success();
}

template <class R>
ffi::Error rollout_backward(const RolloutOptions& options, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  Buffers<R> buffers{args, rets};
  Rollout<R> run;
  auto error = read_rollout(buffers, 6, options, run);
  if (error.failure()) return error;
  const Kernels<R>* kernels = kernels_for<R>(options.isa);
  if (!kernels) return invalid("this processor lacks the instruction set");
  size_t behind = args.size() - 3;
  const R *x = buffers.in(behind), *kept = buffers.empty(behind + 1) ? nullptr : buffers.in(behind + 1);
  const R* grad_x = buffers.in(behind + 2);
  R *grad_x0 = buffers.out(0), *grad_u = buffers.out(1), *grad_dt = buffers.out(2);
  if (!buffers.ok) return invalid("gradients must be of the engine's type");
  auto tiles = make_tiles(run.batch, kernels->lanes, options.threads);
  int64_t threads = std::clamp<int64_t>(options.threads, 1, std::max<int64_t>(1, tiles.size()));
  int64_t work = kernels->rollout_work(run), weights = count_weights(run.network);
  auto memory = allocate<R>(work * threads), sums = allocate<R>(weights * threads);
  if (!memory || !sums) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "tausid fused engine: out of memory");
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    kernels->rollout_backward(run, tiles.data() + first, int(count), x, kept, grad_x, grad_x0, grad_u, grad_dt,
                              sums.get() + t * weights, memory.get() + t * work);
  });
  write_weights(run.network, sums.get(), threads, buffers, 3);
  return ffi::Error::Success();
}

// ---------------------------------------------------------------------------------------------------------------------

struct NetworkOptions {
  int64_t isa, threads, activation;
};

template <class R>
ffi::Error network_forward(const NetworkOptions& options, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  Buffers<R> buffers{args, rets};
  Network<R> net;
  auto error = read_network(buffers, 1, 1, options.activation, net);
  if (error.failure()) return error;
  const Kernels<R>* kernels = kernels_for<R>(options.isa);
  if (!kernels) return invalid("this processor lacks the instruction set");
  const R* z = buffers.in(0);
  R *y = buffers.out(0), *kept = buffers.out(1);
  if (!buffers.ok) return invalid("points must be of the engine's type");
  if ((*rets.get<ffi::Buffer<kType<R>>>(1))->element_count() == 0) kept = nullptr;
  auto tiles = make_tiles(buffers.arg(0).dimensions()[0], kernels->lanes, options.threads);
  int64_t threads = std::clamp<int64_t>(options.threads, 1, std::max<int64_t>(1, tiles.size()));
  int64_t work = kernels->network_work(net);
  auto memory = allocate<R>(work * threads);
  if (!memory) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "tausid fused engine: out of memory");
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    kernels->network_forward(net, tiles.data() + first, int(count), z, y, kept, memory.get() + t * work);
  });
  return ffi::Error::Success();
}

template <class R>
ffi::Error network_backward(const NetworkOptions& options, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  Buffers<R> buffers{args, rets};
  Network<R> net;
  auto error = read_network(buffers, 1, 3, options.activation, net);
  if (error.failure()) return error;
  const Kernels<R>* kernels = kernels_for<R>(options.isa);
  if (!kernels) return invalid("this processor lacks the instruction set");
  size_t behind = args.size() - 2;
  const R *z = buffers.in(0), *kept = buffers.empty(behind) ? nullptr : buffers.in(behind), *grad_y = buffers.in(behind + 1);
  R* grad_z = buffers.out(0);
  if (!buffers.ok) return invalid("gradients must be of the engine's type");
  auto tiles = make_tiles(buffers.arg(0).dimensions()[0], kernels->lanes, options.threads);
  int64_t threads = std::clamp<int64_t>(options.threads, 1, std::max<int64_t>(1, tiles.size()));
  int64_t work = kernels->network_work(net), weights = count_weights(net);
  auto memory = allocate<R>(work * threads), sums = allocate<R>(weights * threads);
  if (!memory || !sums) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "tausid fused engine: out of memory");
  share(tiles.size(), threads, [&](int64_t t, int64_t first, int64_t count) {
    kernels->network_backward(net, tiles.data() + first, int(count), z, kept, grad_y, grad_z, sums.get() + t * weights,
                              memory.get() + t * work);
  });
  write_weights(net, sums.get(), threads, buffers, 1);
  return ffi::Error::Success();
}

template <class R, ffi::Error (*F)(const RolloutOptions&, ffi::RemainingArgs, ffi::RemainingRets)>
ffi::Error with_rollout_options(int64_t isa, int64_t threads, int64_t activation, int64_t substeps, ffi::Span<const double> a,
                                ffi::Span<const double> b, ffi::Span<const double> c, ffi::Span<const double> hold,
                                ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return F({isa, threads, activation, substeps, a, b, c, hold}, args, rets);
}

template <class R, ffi::Error (*F)(const NetworkOptions&, ffi::RemainingArgs, ffi::RemainingRets)>
ffi::Error with_network_options(int64_t isa, int64_t threads, int64_t activation, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return F({isa, threads, activation}, args, rets);
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

// Trajectories per vector register with this instruction set and size of number; 0 where it cannot run here.
extern "C" int tausid_lanes(int isa, int bytes) {
  if (bytes == 4) return tausid::kernels_for<float>(isa) ? tausid::kernels_for<float>(isa)->lanes : 0;
  return tausid::kernels_for<double>(isa) ? tausid::kernels_for<double>(isa)->lanes : 0;
}
