// Kernels for AVX-512, sixteen floats at once; 8-bit weights as AVX2 has them.
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

namespace regard {

namespace {

#include "avx512.h"
#include "vector_linear.h"
#include "vector_rows.h"

struct Linears {
  static constexpr LinearKernel f32 = Tiles<Avx512, F32Kernel<Avx512>, 6, 4>::apply;
  static constexpr LinearKernel bf16 = Tiles<Avx512, Bf16Kernel<Avx512>, 5, 4>::apply;
  static void i8(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                 int begin, int end) {
    avx2_kernels().i8(linear, input, y, y_stride, begin, end);
  }
};

constexpr Kernels kAll = kernels_over<Avx512, Linears>();

}  // namespace

const Kernels& avx512_kernels() { return kAll; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
const Kernels& avx512_kernels() { return portable_kernels(); }
}  // namespace regard

#endif
