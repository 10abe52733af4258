// Sixteen floats at once, for the source files of AVX-512. Included where its instructions are on.

struct Avx512 {
  static constexpr int width = 16;
  using F = __m512;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float value) { return _mm512_set1_ps(value); }
  static F load(const float* from) { return _mm512_loadu_ps(from); }
  static F load_first(const float* from, int n) { return _mm512_maskz_loadu_ps(lanes(n), from); }
  static void store(float* to, F a) { _mm512_storeu_ps(to, a); }
  static void store_first(float* to, F a, int n) { _mm512_mask_storeu_ps(to, lanes(n), a); }
  static F first(F a, int n) { return _mm512_maskz_mov_ps(lanes(n), a); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F where_less(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static F magnitude(F a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  static F with_sign(F a, F sign) {
    return _mm512_or_ps(magnitude(a), _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
  }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
  static F times_power(F a, F n) { return _mm512_scalef_ps(a, n); }
  static float sum(F a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // The sums of eight, in order; zeros after them.
  static F sums(const F (&a)[8]) {
    const F s0 = quarters(a[0], a[1], a[2], a[3]);
    const F s1 = quarters(a[4], a[5], a[6], a[7]);
    // Now the four lanes of a 128-bit part k are to be summed: key k in s0, key 4 + k in s1.
    const F pairs = add(_mm512_unpacklo_ps(s0, s1), _mm512_unpackhi_ps(s0, s1));
    const F whole = add(pairs, _mm512_permute_ps(pairs, 0x4e));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_maskz_permutexvar_ps(0xff, order, whole);
  }
  static float largest(F a) { return _mm512_reduce_max_ps(a); }
  static unsigned above(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static unsigned largest_bits(const float* x, int n) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const auto more = [&](__m512i most, F some) {
      return _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(some), magnitude));
    };
    __m512i most = _mm512_setzero_si512(), other = most;
    int i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
      most = more(most, load(x + i));
      other = more(other, load(x + i + width));
    }
    for (; i + width <= n; i += width) most = more(most, load(x + i));
    if (i < n) other = more(other, load_first(x + i, n - i));
    return static_cast<unsigned>(_mm512_reduce_max_epi32(_mm512_max_epi32(most, other)));
  }
  static void store_bytes(std::byte* to, F a, int n) {
    const __m512i levels = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(128));
    if (n == width) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtusepi32_epi8(levels));
    } else {
      _mm512_mask_cvtusepi32_storeu_epi8(to, lanes(n), levels);
    }
  }
  // As signed bytes.
  static void store_levels(std::byte* to, F a, int n) {
    const __m512i levels = _mm512_cvtps_epi32(a);
    if (n == width) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(levels));
    } else {
      _mm512_mask_cvtsepi32_storeu_epi8(to, lanes(n), levels);
    }
  }
  static void store_halves(std::byte* to, F a, int n) {
    const __m512i halves = _mm512_srli_epi32(rounded(a), 16);
    if (n == width) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(halves));
    } else {
      _mm512_mask_cvtepi32_storeu_epi16(to, lanes(n), halves);
    }
  }
  // Halves of `first` below those of `second`.
  static void store_pairs(std::byte* to, F first, F second) {
    const __m512i high = _mm512_and_si512(rounded(second), _mm512_set1_epi32(-65536));
    _mm512_storeu_si512(to, _mm512_or_si512(_mm512_srli_epi32(rounded(first), 16), high));
  }
  static F load_first_of_pairs(const std::byte* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(load_bytes(from), 16));
  }
  static F load_second_of_pairs(const std::byte* from) {
    return _mm512_castsi512_ps(_mm512_and_si512(load_bytes(from), _mm512_set1_epi32(-65536)));
  }
  // Sixteen signed bytes.
  static F load_levels(const std::byte* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  static __m512i load_bytes(const std::byte* from) { return _mm512_loadu_si512(from); }

  static void prefetch(const std::byte* at) { __builtin_prefetch(at); }
  // To where the nearest cache looks next.
  static void prefetch_far(const std::byte* at) { __builtin_prefetch(at, 0, 2); }

 private:
  // In the high half of the bits, to the nearest, to the even one of two; a NaN stays one.
  static __m512i rounded(F a) {
    const __m512i whole = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(whole, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(whole, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(whole, _mm512_set1_epi32(0x400000));
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), up, quiet);
  }
  // Four lanes of partial sums of each of four, side by side.
  static F quarters(F a, F b, F c, F d) {
    const F ab = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const F cd = add(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    return add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  }
  static __mmask16 lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
};
