// Eight floats at once in two registers, for the source files of NEON.

struct Neon {
  static constexpr int width = 8;
  struct F {
    float32x4_t low, high;
  };

  static F zero() { return set(0); }
  static F set(float value) { return {vdupq_n_f32(value), vdupq_n_f32(value)}; }
  static F load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
  static F load_first(const float* from, int n) {
    if (n == width) return load(from);
    float whole[width] = {};
    __builtin_memcpy(whole, from, static_cast<std::size_t>(n) * sizeof(float));
    return load(whole);
  }
  static void store(float* to, F a) {
    vst1q_f32(to, a.low);
    vst1q_f32(to + 4, a.high);
  }
  static void store_first(float* to, F a, int n) {
    if (n == width) return store(to, a);
    float whole[width];
    store(whole, a);
    __builtin_memcpy(to, whole, static_cast<std::size_t>(n) * sizeof(float));
  }
  static F first(F a, int n) {
    const int32x4_t count = vdupq_n_s32(n);
    const int32_t places[width] = {0, 1, 2, 3, 4, 5, 6, 7};
    return select({vcgtq_s32(count, vld1q_s32(places)), vcgtq_s32(count, vld1q_s32(places + 4))},
                  a, zero());
  }
  static F add(F a, F b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  static F sub(F a, F b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
  static F mul(F a, F b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
  static F div(F a, F b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
  static F fma(F a, F b, F c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  // The second when either is NaN, as x86 has it.
  static F max(F a, F b) { return where_less(b, a, a, b); }
  static F min(F a, F b) { return where_less(a, b, a, b); }
  static F where_less(F a, F b, F yes, F no) {
    return select({vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high)}, yes, no);
  }
  static F magnitude(F a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }
  static F with_sign(F a, F sign) {
    const uint32x4_t bit = vdupq_n_u32(0x80000000u);
    return select({bit, bit}, sign, a);
  }
  static F round(F a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
  // a * 2^n in two moves, as 2^n alone may be no float.
  static F times_power(F a, F n) {
    return {times_power(a.low, vcvtnq_s32_f32(n.low)),
            times_power(a.high, vcvtnq_s32_f32(n.high))};
  }
  static float sum(F a) {
    const float32x4_t half = vaddq_f32(a.low, a.high);
    const float32x2_t quarter = vadd_f32(vget_low_f32(half), vget_high_f32(half));
    return vget_lane_f32(quarter, 0) + vget_lane_f32(quarter, 1);
  }
  // The sums of eight, in order.
  static F sums(const F (&a)[8]) {
    return {sums(a[0], a[1], a[2], a[3]), sums(a[4], a[5], a[6], a[7])};
  }
  static float largest(F a) {
    float values[width];
    store(values, a);
    float most = values[0];
    for (int i = 1; i < width; ++i) most = values[i] > most ? values[i] : most;
    return most;
  }
  static unsigned above(F a, F b) {
    const uint32_t bits[width] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u32(vandq_u32(vcgtq_f32(a.low, b.low), vld1q_u32(bits))) +
           vaddvq_u32(vandq_u32(vcgtq_f32(a.high, b.high), vld1q_u32(bits + 4)));
  }
  static unsigned largest_bits(const float* x, int n) {
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < n; i += width) {
      const F some = magnitude(load_first(x + i, n - i < width ? n - i : width));
      most = vmaxq_u32(most, vmaxq_u32(bits_of(some.low), bits_of(some.high)));
    }
    return vmaxvq_u32(most);
  }
  // As signed bytes.
  static void store_levels(std::byte* to, F a, int n) {
    std::int8_t whole[width];
    vst1_s8(whole, vqmovn_s16(levels_of(a)));
    __builtin_memcpy(to, whole, static_cast<std::size_t>(n));
  }
  static void store_bytes(std::byte* to, F a, int n) {
    const uint8x8_t bytes = vqmovun_s16(vaddq_s16(levels_of(a), vdupq_n_s16(128)));
    std::uint8_t whole[width];
    vst1_u8(whole, bytes);
    __builtin_memcpy(to, whole, static_cast<std::size_t>(n));
  }
  static void store_halves(std::byte* to, F a, int n) {
    std::uint16_t whole[width];
    vst1q_u16(whole, vcombine_u16(vshrn_n_u32(rounded(a.low), 16), vshrn_n_u32(rounded(a.high), 16)));
    __builtin_memcpy(to, whole, static_cast<std::size_t>(n) * sizeof *whole);
  }
  // Halves of `first` below those of `second`.
  static void store_pairs(std::byte* to, F first, F second) {
    store_words(to, vsriq_n_u32(rounded(second.low), rounded(first.low), 16));
    store_words(to + 16, vsriq_n_u32(rounded(second.high), rounded(first.high), 16));
  }
  static F load_first_of_pairs(const std::byte* from) {
    return {float_of(vshlq_n_u32(load_words(from), 16)),
            float_of(vshlq_n_u32(load_words(from + 16), 16))};
  }
  static F load_second_of_pairs(const std::byte* from) {
    const uint32x4_t high = vdupq_n_u32(0xffff0000u);
    return {float_of(vandq_u32(load_words(from), high)),
            float_of(vandq_u32(load_words(from + 16), high))};
  }
  // Eight signed bytes.
  static F load_levels(const std::byte* from) {
    const int16x8_t levels = vmovl_s8(vld1_s8(reinterpret_cast<const std::int8_t*>(from)));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(levels))),
            vcvtq_f32_s32(vmovl_high_s16(levels))};
  }
  // Sixteen bytes: four inputs of each of four columns.
  static int8x16_t load_bytes(const std::byte* from) {
    return vld1q_s8(reinterpret_cast<const std::int8_t*>(from));
  }
  // A step's four inputs, for four columns: bytes of inputs are 128 too large, so that the sign bit
  // alone is what differs from the integers that they stand for.
  static int8x16_t four_inputs(const std::byte* row, int step) {
    std::uint32_t four;
    __builtin_memcpy(&four, row + static_cast<std::size_t>(step) * 4, sizeof four);
    return vreinterpretq_s8_u32(vdupq_n_u32(four ^ 0x80808080u));
  }
  static F floats(int32x4_t low, int32x4_t high) {
    return {vcvtq_f32_s32(low), vcvtq_f32_s32(high)};
  }

  static void prefetch(const std::byte* at) { __builtin_prefetch(at); }
  static void prefetch_far(const std::byte* at) { __builtin_prefetch(at, 0, 2); }

 private:
  struct Mask {
    uint32x4_t low, high;
  };
  static F select(Mask mask, F yes, F no) {
    return {vbslq_f32(mask.low, yes.low, no.low), vbslq_f32(mask.high, yes.high, no.high)};
  }
  static int16x8_t levels_of(F a) {
    return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a.low)), vqmovn_s32(vcvtnq_s32_f32(a.high)));
  }
  static uint32x4_t bits_of(float32x4_t a) { return vreinterpretq_u32_f32(a); }
  static float32x4_t float_of(uint32x4_t a) { return vreinterpretq_f32_u32(a); }
  static uint32x4_t load_words(const std::byte* from) {
    return vreinterpretq_u32_s8(load_bytes(from));
  }
  static void store_words(std::byte* to, uint32x4_t a) {
    vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vreinterpretq_u8_u32(a));
  }
  static float32x4_t times_power(float32x4_t a, int32x4_t power) {
    const int32x4_t half = vshrq_n_s32(power, 1);
    return vmulq_f32(vmulq_f32(a, power_of_two(half)), power_of_two(vsubq_s32(power, half)));
  }
  static float32x4_t power_of_two(int32x4_t power) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(power, vdupq_n_s32(127)), 23));
  }
  static float32x4_t sums(F a, F b, F c, F d) {
    const float32x4_t ab = vpaddq_f32(vaddq_f32(a.low, a.high), vaddq_f32(b.low, b.high));
    const float32x4_t cd = vpaddq_f32(vaddq_f32(c.low, c.high), vaddq_f32(d.low, d.high));
    return vpaddq_f32(ab, cd);
  }
  // In the high half of the bits, to the nearest, to the even one of two; a NaN stays one.
  static uint32x4_t rounded(float32x4_t a) {
    const uint32x4_t whole = bits_of(a);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(whole, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(whole, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(whole, vdupq_n_u32(0x400000));
    return vbslq_u32(vceqq_f32(a, a), up, quiet);
  }
};

// What the kernels of 8-bit layers share: eight columns and four inputs at a time. Each has a `more`
// of its own, which adds their products.
struct NeonBytes {
  struct Sum { int32x4_t low, high; };
  static constexpr int width = 8;

  struct Weight { int8x16_t low, high; };
  struct Value { int8x16_t x; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  static Sum begin(const Linear&, int) { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static Weight weight(const std::byte* at) {
    return {Neon::load_bytes(at), Neon::load_bytes(at + 16)};
  }
  static Value value(const std::byte* row, int step) { return {Neon::four_inputs(row, step)}; }
  struct Ends { Neon::F scale, bias; };
  static Ends ends(const Linear& linear, int column) {
    return {Neon::load(linear.scale() + column), Neon::load(linear.bias() + column)};
  }
  static Neon::F end(Sum sum, Ends ends, const float* scales, std::size_t row) {
    const Neon::F scale = Neon::mul(Neon::set(scales[row]), ends.scale);
    return Neon::add(Neon::mul(Neon::floats(sum.low, sum.high), scale), ends.bias);
  }
};
