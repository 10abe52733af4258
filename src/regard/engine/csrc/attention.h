// Attention of one head, over rows as the projections leave them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "buffer.h"
#include "cache.h"
#include "model.h"

namespace regard {

// A hypothesis at one step: what attention has to know of it.
struct LiveRow {
  const Cache* memory = nullptr;
  int memory_length = 0;
  Cache* past = nullptr;
  const std::int32_t* places = nullptr;  // in the past, this position's included
  int length = 0;                        // how many
  std::int32_t token = 0;                // the last one
  float* attention = nullptr;  // for the weights of the last layer's memory, the heads' mean
};

// Rows [begin, end) of `projected` (queries, keys and values of every head side by side) attend
// to one another in one head; the result goes to that head's part of `context`.
void encoder_attention(const Model& model, const float* projected, std::size_t begin,
                       std::size_t end, int head, Buffer& scores, float* context);

// The queries of some rows, all heads, over their past; those of a row are `stride` after those of
// the row before. Rows of one sentence lie side by side.
void past_attention(const Model& model, int layer, std::span<const LiveRow> rows,
                    const float* queries, std::size_t stride, Buffer& scores, float* context);

// The same over their sources.
void memory_attention(const Model& model, int layer, std::span<const LiveRow> rows,
                      const float* queries, std::size_t stride, Buffer& scores, float* context);

}  // namespace regard
