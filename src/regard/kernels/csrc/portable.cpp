// The kernels for any processor.
#include "table.h"

namespace regard {

namespace {

#define REGARD_WIDTH 4
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

const Kernels& portable_kernels() { return kAll; }

}  // namespace regard
