// Eight floats at once, for the source files of AVX2. Included where its instructions are on.

struct Avx2 {
  static constexpr int width = 8;
  using F = __m256;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float value) { return _mm256_set1_ps(value); }
  static F load(const float* from) { return _mm256_loadu_ps(from); }
  static F load_first(const float* from, int n) { return _mm256_maskload_ps(from, lanes(n)); }
  static void store(float* to, F a) { _mm256_storeu_ps(to, a); }
  static void store_first(float* to, F a, int n) { _mm256_maskstore_ps(to, lanes(n), a); }
  static F first(F a, int n) { return _mm256_and_ps(a, _mm256_castsi256_ps(lanes(n))); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F where_less(F a, F b, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F magnitude(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F with_sign(F a, F sign) {
    return _mm256_or_ps(magnitude(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
  }
  static F round(F a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // a * 2^n in two moves, as 2^n alone may be no float.
  static F times_power(F a, F n) {
    const __m256i power = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(power, 1);
    return mul(mul(a, power_of_two(half)), power_of_two(_mm256_sub_epi32(power, half)));
  }
  static float sum(F a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // The sums of eight, in order.
  static F sums(const F (&a)[8]) {
    const F low = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    const F high = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
    return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
  }
  static float largest(F a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  static unsigned above(F a, F b) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
  }
  static unsigned largest_bits(const float* x, int n) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < n; i += width) {
      const F some = load_first(x + i, n - i < width ? n - i : width);
      most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(some), magnitude));
    }
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return static_cast<unsigned>(_mm_cvtsi128_si32(s));
  }
  static void store_bytes(std::byte* to, F a, int n) {
    const __m128i all = levels_of(a);
    store_some(to, _mm_xor_si128(all, _mm_set1_epi8(-128)), n);
  }
  // As signed bytes.
  static void store_levels(std::byte* to, F a, int n) { store_some(to, levels_of(a), n); }
  static void store_halves(std::byte* to, F a, int n) {
    const __m256i high = _mm256_srli_epi32(rounded(a), 16);
    const __m256i pairs = _mm256_packus_epi32(high, high);
    const __m128i all = _mm_unpacklo_epi64(_mm256_castsi256_si128(pairs),
                                           _mm256_extracti128_si256(pairs, 1));
    store_some(to, all, 2 * n);
  }
  // Halves of `first` below those of `second`.
  static void store_pairs(std::byte* to, F first, F second) {
    const __m256i high = _mm256_and_si256(rounded(second), _mm256_set1_epi32(-65536));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm256_or_si256(_mm256_srli_epi32(rounded(first), 16), high));
  }
  static F load_first_of_pairs(const std::byte* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load_bytes(from), 16));
  }
  static F load_second_of_pairs(const std::byte* from) {
    return _mm256_castsi256_ps(_mm256_and_si256(load_bytes(from), _mm256_set1_epi32(-65536)));
  }
  // Eight signed bytes.
  static F load_levels(const std::byte* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  static __m256i load_bytes(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  static void prefetch(const std::byte* at) { __builtin_prefetch(at); }
  // To where the nearest cache looks next.
  static void prefetch_far(const std::byte* at) { __builtin_prefetch(at, 0, 2); }

 private:
  // In the high half of the bits, to the nearest, to the even one of two; a NaN stays one.
  static __m256i rounded(F a) {
    const __m256i whole = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(whole, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(whole, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(whole, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_epi8(up, quiet, nan);
  }
  static __m128i levels_of(F a) {
    const __m256i levels = _mm256_cvtps_epi32(a);
    const __m256i pairs = _mm256_packs_epi32(levels, levels);
    const __m256i bytes = _mm256_packs_epi16(pairs, pairs);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  }
  static __m256i lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F power_of_two(__m256i power) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(power, _mm256_set1_epi32(127)), 23));
  }
  static void store_some(std::byte* to, __m128i bytes, int n) {
    alignas(16) std::byte whole[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(whole), bytes);
    __builtin_memcpy(to, whole, static_cast<std::size_t>(n));
  }
};
