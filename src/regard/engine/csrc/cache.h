// What the decoder remembers of one sentence: keys and values of its source and of its past.
#pragma once

#include <algorithm>
#include <cstddef>

#include "buffer.h"
#include "config.h"

namespace regard {

// Keys and values at numbered places, for every layer of the decoder. Those of one head lie one
// after the other, as attention reads them: [layer][keys of each head, values of each head].
//
// The source's places are its tokens, shared by all hypotheses. In the past each hypothesis of a
// beam has, at every position, the place position * beam + slot, and names the places that it came
// by; so nothing moves when hypotheses are kept, dropped or doubled.
class Cache {
 public:
  // The pool must outlive it.
  Cache(Pool& pool, const ModelConfig& config) : pool_(&pool), config_(&config) {}
  ~Cache() { pool_->give(std::move(buffer_)); }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Makes room for so many places; what was put stays.
  void reach(int places) {
    if (places <= capacity_) return;
    Cache grown(*pool_, *config_);
    grown.capacity_ = capacity_ == 0 ? places : std::max(places, 2 * capacity_);
    grown.buffer_ = pool_->take(static_cast<std::size_t>(config_->decoder_layers) *
                                grown.layer_size());
    if (capacity_ > 0) {
      for (int layer = 0; layer < config_->decoder_layers; ++layer) {
        for (int head = 0; head < config_->num_kv_heads; ++head) {
          std::copy_n(keys(layer, head), size(config_->d_k), grown.keys(layer, head));
          std::copy_n(values(layer, head), size(config_->d_v), grown.values(layer, head));
        }
      }
    }
    std::swap(buffer_, grown.buffer_);
    std::swap(capacity_, grown.capacity_);
  }

  float* keys(int layer, int head) {
    return buffer_.data() + static_cast<std::size_t>(layer) * layer_size() +
           static_cast<std::size_t>(head) * size(config_->d_k);
  }
  const float* keys(int layer, int head) const { return const_cast<Cache*>(this)->keys(layer, head); }

  float* values(int layer, int head) {
    return buffer_.data() + static_cast<std::size_t>(layer) * layer_size() +
           size(config_->key_width()) + static_cast<std::size_t>(head) * size(config_->d_v);
  }
  const float* values(int layer, int head) const {
    return const_cast<Cache*>(this)->values(layer, head);
  }

  // `row` holds the keys of all heads, then the values of all heads.
  void put(int layer, int place, const float* row) {
    const std::size_t at = static_cast<std::size_t>(place);
    const int d_k = config_->d_k;
    const int d_v = config_->d_v;
    for (int head = 0; head < config_->num_kv_heads; ++head) {
      std::copy_n(row + head * d_k, d_k, keys(layer, head) + at * d_k);
      std::copy_n(row + config_->key_width() + head * d_v, d_v, values(layer, head) + at * d_v);
    }
  }

 private:
  std::size_t size(int width) const {
    return static_cast<std::size_t>(capacity_) * static_cast<std::size_t>(width);
  }
  std::size_t layer_size() const { return size(config_->memory_width()); }

  Pool* pool_;
  const ModelConfig* config_;
  int capacity_ = 0;
  Buffer buffer_;
};

}  // namespace regard
