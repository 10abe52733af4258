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

// Rows that are worked on at once: together they stay near the cache.
inline constexpr std::size_t kEncoderRows = 256;

// The encoder's output for texts, one after the other; `offsets` becomes the first row of each, and
// at last the number of rows. It stays until work.hidden is used again.
const float* run_encoder(Work& work, const Model& model, std::span<const Ids* const> texts,
                         std::vector<std::size_t>& offsets);

// `keep_on` is asked now and then, and may throw.
void encode(Work& work, const Model& model, std::span<const Source> sources,
            const std::function<void()>& keep_on);

}  // namespace regard
