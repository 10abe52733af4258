// The decoder: one more token for every live hypothesis.
#pragma once

#include <vector>

#include "attention.h"
#include "layers.h"

namespace regard {

// The hidden states that predict what follows each row, one after the other, as the projection
// wants them. They stay until work.hidden is used again.
const float* decode(Work& work, const Model& model, const std::vector<LiveRow>& rows);

}  // namespace regard
