// bfloat16 weights with AVX-512 BF16, which sums two products in float32 at once.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif

namespace regard {

namespace {

#include "avx512.h"
#include "vector_linear.h"

struct PairKernel : Biased<Avx512> {
  using Sum = __m512;
  static constexpr int width = 16;

  struct Weight { __m512i w; };
  struct Value { __m512i x; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  static Sum begin(const Linear&, int) { return _mm512_setzero_ps(); }
  static Weight weight(const std::byte* at) { return {Avx512::load_bytes(at)}; }
  static Value value(const std::byte* row, int step) {
    int pair;
    __builtin_memcpy(&pair, row + static_cast<std::size_t>(step) * 4, sizeof pair);
    return {_mm512_set1_epi32(pair)};
  }
  static Sum more(Value x, Weight w, Sum sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x.x, (__m512bh)w.w);
  }
};

}  // namespace

LinearKernel avx512_bf16() { return Tiles<Avx512, PairKernel, 6, 4>::apply; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
LinearKernel avx512_bf16() { return portable_kernels().bf16; }
}  // namespace regard

#endif
