// Kernels for NEON, which every 64-bit ARM has; 8-bit weights by products of 16 bits.
#include "target.h"

#ifdef REGARD_ARM

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace regard {

namespace {

#include "neon.h"
#include "vector_linear.h"
#include "vector_rows.h"

// Eight columns. Both factors are within 127, so two products fit in 16 bits.
struct I8Kernel : NeonBytes {
  static Sum more(Value x, Weight w, Sum sum) {
    return {more(x.x, w.low, sum.low), more(x.x, w.high, sum.high)};
  }

 private:
  static int32x4_t more(int8x16_t x, int8x16_t w, int32x4_t sum) {
    const int16x8_t first = vmull_s8(vget_low_s8(x), vget_low_s8(w));
    const int16x8_t second = vmull_high_s8(x, w);
    return vpadalq_s16(sum, vpaddq_s16(first, second));
  }
};

struct Linears {
  static constexpr LinearKernel f32 = Tiles<Neon, F32Kernel<Neon>, 6, 2>::apply;
  static constexpr LinearKernel bf16 = Tiles<Neon, Bf16Kernel<Neon>, 4, 2>::apply;
  static constexpr LinearKernel i8 = Tiles<Neon, I8Kernel, 4, 2>::apply;
};

constexpr Kernels kAll = kernels_over<Neon, Linears>();

}  // namespace

const Kernels& neon_kernels() { return kAll; }

}  // namespace regard

#else

#include "kernel_table.h"

namespace regard {
const Kernels& neon_kernels() { return portable_kernels(); }
}  // namespace regard

#endif
