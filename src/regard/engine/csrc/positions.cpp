#include "positions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace regard {

Places::Places(const ModelConfig& config, bool bidirectional, const float* table)
    : width_(config.d_k), heads_(config.num_heads), layout_(config.layout),
      bidirectional_(bidirectional) {
  switch (config.positions) {
    case PositionsKind::rotary:
      rates_ = config.rotary_rates;
      pairs_ = static_cast<int>(rates_.size());
      amplitude_ = config.rotary_amplitude;
      break;
    case PositionsKind::alibi:
      biased_ = true;
      slopes_ = config.alibi_slopes;
      break;
    case PositionsKind::relative:
      biased_ = true;
      table_.assign(table, table + static_cast<std::size_t>(config.relative_buckets) *
                                       static_cast<std::size_t>(heads_));
      limits_ = bidirectional ? config.encoder_limits : config.decoder_limits;
      side_ = bidirectional ? config.relative_buckets / 2 : config.relative_buckets;
      break;
    default:
      break;
  }
}

float Places::bias_of(int head, int ahead) const {
  const int distance = std::abs(ahead);
  if (table_.empty()) return -slopes_[static_cast<std::size_t>(head)] * static_cast<float>(distance);
  int bucket = distance;
  if (const int exact = side_ / 2; distance >= exact) {
    const auto limit = std::upper_bound(limits_.begin(), limits_.end(), distance);
    bucket = exact + static_cast<int>(limit - limits_.begin());
  }
  if (ahead > 0) bucket += side_;
  return table_[static_cast<std::size_t>(bucket) * static_cast<std::size_t>(heads_) +
                static_cast<std::size_t>(head)];
}

void Places::reach(int positions) {
  if (positions <= reach_) return;
  if (turns()) {
    const std::size_t pairs = static_cast<std::size_t>(pairs_);
    phases_.resize(static_cast<std::size_t>(positions) * 2 * pairs);
    for (int position = reach_; position < positions; ++position) {
      float* row = phases_.data() + static_cast<std::size_t>(position) * 2 * pairs;
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        const double angle = static_cast<float>(position) * rates_[pair];
        row[pair] = static_cast<float>(std::cos(angle)) * amplitude_;
        row[pairs + pair] = static_cast<float>(std::sin(angle)) * amplitude_;
      }
    }
  }
  if (biased_) {
    const int last = bidirectional_ ? positions - 1 : 0;
    std::vector<float> grown;
    grown.reserve(static_cast<std::size_t>(heads_) *
                  (static_cast<std::size_t>(positions) + static_cast<std::size_t>(last)));
    for (int head = 0; head < heads_; ++head) {
      for (int ahead = 1 - positions; ahead <= last; ++ahead) grown.push_back(bias_of(head, ahead));
    }
    biases_ = std::move(grown);
  }
  reach_ = positions;
}

void Places::turn(float* row, int heads, int position) const {
  const float* cosines = phases_.data() + static_cast<std::size_t>(position) * 2 *
                                              static_cast<std::size_t>(pairs_);
  const float* sines = cosines + pairs_;
  // The second of a pair stands so far behind the first, and the next pair so far.
  const int apart = layout_ == Layout::halves ? pairs_ : 1;
  const int next = layout_ == Layout::halves ? 1 : 2;
  for (int head = 0; head < heads; ++head, row += width_) {
    for (int pair = 0; pair < pairs_; ++pair) {
      float* at = row + pair * next;
      const float first = at[0];
      const float second = at[apart];
      at[0] = first * cosines[pair] - second * sines[pair];
      at[apart] = second * cosines[pair] + first * sines[pair];
    }
  }
}

const float* Places::bias(int head, int query) const {
  if (!biased_) return nullptr;
  const std::size_t span = static_cast<std::size_t>(reach_) +
                           (bidirectional_ ? static_cast<std::size_t>(reach_) - 1 : 0);
  return biases_.data() + static_cast<std::size_t>(head) * span +
         static_cast<std::size_t>(reach_ - 1 - query);
}

}  // namespace regard
