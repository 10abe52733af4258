// The simpler simple recurrent unit in the place of a decoder layer's self-attention.
#pragma once

#include <vector>

#include "attention.h"
#include "layers.h"

namespace regard {

// One more token of every row in a recurrent layer of that number. The rows of a text that come
// in one pass come in its order. Source: Kim et al. 2019, WNGT, section 3.1.
void recur(Work& work, const Model& model, int number, const std::vector<LiveRow>& rows,
           const float* x, float* y);

}  // namespace regard
