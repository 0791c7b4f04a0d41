// out (M x N) = left (M x K) right (K x N): `left` is read number by number and broadcast, `right` and `out` lie along
// the vector lanes, N a multiple of the vector. What a sum starts from and what happens to it is the caller's `Op`:
//   template <int NV> void start(int row, int column, Vec<R> (&sum)[NV]) const;
//   template <int NV> void finish(int row, int column, Vec<R> (&sum)[NV]) const;
// Included by kernel.cpp only, inside its namespace.

// Sums of a block of MR rows and NV vectors stay in registers: MR * NV of them, NV of `right` and one of `left`.
constexpr int kPanel = TAUSID_REGISTERS == 32 ? 4 : 2;
constexpr int block_rows(int vectors) { return TAUSID_REGISTERS == 32 ? (vectors == 4 ? 6 : vectors == 3 ? 8 : 12) : 12 / vectors; }

template <class R, int MR, int NV, class Op>
TAUSID_INLINE void multiply_block(const R* left, int ld_left, const R* right, int ld_right, int k_end, int row, int column,
                                  const Op& op) {
  Vec<R> sum[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) op.template start<NV>(row + i, column, sum[i]);
  for (int k = 0; k < k_end; k++) {
    Vec<R> x[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) x[j] = load(right + size_t(k) * ld_right + j * kLanes<R>);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      Vec<R> w = broadcast<R>(left[size_t(i) * ld_left + k]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; j++) sum[i][j] += w * x[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) op.template finish<NV>(row + i, column, sum[i]);
}

template <class R, int NV, class Op>
void multiply_panel(const R* left, int ld_left, const R* right, int ld_right, int m, int k, int column, const Op& op) {
  constexpr int MR = block_rows(NV);
  int row = 0;
  const R* x = right + column;
  for (; row + MR <= m; row += MR) multiply_block<R, MR, NV>(left + size_t(row) * ld_left, ld_left, x, ld_right, k, row, column, op);
  for (; row + 4 <= m; row += 4) multiply_block<R, 4, NV>(left + size_t(row) * ld_left, ld_left, x, ld_right, k, row, column, op);
  for (; row < m; row++) multiply_block<R, 1, NV>(left + size_t(row) * ld_left, ld_left, x, ld_right, k, row, column, op);
}

template <class R, class Op>
void multiply(const R* left, int ld_left, const R* right, int ld_right, int m, int k, int n, const Op& op) {
  int vectors = n / kLanes<R>;
  for (int v = 0; v < vectors; v += kPanel) {
    int column = v * kLanes<R>;
    switch (vectors - v) {
      case 1: multiply_panel<R, 1>(left, ld_left, right, ld_right, m, k, column, op); break;
#if TAUSID_REGISTERS == 32
      case 2: multiply_panel<R, 2>(left, ld_left, right, ld_right, m, k, column, op); break;
      case 3: multiply_panel<R, 3>(left, ld_left, right, ld_right, m, k, column, op); break;
#endif
      default: multiply_panel<R, kPanel>(left, ld_left, right, ld_right, m, k, column, op);
    }
  }
}

// out = sum
template <class R>
struct Assign {
  R* out;
  int ld;
  template <int NV>
  TAUSID_INLINE void start(int, int, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) sum[j] = Vec<R>{};
  }
  template <int NV>
  TAUSID_INLINE void finish(int row, int column, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) store(out + size_t(row) * ld + column + j * kLanes<R>, sum[j]);
  }
};

// out += sum
template <class R>
struct Accumulate {
  R* out;
  int ld;
  template <int NV>
  TAUSID_INLINE void start(int row, int column, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) sum[j] = load(out + size_t(row) * ld + column + j * kLanes<R>);
  }
  template <int NV>
  TAUSID_INLINE void finish(int row, int column, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) store(out + size_t(row) * ld + column + j * kLanes<R>, sum[j]);
  }
};

// out = s(sum + bias)
template <class R, int A>
struct Activate {
  R* out;
  int ld;
  const R* bias;
  template <int NV>
  TAUSID_INLINE void start(int row, int, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) sum[j] = broadcast<R>(bias[row]);
  }
  template <int NV>
  TAUSID_INLINE void finish(int row, int column, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) store(out + size_t(row) * ld + column + j * kLanes<R>, activate<R, A>(sum[j]));
  }
};

// out = sum * s'; and the row's sum over lanes, one vector a row, is added to `total`
template <class R, int A>
struct PullActivation {
  R* out;
  int ld;
  const R* value;
  R* total;
  template <int NV>
  TAUSID_INLINE void start(int, int, Vec<R> (&sum)[NV]) const {
    for (int j = 0; j < NV; j++) sum[j] = Vec<R>{};
  }
  template <int NV>
  TAUSID_INLINE void finish(int row, int column, Vec<R> (&sum)[NV]) const {
    Vec<R> s = load(total + row * kLanes<R>);
    for (int j = 0; j < NV; j++) {
      size_t at = size_t(row) * ld + column + j * kLanes<R>;
      Vec<R> d = pull_activation<R, A>(sum[j], load(value + at));
      store(out + at, d);
      s += d;
    }
    store(total + row * kLanes<R>, s);
  }
};
