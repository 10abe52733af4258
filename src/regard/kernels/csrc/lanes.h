// Sixteen floats at once in the compiler's own vectors, which it puts into what registers there are.
//
// Sums are taken in the same order on each instruction set; results differ by rounding alone, as
// some multiply and add in one instruction. What includes this has turned its instructions on
// before, for its own functions alone; so this header includes nothing, and all is inlined.

#define REGARD_ALWAYS __attribute__((always_inline))
#define REGARD_INLINE inline REGARD_ALWAYS

// As many floats as a register has, which the file that includes this says.
typedef float Part __attribute__((vector_size(4 * REGARD_WIDTH)));
typedef unsigned Word __attribute__((vector_size(4 * REGARD_WIDTH)));
typedef unsigned short HalfWord __attribute__((vector_size(2 * REGARD_WIDTH)));

constexpr int kLanes = 16, kParts = kLanes / REGARD_WIDTH;

// Sixteen of them, in several registers where they are short.
template <class V>
struct Lanes {
  V part[kParts];

  template <class Function>
  static REGARD_INLINE Lanes of(Function function) {
    Lanes a;
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) a.part[p] = function(p);
    return a;
  }
};

using F = Lanes<Part>;
using U = Lanes<Word>;

REGARD_INLINE F all(float value) {
  return F::of([&](int) REGARD_ALWAYS { return Part{} + value; });
}
REGARD_INLINE U all(unsigned value) {
  return U::of([&](int) REGARD_ALWAYS { return Word{} + value; });
}

#define REGARD_OPERATOR(OP)                                                             \
  template <class V>                                                                    \
  REGARD_INLINE Lanes<V> operator OP(Lanes<V> a, Lanes<V> b) {                          \
    return Lanes<V>::of([&](int p) REGARD_ALWAYS { return a.part[p] OP b.part[p]; });   \
  }                                                                                     \
  REGARD_INLINE F operator OP(F a, float b) { return a OP all(b); }                     \
  REGARD_INLINE U operator OP(U a, unsigned b) { return a OP all(b); }
REGARD_OPERATOR(+)
REGARD_OPERATOR(-)
REGARD_OPERATOR(*)
#undef REGARD_OPERATOR

#define REGARD_OPERATOR(OP)                                                             \
  REGARD_INLINE U operator OP(U a, U b) {                                               \
    return U::of([&](int p) REGARD_ALWAYS { return a.part[p] OP b.part[p]; });          \
  }                                                                                     \
  REGARD_INLINE U operator OP(U a, unsigned b) { return a OP all(b); }
REGARD_OPERATOR(&)
REGARD_OPERATOR(|)
REGARD_OPERATOR(^)
#undef REGARD_OPERATOR

REGARD_INLINE U operator>>(U a, int by) {
  return U::of([&](int p) REGARD_ALWAYS { return a.part[p] >> by; });
}
REGARD_INLINE U operator<<(U a, int by) {
  return U::of([&](int p) REGARD_ALWAYS { return a.part[p] << by; });
}

// The same bits as another type.
REGARD_INLINE U bits(F a) {
  return U::of([&](int p) REGARD_ALWAYS { return (Word)a.part[p]; });
}
REGARD_INLINE F of_bits(U a) {
  return F::of([&](int p) REGARD_ALWAYS { return (Part)a.part[p]; });
}

REGARD_INLINE F where_less(F a, F b, F yes, F no) {
  return F::of([&](int p) REGARD_ALWAYS {
    return a.part[p] < b.part[p] ? yes.part[p] : no.part[p];
  });
}
REGARD_INLINE F where_at_least(U a, U b, F yes, F no) {
  return F::of([&](int p) REGARD_ALWAYS {
    return a.part[p] >= b.part[p] ? yes.part[p] : no.part[p];
  });
}
REGARD_INLINE U where_number(F a, U yes, U no) {
  return U::of([&](int p) REGARD_ALWAYS {
    return a.part[p] == a.part[p] ? yes.part[p] : no.part[p];
  });
}
// The second where either is NaN.
REGARD_INLINE F larger(F a, F b) { return where_less(b, a, a, b); }

// Sixteen bits as thirty-two, and back what fits in sixteen. The compiler's own conversions take
// detours.
#if REGARD_WIDTH == 16
REGARD_INLINE Word widened(const unsigned short* from) {
  return (Word)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from));
}
REGARD_INLINE HalfWord narrowed(Word a) { return (HalfWord)_mm512_cvtepi32_epi16((__m512i)a); }
#elif REGARD_WIDTH == 8
REGARD_INLINE Word widened(const unsigned short* from) {
  return (Word)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from));
}
REGARD_INLINE HalfWord narrowed(Word a) {
  const __m256i pairs = _mm256_packus_epi32((__m256i)a, (__m256i)a);
  return (HalfWord)_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08));
}
#else
REGARD_INLINE Word widened(const unsigned short* from) {
  HalfWord a;
  __builtin_memcpy(&a, from, sizeof a);
  return __builtin_convertvector(a, Word);
}
REGARD_INLINE HalfWord narrowed(Word a) { return __builtin_convertvector(a, HalfWord); }
#endif

// How numbers lie in memory: as float32, and as bfloat16.
struct Full {
  using Number = float;
  // Register by register: a copy of all would be made in pieces of another size, and be slow.
  static REGARD_INLINE F load(const float* from) {
    return F::of([&](int p) REGARD_ALWAYS {
      Part a;
      __builtin_memcpy(&a, from + p * REGARD_WIDTH, sizeof a);
      return a;
    });
  }
  static REGARD_INLINE void store(float* to, F a) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      __builtin_memcpy(to + p * REGARD_WIDTH, &a.part[p], sizeof a.part[p]);
    }
  }
};

struct Half {
  using Number = unsigned short;
  static REGARD_INLINE F load(const unsigned short* from) {
    return of_bits(U::of([&](int p) REGARD_ALWAYS { return widened(from + p * REGARD_WIDTH); }) << 16);
  }
  // To the nearest, to the even one of two; a NaN stays one.
  static REGARD_INLINE void store(unsigned short* to, F a) {
    const U whole = bits(a);
    const U up = (whole + ((whole >> 16) & 1u) + 0x7fffu) >> 16;
    const U kept = where_number(a, up, (whole >> 16) | 0x40u);
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const HalfWord narrow = narrowed(kept.part[p]);
      __builtin_memcpy(to + p * REGARD_WIDTH, &narrow, sizeof narrow);
    }
  }
};

// Half with half until one is left; without memory in between where registers are long.
#if REGARD_WIDTH == 16
template <class Of>
REGARD_INLINE float folded(F a, Of of) {
  const __m512 whole = (__m512)a.part[0];
  const __m256 eight = of(_mm512_castps512_ps256(whole), _mm512_extractf32x8_ps(whole, 1));
  const __m128 four = of(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = of(four, _mm_movehl_ps(four, four));
  return of(two, _mm_movehdup_ps(two))[0];
}
#else
template <class Of>
REGARD_INLINE float folded(F a, Of of) {
  float part[kLanes];
  Full::store(part, a);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) part[i] = of(part[i], part[i + half]);
  }
  return part[0];
}
#endif
REGARD_INLINE float sum(F a) {
  return folded(a, [](auto low, auto high) REGARD_ALWAYS { return low + high; });
}
REGARD_INLINE float largest(F a) {
  return folded(a, [](auto low, auto high) REGARD_ALWAYS { return high > low ? high : low; });
}

// The first n of sixteen; `rest` stands in for the others.
template <class KEPT>
REGARD_INLINE F load_first(const typename KEPT::Number* from, int n, float rest = 0) {
  typename KEPT::Number some[kLanes] = {};
  __builtin_memcpy(some, from, static_cast<unsigned long>(n) * sizeof *from);
  const F a = KEPT::load(some);
  if (rest == 0) return a;
  float lanes[kLanes];
  Full::store(lanes, a);
  for (int i = n; i < kLanes; ++i) lanes[i] = rest;
  return Full::load(lanes);
}

template <class KEPT>
REGARD_INLINE void store_first(typename KEPT::Number* to, F a, int n) {
  typename KEPT::Number some[kLanes];
  KEPT::store(some, a);
  __builtin_memcpy(to, some, static_cast<unsigned long>(n) * sizeof *to);
}

template <class KEPT>
REGARD_INLINE F load_some(const typename KEPT::Number* from, long n, float rest = 0) {
  return n >= kLanes ? KEPT::load(from) : load_first<KEPT>(from, static_cast<int>(n), rest);
}

template <class KEPT>
REGARD_INLINE void store_some(typename KEPT::Number* to, F a, long n) {
  if (n >= kLanes) return KEPT::store(to, a);
  store_first<KEPT>(to, a, static_cast<int>(n));
}

// exp(x) for x up to 88: zero below the smallest normal number, NaN for NaN.
REGARD_INLINE F exp(F x) {
  constexpr float kLow = -87.33f, kRounds = 3 << 22;
  const F low = all(kLow), high = all(88.0f);
  F bounded = where_less(x, low, low, x);
  bounded = where_less(high, bounded, high, bounded);
  const F shifted = bounded * 1.44269504f + kRounds;
  const F n = shifted - kRounds;
  // ln 2 in two parts, the first with zeros at its end.
  F r = bounded - n * 0.693145752f;
  r = r - n * 1.42860677e-6f;
  F q = all(0.0013814199f);
  q = q * r + 0.0083689187f;
  q = q * r + 0.0416684076f;
  q = q * r + 0.1666651964f;
  q = q * r + 0.4999999404f;
  const F p = r * r * q + r + 1.0f;
  const U power = (bits(shifted) - bits(all(kRounds)) + 127u) << 23;
  return where_less(x, low, F{}, p * of_bits(power));
}
