// The encoder over sentences of any lengths, one after the other, without padding.
#pragma once

#include <cstdint>
#include <functional>
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

// `keep_on` is asked now and then, and may throw.
void encode(Work& work, const Model& model, std::span<const Source> sources,
            const std::function<void()>& keep_on);

}  // namespace regard
