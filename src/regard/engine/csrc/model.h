// The layers of an encoder-decoder with their packed weights.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config.h"
#include "kernels.h"
#include "positions.h"
#include "table.h"
#include "weights.h"

namespace regard {

struct Norm {
  NormKind kind = NormKind::layer;
  float eps = 0;
  std::vector<float> gain;
  std::vector<float> bias;  // of layer norms
};

// Where a layer is recurrent, `input` makes what it forgets and its values, and there is no output.
// `input` makes queries, keys and values at once where all come of one thing; attention to the
// encoder's output has `query` and `keys_values` instead.
struct SelfAttention {
  Linear input;
  Linear output;
  Norm norm;
};

struct CrossAttention {
  Linear query;
  Linear keys_values;
  Linear output;
  Norm norm;
};

struct FeedForward {
  Linear input;
  Linear output;
  Norm norm;
};

struct EncoderLayer {
  SelfAttention self_attention;
  FeedForward feed_forward;
};

struct DecoderLayer {
  SelfAttention self_attention;
  CrossAttention cross_attention;
  FeedForward feed_forward;
};

// What turns ids into vectors: a table, or the rows of the output projection where the two are one
// matrix. `norm` is empty where there is none.
struct Embedding {
  const Table* table = nullptr;
  const Linear* rows = nullptr;
  std::vector<float> type;       // of an encoder's first kind of segment, if it has kinds
  std::vector<float> positions;  // learned ones; sinusoids are in Model::sinusoids
  Norm norm;
};

class Builder;

struct Model {
  Model(const ModelConfig& config, const Weights& weights, Dtype dtype);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::size_t bytes() const;

  // Makes ready for that many positions, of either side.
  void reach(int positions);

  // The vector to add at a position, or null.
  const float* position(const Embedding& embedding, int position) const;

  ModelConfig config;
  float attention_scale = 0;
  float embedding_scale = 1;
  Embedding source;
  Embedding target;
  Places source_places;
  Places target_places;
  std::vector<EncoderLayer> encoder;
  std::vector<DecoderLayer> decoder;
  Norm encoder_norm;  // empty gains: none
  Norm decoder_norm;
  Linear projection;
  // Of an encoder: what comes before the projection, and what classifies.
  Linear prediction;
  Norm prediction_norm;
  Linear pooler;
  Linear classifier;

 private:
  void make_translation(Builder& builder);
  void make_language_model(Builder& builder);
  void make_encoder(Builder& builder);
  void embed_with(Builder& builder, Embedding& embedding, Table& table, const std::string& name,
                  int vocabulary, bool tied);

  Table source_table_;
  Table target_table_;
  std::vector<float> sinusoids_;
};

}  // namespace regard
