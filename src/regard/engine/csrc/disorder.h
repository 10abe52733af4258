// For a test that must fail: layers whose sums depend on how many rows there are.
#pragma once

#include <cstddef>

#include "kernels.h"

namespace regard {

// Whether layers are computed so from now on. Only tests turn it on, to see that their comparisons
// of bits would find an engine that a batch changes.
void set_disorder(bool on);
bool disorder();

// As `apply`, but slow, and summed from the input whose number is that of the rows.
void apply_in_disorder(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                       int begin, int end);

}  // namespace regard
