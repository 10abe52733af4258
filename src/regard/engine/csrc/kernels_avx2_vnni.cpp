// 8-bit weights with the VNNI of AVX2, which sums four products of bytes in 32 bits at once.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target( \
    "avxvnni,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avxvnni,avx2,fma")
#endif

namespace regard {

namespace {

#include "avx2.h"
#include "vector_linear.h"

// Eight integers. GCC 12 keeps sums in registers when they have this type, and spills __m256i.
typedef int Integers __attribute__((vector_size(32)));

struct VnniKernel {
  using Sum = Integers;
  static constexpr int width = 8;

  struct Weight { __m256i w; };
  struct Value { __m256i x; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  // Inputs are 128 too large, so sums start at less.
  static Sum begin(const Linear& linear, int column) {
    return -(Integers)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(linear.sums() + column));
  }
  static Weight weight(const std::byte* at) { return {Avx2::load_bytes(at)}; }
  static Value value(const std::byte* row, int step) {
    int four;
    __builtin_memcpy(&four, row + static_cast<std::size_t>(step) * 4, sizeof four);
    return {_mm256_set1_epi32(four)};
  }
  static Sum more(Value x, Weight w, Sum sum) {
    return (Integers)_mm256_dpbusd_avx_epi32((__m256i)sum, x.x, w.w);
  }
  static __m256 end(Sum sum, const Linear& linear, const Input& input, std::size_t r, int column) {
    const __m256 scale =
        _mm256_mul_ps(_mm256_set1_ps(input.scale()[r]), Avx2::load(linear.scale() + column));
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps((__m256i)sum), scale),
                         Avx2::load(linear.bias() + column));
  }
};

}  // namespace

LinearKernel avx2_vnni_i8() { return Tiles<Avx2, VnniKernel, 6, 2>::apply; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
LinearKernel avx2_vnni_i8() { return portable_kernels().i8; }
}  // namespace regard

#endif
