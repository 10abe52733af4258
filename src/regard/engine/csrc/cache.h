// What the decoder remembers of one sentence: keys and values of its source and of its past.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "buffer.h"
#include "config.h"
#include "kernels.h"
#include "states.h"

namespace regard {

// Keys and values at numbered places, for every layer of the decoder. Those of one head lie one
// after the other, as attention reads them: [layer][head][keys, values, scales of keys, of values].
// They are held as the model's weights are: float32, int8 with a scale for each head and place, or,
// where four bits would not do, bfloat16.
//
// The source's places are its tokens, shared by all hypotheses. In the past each hypothesis of a
// beam has, at every position, the place position * beam + slot, and names the places that it came
// by; so nothing moves when hypotheses are kept, dropped or doubled.
class Cache {
 public:
  // The pool must outlive it.
  Cache(Pool& pool, const ModelConfig& config, Dtype weights)
      : pool_(&pool), config_(&config), kept_(weights == Dtype::i4 ? Dtype::bf16 : weights),
        key_bytes_(kept_bytes(kept_, config.d_k)), value_bytes_(kept_bytes(kept_, config.d_v)),
        states_(pool, config) {}
  ~Cache() { pool_->give(piece_); }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Makes room for so many places, and for as many again up to `most`; what was put stays.
  void reach(int places, int most = std::numeric_limits<int>::max()) {
    if (places <= capacity_) return;
    Cache grown(*pool_, *config_, kept_);
    grown.capacity_ = capacity_ == 0 ? places : std::max(places, std::min(2 * capacity_, most));
    const std::size_t bytes =
        static_cast<std::size_t>(config_->decoder_layers) * grown.layer_bytes();
    grown.piece_ = pool_->take((bytes + sizeof(float) - 1) / sizeof(float));
    if (capacity_ > 0) {
      for (int layer = 0; layer < config_->decoder_layers; ++layer) {
        for (int head = 0; head < config_->num_kv_heads; ++head) {
          std::copy_n(keys(layer, head), size(key_bytes_), grown.keys(layer, head));
          std::copy_n(values(layer, head), size(value_bytes_), grown.values(layer, head));
          if (scale_bytes() == 0) continue;
          std::copy_n(key_scales(layer, head), capacity_, grown.key_scales(layer, head));
          std::copy_n(value_scales(layer, head), capacity_, grown.value_scales(layer, head));
        }
      }
    }
    std::swap(piece_, grown.piece_);
    std::swap(capacity_, grown.capacity_);
  }

  Dtype kept() const { return kept_; }

  // Of the same places, for layers that have a state instead of keys and values.
  States& states() { return states_; }

  // The places that `index` names, or all in order.
  RowsAt keys(int layer, int head, const std::int32_t* index) const {
    Cache* self = const_cast<Cache*>(this);
    return {self->keys(layer, head), key_bytes_, self->key_scales(layer, head), index};
  }
  RowsAt values(int layer, int head, const std::int32_t* index) const {
    Cache* self = const_cast<Cache*>(this);
    return {self->values(layer, head), value_bytes_, self->value_scales(layer, head), index};
  }

  // `row` holds the keys of all heads, then the values of all heads.
  void put(int layer, int place, const float* row) {
    const std::size_t at = static_cast<std::size_t>(place);
    const int d_k = config_->d_k;
    const int d_v = config_->d_v;
    for (int head = 0; head < config_->num_kv_heads; ++head) {
      const bool scaled = scale_bytes() > 0;
      keep(kept_, row + head * d_k, d_k, keys(layer, head) + at * key_bytes_,
           scaled ? key_scales(layer, head) + at : nullptr);
      keep(kept_, row + config_->key_width() + head * d_v, d_v,
           values(layer, head) + at * value_bytes_,
           scaled ? value_scales(layer, head) + at : nullptr);
    }
  }

 private:
  std::size_t size(std::size_t row_bytes) const {
    return static_cast<std::size_t>(capacity_) * row_bytes;
  }
  std::size_t scale_bytes() const { return kept_ == Dtype::i8 ? sizeof(float) : 0; }
  std::size_t head_bytes() const { return size(key_bytes_ + value_bytes_ + 2 * scale_bytes()); }
  std::size_t layer_bytes() const {
    return static_cast<std::size_t>(config_->num_kv_heads) * head_bytes();
  }
  std::byte* keys(int layer, int head) {
    return reinterpret_cast<std::byte*>(piece_.data) +
           static_cast<std::size_t>(layer) * layer_bytes() +
           static_cast<std::size_t>(head) * head_bytes();
  }
  std::byte* values(int layer, int head) { return keys(layer, head) + size(key_bytes_); }
  // Null where there are none.
  float* key_scales(int layer, int head) {
    if (scale_bytes() == 0) return nullptr;
    return reinterpret_cast<float*>(values(layer, head) + size(value_bytes_));
  }
  float* value_scales(int layer, int head) {
    return scale_bytes() == 0 ? nullptr : key_scales(layer, head) + capacity_;
  }

  Pool* pool_;
  const ModelConfig* config_;
  Dtype kept_;
  std::size_t key_bytes_, value_bytes_;
  int capacity_ = 0;
  Piece piece_;
  States states_;
};

}  // namespace regard
