// The kernels for AVX-512.
#include "table.h"
#include "target.h"

#ifdef REGARD_X86

#include <immintrin.h>

// Only what follows may use the instructions: what is included above stays for any processor.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

namespace regard {

namespace {

#define REGARD_WIDTH 16
#include "lanes.h"
#include "loss.h"
#include "residual.h"
#include "bias.h"
#include "product.h"
#include "attention.h"

constexpr Kernels kAll = {{LossOf<Full>::rows, LossOf<Half>::rows},
                          {ResidualOf<Full>::rows, ResidualOf<Half>::rows},
                          {ResidualOf<Full>::slopes, ResidualOf<Half>::slopes},
                          BiasOf::rows,
                          AttentionOf::rows,
                          AttentionOf::slopes};

}  // namespace

const Kernels& avx512_kernels() { return kAll; }

}  // namespace regard

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

namespace regard {
const Kernels& avx512_kernels() { return portable_kernels(); }
}  // namespace regard

#endif
