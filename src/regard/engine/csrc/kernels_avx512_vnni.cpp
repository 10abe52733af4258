// 8-bit weights with AVX-512 VNNI, which sums four products of bytes in 32 bits at once.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")
#endif

namespace regard {

namespace {

#include "avx512.h"
#include "vector_linear.h"

// Sixteen integers. GCC 12 keeps sums in registers when they have this type, and spills __m512i.
typedef int Integers __attribute__((vector_size(64)));

struct VnniKernel {
  using Sum = Integers;
  static constexpr int width = 16;

  struct Weight { __m512i w; };
  struct Value { __m512i x; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  // Inputs are 128 too large, so sums start at less.
  static Sum begin(const Linear& linear, int column) {
    return -(Integers)_mm512_loadu_si512(linear.sums() + column);
  }
  static Weight weight(const std::byte* at) { return {Avx512::load_bytes(at)}; }
  static Value value(const std::byte* row, int step) {
    int four;
    __builtin_memcpy(&four, row + static_cast<std::size_t>(step) * 4, sizeof four);
    return {_mm512_set1_epi32(four)};
  }
  static Sum more(Value x, Weight w, Sum sum) {
    return (Integers)_mm512_dpbusd_epi32((__m512i)sum, x.x, w.w);
  }
  static __m512 end(Sum sum, const Linear& linear, const Input& input, std::size_t r, int column) {
    const __m512 scale =
        _mm512_mul_ps(_mm512_set1_ps(input.scale()[r]), Avx512::load(linear.scale() + column));
    return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps((__m512i)sum), scale),
                         Avx512::load(linear.bias() + column));
  }
};

}  // namespace

LinearKernel avx512_vnni_i8() { return Tiles<Avx512, VnniKernel, 6, 4>::apply; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
LinearKernel avx512_vnni_i8() { return portable_kernels().i8; }
}  // namespace regard

#endif
