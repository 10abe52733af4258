// Kernels for AVX2 and FMA, eight floats at once.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target( \
    "avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

namespace regard {

namespace {

#include "avx2.h"
#include "vector_linear.h"
#include "vector_rows.h"

// Eight integers, in a type that the compiler can add.
typedef int Integers __attribute__((vector_size(32)));

// 8-bit weights. A product of an unsigned and a signed byte, summed in pairs, fits in 16 bits when
// both are within 127, so the input's sign is moved to the weight.
struct I8Kernel : Scaled<Avx2> {
  using Sum = Integers;
  static constexpr int width = 8;

  struct Weight { __m256i w; };
  struct Value { __m256i x, magnitude; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  static Sum begin(const Linear&, int) { return Integers{}; }
  static Weight weight(const std::byte* at) { return {Avx2::load_bytes(at)}; }
  static Value value(const std::byte* row, int step) {
    int four;
    __builtin_memcpy(&four, row + static_cast<std::size_t>(step) * 4, sizeof four);
    const __m256i x = _mm256_xor_si256(_mm256_set1_epi32(four), _mm256_set1_epi8(-128));
    return {x, _mm256_abs_epi8(x)};
  }
  static Sum more(Value x, Weight w, Sum sum) {
    const __m256i pairs = _mm256_maddubs_epi16(x.magnitude, _mm256_sign_epi8(w.w, x.x));
    return sum + (Integers)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  static __m256 end(Sum sum, Ends ends, const float* scales, std::size_t row) {
    return end_with(_mm256_cvtepi32_ps((__m256i)sum), ends, scales[row]);
  }
};

struct Linears {
  static constexpr LinearKernel f32 = Tiles<Avx2, F32Kernel<Avx2>, 6, 2>::apply;
  static constexpr LinearKernel bf16 = Tiles<Avx2, Bf16Kernel<Avx2>, 4, 2>::apply;
  static constexpr LinearKernel i8 = Tiles<Avx2, I8Kernel, 4, 2>::apply;
};

constexpr Kernels kAll = kernels_over<Avx2, Linears>();

}  // namespace

const Kernels& avx2_kernels() { return kAll; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
const Kernels& avx2_kernels() { return portable_kernels(); }
}  // namespace regard

#endif
