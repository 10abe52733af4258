// What recurrent layers remember of one sentence: a state for every place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "buffer.h"
#include "config.h"

namespace regard {

// A vector of d_model numbers for each place and layer of the decoder, float32 in every dtype: what
// is rounded there is rounded again at every step. Places are those of Cache. It takes no memory
// before it is used.
class States {
 public:
  // The pool must outlive it.
  States(Pool& pool, const ModelConfig& config) : pool_(&pool), config_(&config) {}
  ~States() { pool_->give(piece_); }
  States(const States&) = delete;
  States& operator=(const States&) = delete;

  // Makes room for so many places; what was put stays.
  void reach(int places) {
    if (places <= capacity_) return;
    States grown(*pool_, *config_);
    grown.capacity_ = std::max(places, 2 * capacity_);
    grown.piece_ = pool_->take(static_cast<std::size_t>(config_->decoder_layers) * grown.size());
    for (int layer = 0; layer < config_->decoder_layers && capacity_ > 0; ++layer) {
      std::copy_n(at(layer, 0), size(), grown.at(layer, 0));
    }
    std::swap(piece_, grown.piece_);
    std::swap(capacity_, grown.capacity_);
  }

  float* at(int layer, int place) {
    return piece_.data + static_cast<std::size_t>(layer) * size() +
           static_cast<std::size_t>(place) * static_cast<std::size_t>(config_->d_model);
  }

 private:
  std::size_t size() const {
    return static_cast<std::size_t>(capacity_) * static_cast<std::size_t>(config_->d_model);
  }

  Pool* pool_;
  const ModelConfig* config_;
  int capacity_ = 0;
  Piece piece_;
};

}  // namespace regard
