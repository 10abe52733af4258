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
#include "vector_vnni.h"

struct Dot {
  // Eight integers. GCC 12 keeps sums in registers when they have this type, and spills __m256i.
  typedef int Integers __attribute__((vector_size(32)));

  static Integers load(const void* from) { return (Integers)_mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  static Integers set(int value) { return (Integers)_mm256_set1_epi32(value); }
  static Integers dot(Integers sum, Integers x, Integers w) {
    return (Integers)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
  }
  static __m256 floats(Integers sum) { return _mm256_cvtepi32_ps((__m256i)sum); }
};

}  // namespace

LinearKernel avx2_vnni_i8() { return Tiles<Avx2, VnniKernel<Avx2, Dot>, 6, 2>::apply; }

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
