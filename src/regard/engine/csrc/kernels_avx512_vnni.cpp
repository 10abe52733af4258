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
#include "vector_vnni.h"

struct Dot {
  // Sixteen integers. GCC 12 keeps sums in registers when they have this type, and spills __m512i.
  typedef int Integers __attribute__((vector_size(64)));

  static Integers load(const void* from) { return (Integers)_mm512_loadu_si512(from); }
  static Integers set(int value) { return (Integers)_mm512_set1_epi32(value); }
  static Integers dot(Integers sum, Integers x, Integers w) {
    return (Integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
  }
  static __m512 floats(Integers sum) { return _mm512_cvtepi32_ps((__m512i)sum); }
};

}  // namespace

LinearKernel avx512_vnni_i8() { return Tiles<Avx512, VnniKernel<Avx512, Dot>, 6, 4>::apply; }

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
