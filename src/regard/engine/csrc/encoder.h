// The encoder over sentences of any lengths, one after the other, without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache.h"
#include "layers.h"

namespace regard {

using Ids = std::vector<std::int32_t>;

// A source, and where the keys and values go that the decoder's layers look for in it.
struct Source {
  const Ids* ids;
  Cache* memory;
};

void encode(Work& work, const Model& model, std::span<const Source> sources);

}  // namespace regard
