#include "config.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace regard {

namespace {

// Far above every model, far below where a product of two could overflow 64 bits.
constexpr int kLargest = 1 << 28;

void positive(const char* name, int value) {
  if (value < 1 || value > kLargest) {
    throw std::invalid_argument(std::string(name) + " = " + std::to_string(value) +
                                " is not between 1 and " + std::to_string(kLargest));
  }
}

// A width that is a product of two.
void fits(const char* name, std::int64_t width) {
  if (width > kLargest) {
    throw std::invalid_argument(std::string(name) + " = " + std::to_string(width) +
                                " is more than " + std::to_string(kLargest));
  }
}

// The limits of one side's buckets of distances.
void check_limits(const std::vector<int>& limits, int side) {
  if (limits.size() != static_cast<std::size_t>(side - side / 2 - 1) ||
      !std::is_sorted(limits.begin(), limits.end())) {
    throw std::invalid_argument("the limits of relative positions do not fit their buckets");
  }
}

void check_positions(const ModelConfig& config) {
  switch (config.positions) {
    case PositionsKind::none:
      break;
    case PositionsKind::sinusoidal:
      if (config.d_model % 2 != 0) {
        throw std::invalid_argument("sinusoidal positions need an even d_model");
      }
      break;
    case PositionsKind::learned:
      positive("max_positions", config.max_positions);
      break;
    case PositionsKind::rotary:
      if (config.rotary_rates.empty() ||
          config.rotary_rates.size() > static_cast<std::size_t>(config.d_k) / 2) {
        throw std::invalid_argument("rotary positions do not turn so many pairs of d_k dimensions");
      }
      break;
    case PositionsKind::alibi:
      if (config.alibi_slopes.size() != static_cast<std::size_t>(config.num_heads)) {
        throw std::invalid_argument("ALiBi needs one slope a head");
      }
      break;
    case PositionsKind::relative:
      positive("relative_buckets", config.relative_buckets);
      if (config.relative_buckets % 4 != 0) {
        throw std::invalid_argument("relative_buckets is not divisible by 4");
      }
      check_limits(config.encoder_limits, config.relative_buckets / 2);
      check_limits(config.decoder_limits, config.relative_buckets);
      break;
  }
}

}  // namespace

void check(const ModelConfig& config) {
  positive("source_vocabulary", config.source_vocabulary);
  positive("target_vocabulary", config.target_vocabulary);
  positive("d_model", config.d_model);
  positive("num_heads", config.num_heads);
  positive("num_kv_heads", config.num_kv_heads);
  positive("d_k", config.d_k);
  positive("d_v", config.d_v);
  positive("d_ff", config.d_ff);
  if (config.family != Family::language) positive("encoder_layers", config.encoder_layers);
  if (config.family != Family::encoding) positive("decoder_layers", config.decoder_layers);
  if (config.token_types < 0 || config.classes < 0 || config.token_types > kLargest ||
      config.classes > kLargest) {
    throw std::invalid_argument("token_types and classes must not be below 0");
  }
  const auto layers = static_cast<std::size_t>(config.decoder_layers);
  if (config.windows.size() != layers || config.recurrent.size() != layers ||
      std::any_of(config.windows.begin(), config.windows.end(), [](int each) { return each < 0; })) {
    throw std::invalid_argument("windows and recurrent need an entry for each decoder layer");
  }
  fits("num_heads * d_k", std::int64_t{config.num_heads} * config.d_k);
  fits("num_heads * d_v", std::int64_t{config.num_heads} * config.d_v);
  fits("2 * d_model", std::int64_t{2} * config.d_model);
  fits("2 * d_ff", std::int64_t{2} * config.d_ff);
  fits("the width of queries, keys and values",
       std::int64_t{config.num_heads} * config.d_k +
           std::int64_t{config.num_kv_heads} * (std::int64_t{config.d_k} + config.d_v));
  if (config.num_heads % config.num_kv_heads != 0) {
    throw std::invalid_argument("num_heads is not divisible by num_kv_heads");
  }
  if (config.tying == Tying::three_way && config.source_vocabulary != config.target_vocabulary) {
    throw std::invalid_argument("three-way tying needs vocabularies of one size");
  }
  check_positions(config);
  if (!(config.norm_eps > 0)) throw std::invalid_argument("norm_eps must be above 0");
  if (!(config.attention_scale >= 0)) {
    throw std::invalid_argument("attention_scale must not be below 0");
  }
}

}  // namespace regard
