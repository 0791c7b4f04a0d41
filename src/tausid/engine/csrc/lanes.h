// Vector registers of one instruction set, and functions on them. Included by kernel.cpp and second_order.cpp, inside
// the namespace of that set.
// GNU vector extensions: gcc and clang turn them into the registers of any processor.

#if defined(__AVX512F__)
#define TAUSID_VECTOR_BYTES 64
#define TAUSID_REGISTERS 32
#elif defined(__AVX2__)
#define TAUSID_VECTOR_BYTES 32
#define TAUSID_REGISTERS 16
#elif defined(__aarch64__)
#define TAUSID_VECTOR_BYTES 16
#define TAUSID_REGISTERS 32
#else
#define TAUSID_VECTOR_BYTES 16
#define TAUSID_REGISTERS 16
#endif
#define TAUSID_INLINE inline __attribute__((always_inline))
#define TAUSID_LAMBDA __attribute__((always_inline))

template <class R>
struct Lanes;

template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(TAUSID_VECTOR_BYTES)));
  typedef float Loose __attribute__((vector_size(TAUSID_VECTOR_BYTES), aligned(4)));
  typedef int32_t I __attribute__((vector_size(TAUSID_VECTOR_BYTES)));
  static constexpr int32_t exponent_bias = 127, mantissa_bits = 23;
  static constexpr float round_magic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr int32_t round_bits = 0x4b400000;
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float exp_floor = -80.f;
  static constexpr int exp_degree = 8;  // 0.3466^9 / 9! < 2^-28
};

template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(TAUSID_VECTOR_BYTES)));
  typedef double Loose __attribute__((vector_size(TAUSID_VECTOR_BYTES), aligned(8)));
  typedef int64_t I __attribute__((vector_size(TAUSID_VECTOR_BYTES)));
  static constexpr int64_t exponent_bias = 1023, mantissa_bits = 52;
  static constexpr double round_magic = 6755399441055744.0;
  static constexpr int64_t round_bits = 0x4338000000000000;
  static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  static constexpr double exp_floor = -700.0;
  static constexpr int exp_degree = 14;  // 0.3466^15 / 15! < 2^-60
};

template <class R>
using Vec = typename Lanes<R>::V;

template <class R>
constexpr int kLanes = TAUSID_VECTOR_BYTES / int(sizeof(R));

template <class R>
TAUSID_INLINE Vec<R> load(const R* p) {
  return *reinterpret_cast<const typename Lanes<R>::Loose*>(p);
}

template <class R>
TAUSID_INLINE void store(R* p, Vec<R> v) {
  *reinterpret_cast<typename Lanes<R>::Loose*>(p) = v;
}

template <class R>
TAUSID_INLINE Vec<R> broadcast(R a) {
  return a - Vec<R>{};  // not 0 + a, which is another number for a = -0 and so one more instruction
}

// Halves are added to each other: sums in turn would wait for one another.
#if defined(__clang__) || __GNUC__ >= 12
template <class R, int S, int... J>
TAUSID_INLINE Vec<R> plus_other_half(Vec<R> v, std::integer_sequence<int, J...>) {
  return v + __builtin_shufflevector(v, v, (J ^ S)...);
}
#else
template <class R, int S, int... J>
TAUSID_INLINE Vec<R> plus_other_half(Vec<R> v, std::integer_sequence<int, J...>) {
  Vec<R> other = v;
  for (int j = 0; j < kLanes<R>; j++) other[j] = v[j ^ S];
  return v + other;
}
#endif

template <class R, int S = kLanes<R> / 2>
TAUSID_INLINE R sum_lanes(Vec<R> v) {
  v = plus_other_half<R, S>(v, std::make_integer_sequence<int, kLanes<R>>{});
  if constexpr (S > 1) return sum_lanes<R, S / 2>(v);
  return v[0];
}

constexpr double kInverseFactorial[] = {1.0,           1.0,            1.0 / 2,         1.0 / 6,          1.0 / 24,
                                        1.0 / 120,     1.0 / 720,      1.0 / 5040,      1.0 / 40320,      1.0 / 362880,
                                        1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};

// exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1), and 2^n itself, for x <= 0. NaN stays NaN: it passes the comparison
// unchanged and reaches the polynomial.
template <class R>
TAUSID_INLINE Vec<R> expm1_negative(Vec<R> x) {
  using L = Lanes<R>;
  x = x < L::exp_floor ? broadcast<R>(L::exp_floor) : x;
  Vec<R> shifted = x * R(1.4426950408889634074) + L::round_magic;
  Vec<R> n = shifted - L::round_magic;
  Vec<R> r = x - n * L::ln2_high - n * L::ln2_low;
  constexpr int n_terms = L::exp_degree;  // an even number: odd and even powers do not wait for one another
  Vec<R> square = r * r, p = broadcast<R>(R(kInverseFactorial[n_terms - 1])), q = broadcast<R>(R(kInverseFactorial[n_terms]));
  for (int k = n_terms - 3; k >= 1; k -= 2) {
    p = p * square + R(kInverseFactorial[k]);
    q = q * square + R(kInverseFactorial[k + 1]);
  }
  p = q * r + p;
  typename L::I bits = (typename L::I)shifted - L::round_bits + L::exponent_bias;
  Vec<R> scale = (Vec<R>)(bits << L::mantissa_bits);
  return scale * (p * r) + (scale - R(1));
}

// The bits of a sign, and a number without it.
template <class R>
TAUSID_INLINE typename Lanes<R>::I sign_bits(Vec<R> x) {
  return (typename Lanes<R>::I)x & (typename Lanes<R>::I)broadcast<R>(R(-0.0));
}

template <class R>
TAUSID_INLINE Vec<R> magnitude(Vec<R> x) {
  return (Vec<R>)((typename Lanes<R>::I)x ^ sign_bits<R>(x));
}

// s(x). Comparisons are written so that NaN passes.
template <class R, int A>
TAUSID_INLINE Vec<R> activate(Vec<R> x) {
  if constexpr (A == kActivations) return x;  // none
  if constexpr (A == kLeakyRelu) return x < R(0) ? x * R(0.01) : x;
  if constexpr (A == kRelu) return x < R(0) ? Vec<R>{} : x;
  if constexpr (A == kElu) return x < R(0) ? expm1_negative<R>(x < R(0) ? x : Vec<R>{}) : x;
  if constexpr (A == kTanh) {
    Vec<R> e = expm1_negative<R>(R(-2) * magnitude<R>(x));
    return (Vec<R>)((typename Lanes<R>::I)(-e / (e + R(2))) ^ sign_bits<R>(x));
  }
  if constexpr (A == kSigmoid) {
    Vec<R> e = expm1_negative<R>(-magnitude<R>(x)) + R(1);
    return (x < R(0) ? e : broadcast<R>(1)) / (e + R(1));
  }
}

// d * s'(x), from the value a = s(x); at the kink as JAX has it.
template <class R, int A>
TAUSID_INLINE Vec<R> pull_activation(Vec<R> d, Vec<R> a) {
  if constexpr (A == kLeakyRelu) return a < R(0) ? d * R(0.01) : d;
  if constexpr (A == kRelu) return a > R(0) ? d : Vec<R>{};
  if constexpr (A == kElu) return a > R(0) ? d : d * (a + R(1));
  if constexpr (A == kTanh) return d * (R(1) - a * a);
  if constexpr (A == kSigmoid) return d * (a * (R(1) - a));
}

// Transpose the square block in r: each round swaps the off-diagonal halves of blocks of twice the size.
#if defined(__clang__) || __GNUC__ >= 12
template <class R, int S, int... J>
TAUSID_INLINE void swap_halves(Vec<R>& a, Vec<R>& b, std::integer_sequence<int, J...>) {
  constexpr int n = kLanes<R>;
  Vec<R> low = __builtin_shufflevector(a, b, ((J & S) ? n + J - S : J)...);
  b = __builtin_shufflevector(a, b, ((J & S) ? n + J : J + S)...);
  a = low;
}
#else
template <class R, int S, int... J>
TAUSID_INLINE void swap_halves(Vec<R>& a, Vec<R>& b, std::integer_sequence<int, J...>) {
  for (int j = 0; j < kLanes<R>; j++)
    if (!(j & S)) {
      R t = a[j + S];
      a[j + S] = b[j];
      b[j] = t;
    }
}
#endif

template <class R, int S>
TAUSID_INLINE void transpose_block(Vec<R> (&r)[kLanes<R>]) {
  if constexpr (S < kLanes<R>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<R>; i++)
      if (!(i & S)) swap_halves<R, S>(r[i], r[i + S], std::make_integer_sequence<int, kLanes<R>>{});
    transpose_block<R, 2 * S>(r);
  }
}

// out[lane][row] = in[row][lane], for `lanes` a multiple of the vector; rows are padded with zeros to `ld_out`.
template <class R>
void transpose(const R* in, int rows, int lanes, R* out, int ld_out) {
  constexpr int n = kLanes<R>;
  for (int row = 0; row < ld_out; row += n)
    for (int lane = 0; lane < lanes; lane += n) {
      Vec<R> r[n];
#pragma GCC unroll 16
      for (int i = 0; i < n; i++) r[i] = row + i < rows ? load(in + size_t(row + i) * lanes + lane) : Vec<R>{};
      transpose_block<R, 1>(r);
#pragma GCC unroll 16
      for (int i = 0; i < n; i++) store(out + size_t(lane + i) * ld_out + row, r[i]);
    }
}
