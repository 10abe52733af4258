// What a model is made of: the part of a TransformerConfig that says what is computed.
#pragma once

#include <vector>

namespace regard {

enum class Family { translation, language, encoding };
enum class NormKind { layer, rms };
enum class NormPosition { post, pre };
enum class FeedForwardKind { relu, gelu, gelu_tanh, swish, swiglu, geglu, geglu_tanh };
enum class PositionsKind { none, sinusoidal, learned, rotary, alibi, relative };
enum class Layout { interleaved, halves };
enum class Wavelengths { paper, full };
enum class Tying { none, two_way, three_way };

inline bool is_gated(FeedForwardKind kind) { return kind >= FeedForwardKind::swiglu; }

// All sizes resolved; `attention_scale` 0 means 1 / sqrt(d_k).
// Language models have a decoder alone, and encoders an encoder.
struct ModelConfig {
  Family family = Family::translation;
  int source_vocabulary = 0;
  int target_vocabulary = 0;
  int d_model = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int d_k = 0;
  int d_v = 0;
  int d_ff = 0;
  int encoder_layers = 0;
  int decoder_layers = 0;
  bool attention_bias = true;
  bool attention_output_bias = true;
  bool feed_forward_bias = true;
  double attention_scale = 0;
  NormKind norm = NormKind::layer;
  double norm_eps = 1e-5;
  NormPosition norm_position = NormPosition::post;
  FeedForwardKind feed_forward = FeedForwardKind::relu;
  PositionsKind positions = PositionsKind::sinusoidal;
  Layout layout = Layout::interleaved;
  Wavelengths wavelengths = Wavelengths::paper;
  int max_positions = 0;  // of learned positions; else unused
  std::vector<float> rotary_rates;  // radians from a position to the next, one a turned pair
  float rotary_amplitude = 1;
  std::vector<float> alibi_slopes;  // one a head
  int relative_buckets = 0;
  // Of relative positions: the least distance of each bucket of far ones but the first.
  std::vector<int> encoder_limits;
  std::vector<int> decoder_limits;
  Tying tying = Tying::three_way;
  bool embedding_scale = true;
  bool embedding_norm = false;
  bool output_scale = false;
  bool output_bias = false;
  // Of the decoder's layers, one each: how many tokens they look back, 0 being all; and which have
  // a recurrence (1) in the place of self-attention (0).
  std::vector<int> windows;
  std::vector<int> recurrent;
  // Of an encoder.
  int token_types = 0;
  int classes = 0;
  bool prediction_head = false;
  bool pooler = false;

  int query_width() const { return num_heads * d_k; }
  int key_width() const { return num_kv_heads * d_k; }
  int value_width() const { return num_kv_heads * d_v; }
  // One row of keys and values side by side.
  int memory_width() const { return key_width() + value_width(); }
  int input_width() const { return query_width() + memory_width(); }
  int context_width() const { return num_heads * d_v; }
};

// Throws std::invalid_argument when the sizes make no sense together.
void check(const ModelConfig& config);

}  // namespace regard
