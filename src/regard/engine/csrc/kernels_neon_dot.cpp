// 8-bit weights with NEON's dot products, which sum four products of bytes in 32 bits at once.
#include "target.h"

#ifdef REGARD_ARM

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

namespace regard {

namespace {

#include "neon.h"
#include "vector_linear.h"

struct DotKernel : NeonBytes {
  static Sum more(Value x, Weight w, Sum sum) {
    return {vdotq_s32(sum.low, w.low, x.x), vdotq_s32(sum.high, w.high, x.x)};
  }
};

}  // namespace

LinearKernel neon_dot_i8() { return Tiles<Neon, DotKernel, 6, 2>::apply; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

#include "kernel_table.h"

namespace regard {
LinearKernel neon_dot_i8() { return portable_kernels().i8; }
}  // namespace regard

#endif
