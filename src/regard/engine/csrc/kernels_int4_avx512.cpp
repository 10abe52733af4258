// 4-bit weights with AVX-512 VNNI, which sums four products of bytes in 32 bits at once.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "int4.h"
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
#include "vector_int4.h"

// Sixteen integers. GCC 12 keeps sums in registers when they have this type, and spills __m512i.
typedef int Integers __attribute__((vector_size(64)));

struct Int4Kernel {
  using Sum = Integers;
  struct Bytes { __m512i all; };

  static Sum begin(int correction) { return Integers{} + correction; }
  static void split(const std::byte* at, Bytes& low, Bytes& high) {
    const __m512i both = Avx512::load_bytes(at), mask = _mm512_set1_epi8(15);
    low.all = _mm512_and_si512(both, mask);
    high.all = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
  static Bytes four(const std::byte* x) {
    int bytes;
    __builtin_memcpy(&bytes, x, sizeof bytes);
    return {_mm512_set1_epi32(bytes)};
  }
  static Sum more(Bytes x, Bytes w, Sum sum) {
    return (Integers)_mm512_dpbusd_epi32((__m512i)sum, w.all, x.all);
  }
  static __m512 total(Sum sum, int) { return _mm512_cvtepi32_ps((__m512i)sum); }
};

}  // namespace

LinearKernel avx512_vnni_i4() { return Int4Tiles<Avx512, Int4Kernel, 4, 2>::apply; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
LinearKernel avx512_vnni_i4() { return portable_i4(); }
}  // namespace regard

#endif
