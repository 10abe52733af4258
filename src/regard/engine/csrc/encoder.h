// The encoder over sentences of any lengths, one after the other, without padding.
#pragma once

#include <cstdint>
#include <vector>

#include "cache.h"
#include "layers.h"

namespace regard {

using Ids = std::vector<std::int32_t>;

// The keys and values that the decoder's layers look for in each of the sources.
std::vector<Memory> encode(Work& work, const Model& model, const std::vector<const Ids*>& sources);

}  // namespace regard
