// What the decoder remembers of one sentence: keys and values of its source and of its past.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "buffer.h"

namespace regard {

// Keys and values of the encoder's output, one row a source token, for every layer; shared by
// all hypotheses.
struct Memory {
  int length = 0;
  std::vector<Buffer> layers;
};

// Keys and values of what was generated. At every position each hypothesis of the beam has a
// place, number position * beam + slot; a hypothesis names the places that it came by, so nothing
// moves when hypotheses are kept, dropped or doubled.
class Past {
 public:
  Past(int layers, int beam, int width)
      : beam_(beam), width_(static_cast<std::size_t>(width)),
        layers_(static_cast<std::size_t>(layers)) {}

  int place(int position, int slot) const { return position * beam_ + slot; }

  // Makes room for that many positions.
  void reach(int positions) {
    if (positions <= capacity_) return;
    const int capacity = std::max({positions, 2 * capacity_, 16});
    const std::size_t row = static_cast<std::size_t>(beam_) * width_;
    for (Buffer& layer : layers_) {
      Buffer grown;
      float* data = grown.room(static_cast<std::size_t>(capacity) * row);
      const float* before = layer.data();
      std::copy(before, before + static_cast<std::size_t>(capacity_) * row, data);
      layer = std::move(grown);
    }
    capacity_ = capacity;
  }

  float* layer(int number) { return layers_[static_cast<std::size_t>(number)].data(); }
  float* at(int number, int place) {
    return layer(number) + static_cast<std::size_t>(place) * width_;
  }

 private:
  int beam_;
  std::size_t width_;
  int capacity_ = 0;
  std::vector<Buffer> layers_;
};

}  // namespace regard
