// 4-bit weights with AVX2: products of bytes summed in 16 bits, where a group's sums fit.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "int4.h"
#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

namespace regard {

namespace {

#include "avx2.h"
#include "vector_int4.h"

// Sixteen bits, in a type that the compiler can add.
typedef short Shorts __attribute__((vector_size(32)));
typedef int Integers __attribute__((vector_size(32)));

struct Int4Kernel {
  using Sum = Shorts;
  struct Bytes { __m256i all; };

  static Sum begin(int) { return Sum{}; }
  static void split(const std::byte* at, Bytes& low, Bytes& high) {
    const __m256i both = Avx2::load_bytes(at), mask = _mm256_set1_epi8(15);
    low.all = _mm256_and_si256(both, mask);
    high.all = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  }
  static Bytes four(const std::byte* x) {
    int bytes;
    __builtin_memcpy(&bytes, x, sizeof bytes);
    return {_mm256_set1_epi32(bytes)};
  }
  // Eight times at most, 2 * 15 * 127 each.
  static Sum more(Bytes x, Bytes w, Sum sum) {
    return sum + (Shorts)_mm256_maddubs_epi16(w.all, x.all);
  }
  static __m256 total(Sum sum, int correction) {
    const Integers pairs = (Integers)_mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps((__m256i)(pairs + correction));
  }
};

}  // namespace

LinearKernel avx2_i4() { return Int4Tiles<Avx2, Int4Kernel, 2, 2>::apply; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
LinearKernel avx2_i4() { return portable_i4(); }
}  // namespace regard

#endif
