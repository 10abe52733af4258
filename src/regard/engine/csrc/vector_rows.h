// Row functions written once over a vector type V, for each instruction set to compile for itself.
//
// V has `width` floats in a register V::F and static functions on them. It belongs to one source
// file, so that no function made here can be taken by the linker for another file's. For the same
// reason this header includes nothing: what it needs is included before instructions are turned on.

template <class V>
struct Rows {
  using F = typename V::F;
  static constexpr int W = V::width;
  static constexpr int kTogether = 8;  // keys whose scores are summed together

  // exp(x): zero below the smallest normal number, infinity above the largest, NaN for NaN.
  static F exp(F x) {
    const F low = V::set(-87.33f);
    const F bounded = V::min(V::set(89.0f), V::max(low, x));
    const F n = V::round(V::mul(bounded, V::set(1.44269504f)));
    // ln 2 in two parts, the first with zeros at its end.
    F r = V::fma(n, V::set(-0.693145752f), bounded);
    r = V::fma(n, V::set(-1.42860677e-6f), r);
    F q = V::set(0.0013814199f);
    q = V::fma(q, r, V::set(0.0083689187f));
    q = V::fma(q, r, V::set(0.0416684076f));
    q = V::fma(q, r, V::set(0.1666651964f));
    q = V::fma(q, r, V::set(0.4999999404f));
    const F p = V::add(V::set(1.0f), V::fma(V::mul(r, r), q, r));
    return V::where_less(x, low, V::zero(), V::times_power(p, n));
  }

  // The same where x is no number much above 0, to a relative error near 2e-7 and zero instead of the
  // smallest numbers: what sums of exponentials need, in two thirds of the time.
  static F exp_below(F x) {
    const F bounded = V::max(V::set(-120.0f), x);
    const F n = V::round(V::mul(bounded, V::set(1.44269504f)));
    F r = V::fma(n, V::set(-0.693145752f), bounded);
    r = V::fma(n, V::set(-1.42860677e-6f), r);
    F p = V::set(0.00829031552f);
    p = V::fma(p, r, V::set(0.0418979307f));
    p = V::fma(p, r, V::set(0.166676357f));
    p = V::fma(p, r, V::set(0.499991502f));
    p = V::fma(p, r, V::set(0.999999745f));
    p = V::fma(p, r, V::set(1.0f));
    return V::times_power(p, n);
  }

  // erf by polynomials fitted to it: z P(z^2) below 1, 1 - exp(-Q(z)) from there to 4.
  static F erf(F x) {
    const F z = V::min(V::set(4.0f), V::magnitude(x));
    const F s = V::mul(z, z);
    F p = V::set(7.8891192e-05f);
    p = V::fma(p, s, V::set(-0.00080208411f));
    p = V::fma(p, s, V::set(0.0051895352f));
    p = V::fma(p, s, V::set(-0.0268544443f));
    p = V::fma(p, s, V::set(0.1128360033f));
    p = V::fma(p, s, V::set(-0.3761262596f));
    p = V::fma(p, s, V::set(1.1283791065f));
    F q = V::set(-2.50736434e-07f);
    q = V::fma(q, z, V::set(2.53065846e-05f));
    q = V::fma(q, z, V::set(-0.00046373860f));
    q = V::fma(q, z, V::set(0.0042822156f));
    q = V::fma(q, z, V::set(-0.0253732093f));
    q = V::fma(q, z, V::set(0.1086385399f));
    q = V::fma(q, z, V::set(0.6330399513f));
    q = V::fma(q, z, V::set(1.1296609640f));
    q = V::fma(q, z, V::set(-0.00020432800f));
    const F large = V::sub(V::set(1.0f), exp(V::sub(V::zero(), q)));
    return V::with_sign(V::where_less(z, V::set(1.0f), V::mul(p, z), large), x);
  }

  static F logistic_times(F x, F by) {  // x / (1 + exp(-by))
    return V::div(x, V::add(V::set(1.0f), exp(V::sub(V::zero(), by))));
  }

  static F relu(F x) { return V::where_less(x, V::zero(), V::zero(), x); }

  static F gelu(F x) {
    const F half = V::mul(x, V::set(0.5f));
    return V::fma(half, erf(V::mul(x, V::set(0.70710678f))), half);
  }

  // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
  static F gelu_tanh(F x) {
    const F cube = V::mul(V::mul(x, x), x);
    const F inner = V::fma(cube, V::set(0.044715f), x);
    return logistic_times(x, V::mul(inner, V::set(1.59576912f)));
  }

  static F swish(F x) { return logistic_times(x, x); }

  template <F (*FUNCTION)(F)>
  static void apply(float* row, int n) {
    int i = 0;
    for (; i + W <= n; i += W) V::store(row + i, FUNCTION(V::load(row + i)));
    if (i < n) V::store_first(row + i, FUNCTION(V::load_first(row + i, n - i)), n - i);
  }

  template <F (*FUNCTION)(F)>
  static void apply_gate(float* gate, const float* value, int n) {
    int i = 0;
    for (; i + W <= n; i += W) {
      V::store(gate + i, V::mul(FUNCTION(V::load(gate + i)), V::load(value + i)));
    }
    if (i < n) {
      const F opened = FUNCTION(V::load_first(gate + i, n - i));
      V::store_first(gate + i, V::mul(opened, V::load_first(value + i, n - i)), n - i);
    }
  }

  static void activate(Activation activation, float* row, int n) {
    switch (activation) {
      case Activation::relu: return apply<relu>(row, n);
      case Activation::gelu: return apply<gelu>(row, n);
      case Activation::gelu_tanh: return apply<gelu_tanh>(row, n);
      case Activation::swish: return apply<swish>(row, n);
    }
  }

  static void activate_gate(Activation activation, float* gate, const float* value, int n) {
    switch (activation) {
      case Activation::relu: return apply_gate<relu>(gate, value, n);
      case Activation::gelu: return apply_gate<gelu>(gate, value, n);
      case Activation::gelu_tanh: return apply_gate<gelu_tanh>(gate, value, n);
      case Activation::swish: return apply_gate<swish>(gate, value, n);
    }
  }

  static void exp_row(float* row, int n) { apply<exp>(row, n); }

  static float dot(const float* a, const float* b, int n) {
    F s0 = V::zero(), s1 = V::zero(), s2 = V::zero(), s3 = V::zero();
    int i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
      s0 = V::fma(V::load(a + i), V::load(b + i), s0);
      s1 = V::fma(V::load(a + i + W), V::load(b + i + W), s1);
      s2 = V::fma(V::load(a + i + 2 * W), V::load(b + i + 2 * W), s2);
      s3 = V::fma(V::load(a + i + 3 * W), V::load(b + i + 3 * W), s3);
    }
    for (; i + W <= n; i += W) s0 = V::fma(V::load(a + i), V::load(b + i), s0);
    if (i < n) s1 = V::fma(V::load_first(a + i, n - i), V::load_first(b + i, n - i), s1);
    return V::sum(V::add(V::add(s0, s1), V::add(s2, s3)));
  }

  static void axpy(float a, const float* x, float* y, int n) {
    const F by = V::set(a);
    int i = 0;
    for (; i + W <= n; i += W) V::store(y + i, V::fma(by, V::load(x + i), V::load(y + i)));
    if (i < n) {
      const F sum = V::fma(by, V::load_first(x + i, n - i), V::load_first(y + i, n - i));
      V::store_first(y + i, sum, n - i);
    }
  }

  static void add(const float* x, float* y, int n) {
    int i = 0;
    for (; i + W <= n; i += W) V::store(y + i, V::add(V::load(x + i), V::load(y + i)));
    if (i < n) {
      const F sum = V::add(V::load_first(x + i, n - i), V::load_first(y + i, n - i));
      V::store_first(y + i, sum, n - i);
    }
  }

  static void multiply(const float* x, float* y, int n) {
    int i = 0;
    for (; i + W <= n; i += W) V::store(y + i, V::mul(V::load(x + i), V::load(y + i)));
    if (i < n) {
      const F product = V::mul(V::load_first(x + i, n - i), V::load_first(y + i, n - i));
      V::store_first(y + i, product, n - i);
    }
  }

  static void scale(float a, float* y, int n) {
    const F by = V::set(a);
    int i = 0;
    for (; i + W <= n; i += W) V::store(y + i, V::mul(by, V::load(y + i)));
    if (i < n) V::store_first(y + i, V::mul(by, V::load_first(y + i, n - i)), n - i);
  }

  // How keys and values are kept: `parts` vectors are read at once, `bytes` a value, and what is
  // made of them is to be scaled or not.
  struct Full {
    static constexpr int parts = 1, bytes = 4;
    static constexpr bool scaled = false;
    static void load(const std::byte* at, F (&to)[1]) {
      to[0] = V::load(reinterpret_cast<const float*>(at));
    }
  };
  // Two vectors side by side, the first in the low halves of their bits.
  struct Half {
    static constexpr int parts = 2, bytes = 2;
    static constexpr bool scaled = false;
    static void load(const std::byte* at, F (&to)[2]) {
      to[0] = V::load_first_of_pairs(at);
      to[1] = V::load_second_of_pairs(at);
    }
  };
  struct Bytes {
    static constexpr int parts = 1, bytes = 1;
    static constexpr bool scaled = true;
    static void load(const std::byte* at, F (&to)[1]) { to[0] = V::load_levels(at); }
  };

  static F load_some(const float* from, int n) {
    return n >= W ? V::load(from) : n > 0 ? V::load_first(from, n) : V::zero();
  }

  static void store_some(float* to, F a, int n) {
    if (n >= W) return V::store(to, a);
    if (n > 0) V::store_first(to, a, n);
  }

  static void keep_half(const float* x, int n, int padded, std::byte* row) {
    for (int i = 0; i < padded; i += 2 * W) {
      V::store_pairs(row + 2 * i, load_some(x + i, n - i), load_some(x + i + W, n - i - W));
    }
  }

  static void keep_bytes(const float* x, int n, int padded, std::byte* row, float* scale) {
    const float factor = quantising_factor(x, n, scale);
    const F by = V::set(factor);
    int i = 0;
    if (factor != 0) {
      for (; i + W <= n; i += W) V::store_levels(row + i, V::mul(V::load(x + i), by), W);
      if (i < n) V::store_levels(row + i, V::mul(V::load_first(x + i, n - i), by), n - i);
      i = n;
    }
    for (; i < padded; ++i) row[i] = std::byte{0};
  }

  static const std::byte* row_at(const RowsAt& rows, int j) {
    return rows.base + static_cast<std::size_t>(rows.index ? rows.index[j] : j) * rows.stride;
  }
  static float scale_at(const RowsAt& rows, int j) {
    return rows.scale[rows.index ? rows.index[j] : j];
  }

  // out[j] = scale * (query . keys[j]); the query is padded with zeros.
  template <class KEPT>
  static void scores(const Attended& at, const float* query, float* out) {
    constexpr int kParts = KEPT::parts;
    const F by = V::set(at.scale);
    for (int j = 0; j < at.count; j += kTogether) {
      // Missing keys are the last one again.
      const std::byte* key[kTogether];
      for (int k = 0; k < kTogether; ++k) {
        key[k] = row_at(at.keys, j + k < at.count ? j + k : at.count - 1);
      }
      F sums[kTogether];
#pragma GCC unroll 8
      for (int k = 0; k < kTogether; ++k) sums[k] = V::zero();
      for (int i = 0; i < at.key_dim; i += kParts * W) {
        F part[kParts];
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) part[p] = V::load(query + i + p * W);
#pragma GCC unroll 8
        for (int k = 0; k < kTogether; ++k) {
          F some[kParts];
          KEPT::load(key[k] + i * KEPT::bytes, some);
#pragma GCC unroll 2
          for (int p = 0; p < kParts; ++p) sums[k] = V::fma(part[p], some[p], sums[k]);
        }
      }
      if constexpr (KEPT::scaled) {
#pragma GCC unroll 8
        for (int k = 0; k < kTogether; ++k) {
          const int place = j + k < at.count ? j + k : at.count - 1;
          sums[k] = V::mul(V::set(scale_at(at.keys, place)), sums[k]);
        }
      }
      const F all = V::mul(by, V::sums(sums));
      V::store_first(out + j, all, at.count - j < kTogether ? at.count - j : kTogether);
    }
  }

  // `VECTORS` registers of the output from `first` on: what has even numbers and what has odd ones
  // is summed apart, in order, and then together.
  template <class KEPT, int VECTORS>
  static void weigh_part(const Attended& at, const float* weights, int first, float* out) {
    constexpr int kParts = KEPT::parts;
    F sums[2][VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) sums[0][v] = sums[1][v] = V::zero();
    const auto more = [&](F (&sum)[VECTORS], int j) {
      const F weight = V::set(KEPT::scaled ? weights[j] * scale_at(at.values, j) : weights[j]);
      const std::byte* value = row_at(at.values, j) + first * KEPT::bytes;
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v += kParts) {
        F some[kParts];
        KEPT::load(value + v * W * KEPT::bytes, some);
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) sum[v + p] = V::fma(weight, some[p], sum[v + p]);
      }
    };
    int j = 0;
    for (; j + 2 <= at.count; j += 2) {
      more(sums[0], j);
      more(sums[1], j + 1);
    }
    if (j < at.count) more(sums[0], j);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      store_some(out + first + v * W, V::add(sums[0][v], sums[1][v]),
                 at.value_dim - first - v * W);
    }
  }

  template <class KEPT>
  static void attend(const Attended& at, const float* query, const float* bias, float* weights,
                     float* out) {
    scores<KEPT>(at, query, weights);
    if (bias) add(bias, weights, at.count);
    softmax(weights, at.count);
    int first = 0;
    for (; first + 4 * W <= at.value_dim; first += 4 * W) {
      weigh_part<KEPT, 4>(at, weights, first, out);
    }
    for (; first < at.value_dim; first += KEPT::parts * W) {
      weigh_part<KEPT, KEPT::parts>(at, weights, first, out);
    }
  }

  static float max(const float* row, int n) {
    F most = V::set(-__builtin_inff());
    int i = 0;
    for (; i + W <= n; i += W) most = V::max(V::load(row + i), most);
    float largest = V::largest(most);
    for (; i < n; ++i) largest = row[i] > largest ? row[i] : largest;
    return largest;
  }

  static float sum_exp(const float* row, int n, float shift) {
    const F by = V::set(shift);
    F sum = V::zero();
    int i = 0;
    for (; i + W <= n; i += W) sum = V::add(sum, exp_below(V::sub(V::load(row + i), by)));
    if (i < n) {
      const F end = exp_below(V::sub(V::load_first(row + i, n - i), by));
      sum = V::add(sum, V::first(end, n - i));
    }
    return V::sum(sum);
  }

  static void softmax(float* row, int n) {
    const float most = max(row, n);
    const F by = V::set(most == -__builtin_inff() ? 0.0f : most);
    F sum = V::zero();
    int i = 0;
    for (; i + W <= n; i += W) {
      const F e = exp_below(V::sub(V::load(row + i), by));
      V::store(row + i, e);
      sum = V::add(sum, e);
    }
    if (i < n) {
      const F e = V::first(exp_below(V::sub(V::load_first(row + i, n - i), by)), n - i);
      V::store_first(row + i, e, n - i);
      sum = V::add(sum, e);
    }
    const float total = V::sum(sum);
    if (total != 0) scale(1 / total, row, n);
  }

  static void layer_norm(const float* x, const float* weight, const float* bias, float epsilon,
                         float* y, int n) {
    F s0 = V::zero(), s1 = V::zero();
    int i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
      s0 = V::add(s0, V::load(x + i));
      s1 = V::add(s1, V::load(x + i + W));
    }
    for (; i < n; i += W) s0 = V::add(s0, V::load_first(x + i, n - i < W ? n - i : W));
    const F mean = V::set(V::sum(V::add(s0, s1)) / static_cast<float>(n));
    s0 = s1 = V::zero();
    for (i = 0; i + 2 * W <= n; i += 2 * W) {
      const F away = V::sub(V::load(x + i), mean), other = V::sub(V::load(x + i + W), mean);
      s0 = V::fma(away, away, s0);
      s1 = V::fma(other, other, s1);
    }
    for (; i < n; i += W) {
      const int some = n - i < W ? n - i : W;
      const F away = V::first(V::sub(V::load_first(x + i, some), mean), some);
      s0 = V::fma(away, away, s0);
    }
    const float variance = V::sum(V::add(s0, s1)) / static_cast<float>(n);
    const F by = V::set(1 / __builtin_sqrtf(variance + epsilon));
    scale_and_shift([&](F value) { return V::mul(V::sub(value, mean), by); }, x, weight, bias, y, n);
  }

  static void rms_norm(const float* x, const float* weight, float epsilon, float* y, int n) {
    F s0 = V::zero(), s1 = V::zero();
    int i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
      s0 = V::fma(V::load(x + i), V::load(x + i), s0);
      s1 = V::fma(V::load(x + i + W), V::load(x + i + W), s1);
    }
    for (; i < n; i += W) {
      const F end = V::load_first(x + i, n - i < W ? n - i : W);
      s0 = V::fma(end, end, s0);
    }
    const float square = V::sum(V::add(s0, s1)) / static_cast<float>(n);
    const F by = V::set(1 / __builtin_sqrtf(square + epsilon));
    scale_and_shift([&](F value) { return V::mul(value, by); }, x, weight, nullptr, y, n);
  }

  // y = normed(x) * weight + bias, where there are such.
  template <class NORMED>
  static void scale_and_shift(NORMED&& normed, const float* x, const float* weight,
                              const float* bias, float* y, int n) {
    int i = 0;
    if (weight && bias) {
      for (; i + W <= n; i += W) {
        const F scaled = V::mul(normed(V::load(x + i)), V::load(weight + i));
        V::store(y + i, V::add(scaled, V::load(bias + i)));
      }
    }
    for (; i < n; i += W) {
      const int some = n - i < W ? n - i : W;
      F value = normed(V::load_first(x + i, some));
      if (weight) value = V::mul(value, V::load_first(weight + i, some));
      if (bias) value = V::add(value, V::load_first(bias + i, some));
      V::store_first(y + i, value, some);
    }
  }

  static int first_above(const float* row, int n, float floor) {
    const F by = V::set(floor);
    int i = 0;
    for (; i + W <= n; i += W) {
      const unsigned above = V::above(V::load(row + i), by);
      if (above) return i + __builtin_ctz(above);
    }
    while (i < n && !(row[i] > floor)) ++i;
    return i;
  }

  // The largest magnitude as the bits of a float, in which infinity and NaN are above all else.
  static float quantising_factor(const float* x, int n, float* scale) {
    const unsigned bits = V::largest_bits(x, n);
    float most;
    __builtin_memcpy(&most, &bits, sizeof most);
    if (bits >= 0x7f800000u) {
      *scale = __builtin_nanf("");
      return 0;
    }
    if (most < 1e-36f) {  // 127 / most would be infinite
      *scale = 0;
      return 0;
    }
    *scale = most / 127;
    return 127 / most;
  }

  static void quantise(const float* x, int n, int padded, std::byte* row, float* scale) {
    const float factor = quantising_factor(x, n, scale);
    if (factor == 0) {
      __builtin_memset(row, 128, static_cast<std::size_t>(padded));
      return;
    }
    const F by = V::set(factor);
    int i = 0;
    for (; i + W <= n; i += W) V::store_bytes(row + i, V::mul(V::load(x + i), by), W);
    if (i < n) V::store_bytes(row + i, V::mul(V::load_first(x + i, n - i), by), n - i);
    for (; n < padded; ++n) row[n] = std::byte{128};
  }

  static void round(const float* x, int n, int padded, std::byte* row) {
    int i = 0;
    for (; i < n; i += W) {
      const int some = n - i < W ? n - i : W;
      V::store_halves(row + 2 * i, V::load_first(x + i, some), some);
    }
    for (; n < padded; ++n) __builtin_memset(row + 2 * n, 0, 2);
  }
};

template <class V, class L>
constexpr Kernels kernels_over() {
  using R = Rows<V>;
  return {L::f32,       L::bf16,       L::i8,       R::quantise,      R::round,
          R::dot,       R::axpy,       R::add,      R::multiply,      R::scale,
          R::keep_half, R::keep_bytes, R::template attend<typename R::Full>,
          R::template attend<typename R::Half>,
          R::template attend<typename R::Bytes>,
          R::softmax,   R::layer_norm, R::rms_norm, R::activate,      R::activate_gate,
          R::exp_row,   R::max,        R::sum_exp,  R::first_above};
}
