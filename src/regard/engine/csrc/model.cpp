#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace regard {

// Makes the parts of a model out of what a Reader reads.
class Builder {
 public:
  Builder(const ModelConfig& config, const Weights& weights, Dtype dtype)
      : config_(config), reader_(weights), dtype_(dtype) {}

  Reader& reader() { return reader_; }

  Norm norm(const std::string& name) {
    Norm norm;
    norm.kind = config_.norm;
    norm.eps = static_cast<float>(config_.norm_eps);
    norm.gain = reader_.copy(name + ".weight", {config_.d_model});
    if (config_.norm == NormKind::layer) {
      norm.bias = reader_.copy(name + ".bias", {config_.d_model});
    }
    return norm;
  }

  // What a decoder's layer looks back with.
  SelfAttention look_back(const std::string& layer, int number) {
    const std::string name = layer + ".self_attention";
    if (config_.recurrent[static_cast<std::size_t>(number)] == 0) return self_attention(name);
    const int width = config_.d_model;
    std::vector<float> weight = reader_.copy(name + ".forget.weight", {width, width});
    const float* values = reader_.read(name + ".value.weight", {width, width});
    weight.insert(weight.end(), values, values + weight.size());
    std::vector<float> bias = reader_.copy(name + ".forget.bias", {width});
    bias.resize(2 * static_cast<std::size_t>(width));
    return {Linear::pack(weight.data(), bias.data(), 2 * width, width, dtype_), {},
            norm(name + "_norm")};
  }

  SelfAttention self_attention(const std::string& name) {
    return {linear(name + ".input", config_.input_width(), config_.d_model, config_.attention_bias),
            output(name), norm(name + "_norm")};
  }

  CrossAttention cross_attention(const std::string& name) {
    const int width = config_.input_width();
    const int queries = config_.query_width();
    Matrix matrix{name + ".input.weight", config_.attention_bias ? name + ".input.bias" : "", 0,
                  width};
    Linear query = reader_.linear(matrix, queries, config_.d_model, dtype_);
    matrix.first = queries;
    return {std::move(query), reader_.linear(matrix, width - queries, config_.d_model, dtype_),
            output(name), norm(name + "_norm")};
  }

  FeedForward feed_forward(const std::string& name) {
    const int inner = is_gated(config_.feed_forward) ? 2 * config_.d_ff : config_.d_ff;
    const bool bias = config_.feed_forward_bias;
    return {linear(name + ".input", inner, config_.d_model, bias),
            linear(name + ".output", config_.d_model, config_.d_ff, bias), norm(name + "_norm")};
  }

  EncoderLayer encoder_layer(const std::string& name) {
    return {self_attention(name + ".self_attention"), feed_forward(name + ".feed_forward")};
  }

  Linear linear(const std::string& name, int out, int in, bool with_bias) {
    return linear(name, out, in, with_bias, dtype_);
  }

  Linear linear(const std::string& name, int out, int in, bool with_bias, Dtype dtype) {
    return reader_.linear({name + ".weight", with_bias ? name + ".bias" : "", 0, 0}, out, in,
                          dtype);
  }

  // The output projection: a matrix of that name with a bias of another, or none.
  Linear projection(const std::string& name, int vocabulary, const char* bias) {
    return reader_.linear({name, bias == nullptr ? "" : bias, 0, 0}, vocabulary, config_.d_model,
                          dtype_);
  }

  Dtype dtype() const { return dtype_; }

  Table table(const std::string& name, int vocabulary) {
    return reader_.table(name, vocabulary, config_.d_model, dtype_);
  }

  // Positions of a stack whose weights, if there are any, have that name.
  Places positions(const std::string& name, bool bidirectional, Embedding& embedding) {
    const float* biases = nullptr;
    if (config_.positions == PositionsKind::learned) {
      embedding.positions = reader_.copy(name, {config_.max_positions, config_.d_model});
    } else if (config_.positions == PositionsKind::relative) {
      biases = reader_.read(name, {config_.relative_buckets, config_.num_heads});
    }
    return Places(config_, bidirectional, biases);
  }

 private:
  Linear output(const std::string& name) {
    return linear(name + ".output", config_.d_model, config_.context_width(),
                  config_.attention_output_bias);
  }

  const ModelConfig& config_;
  Reader reader_;
  Dtype dtype_;
};

namespace {

// Rows [begin, end) of the sinusoids, appended.
void append_sinusoids(const ModelConfig& config, int begin, int end, std::vector<float>& table) {
  const int width = config.d_model;
  const int span = config.wavelengths == Wavelengths::paper ? width : std::max(width - 2, 1);
  table.resize(static_cast<std::size_t>(end) * width);
  for (int position = begin; position < end; ++position) {
    float* row = table.data() + static_cast<std::size_t>(position) * width;
    for (int pair = 0; pair < width / 2; ++pair) {
      const double angle = position * std::pow(10000.0, -2.0 * pair / span);
      const bool halves = config.layout == Layout::halves;
      row[halves ? pair : 2 * pair] = static_cast<float>(std::sin(angle));
      row[halves ? width / 2 + pair : 2 * pair + 1] = static_cast<float>(std::cos(angle));
    }
  }
}

}  // namespace

Model::Model(const ModelConfig& given, const Weights& weights, Dtype dtype) : config(given) {
  check(config);
  Builder builder(config, weights, dtype);
  attention_scale = static_cast<float>(config.attention_scale > 0
                                           ? config.attention_scale
                                           : 1.0 / std::sqrt(static_cast<double>(config.d_k)));
  if (config.embedding_scale) {
    embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.d_model)));
  }
  switch (config.family) {
    case Family::translation:
      make_translation(builder);
      break;
    case Family::language:
      make_language_model(builder);
      break;
    case Family::encoding:
      make_encoder(builder);
      break;
  }
  builder.reader().finish();
}

void Model::embed_with(Builder& builder, Embedding& embedding, Table& table,
                       const std::string& name, int vocabulary, bool tied) {
  // Four bits are too few for what all layers start from, so there a tied matrix is held twice.
  if (tied && builder.dtype() != Dtype::i4) {
    embedding.rows = &projection;
  } else {
    table = builder.table(name, vocabulary);
    embedding.table = &table;
  }
}

void Model::make_translation(Builder& builder) {
  const bool one_matrix = config.tying == Tying::three_way;
  const std::string target_name =
      one_matrix ? "source_embedding.weight" : "target_embedding.weight";
  embed_with(builder, source, source_table_, "source_embedding.weight", config.source_vocabulary,
             one_matrix);
  embed_with(builder, target, target_table_, target_name, config.target_vocabulary,
             config.tying != Tying::none);
  source_places = builder.positions("source_positions.weight", true, source);
  target_places = builder.positions("target_positions.weight", false, target);
  if (config.embedding_norm) {
    source.norm = builder.norm("source_embedding_norm");
    target.norm = builder.norm("target_embedding_norm");
  }
  projection =
      builder.projection(config.tying == Tying::none ? "projection.weight" : target_name,
                         config.target_vocabulary, config.output_bias ? "output_bias" : nullptr);
  for (int number = 0; number < config.encoder_layers; ++number) {
    encoder.push_back(builder.encoder_layer("encoder_layers." + std::to_string(number)));
  }
  for (int number = 0; number < config.decoder_layers; ++number) {
    const std::string name = "decoder_layers." + std::to_string(number);
    decoder.push_back({builder.look_back(name, number),
                       builder.cross_attention(name + ".cross_attention"),
                       builder.feed_forward(name + ".feed_forward")});
  }
  if (config.norm_position == NormPosition::pre) {
    encoder_norm = builder.norm("encoder_norm");
    decoder_norm = builder.norm("decoder_norm");
  }
}

void Model::make_language_model(Builder& builder) {
  embed_with(builder, target, target_table_, "embedding.weight", config.target_vocabulary,
             config.tying != Tying::none);
  target_places = builder.positions("positions.weight", false, target);
  if (config.embedding_norm) target.norm = builder.norm("embedding_norm");
  projection =
      builder.projection(config.tying == Tying::none ? "projection.weight" : "embedding.weight",
                         config.target_vocabulary, config.output_bias ? "output_bias" : nullptr);
  for (int number = 0; number < config.decoder_layers; ++number) {
    const std::string name = "layers." + std::to_string(number);
    decoder.push_back({builder.look_back(name, number),
                       {},
                       builder.feed_forward(name + ".feed_forward")});
  }
  if (config.norm_position == NormPosition::pre) decoder_norm = builder.norm("norm");
}

void Model::make_encoder(Builder& builder) {
  const int width = config.d_model;
  source_table_ = builder.table("embedding.weight", config.source_vocabulary);
  source.table = &source_table_;
  source_places = builder.positions("positions.weight", true, source);
  if (config.token_types > 0) {
    source.type = builder.reader().copy("type_embedding.weight", {config.token_types, width});
    source.type.resize(static_cast<std::size_t>(width));
  }
  if (config.embedding_norm) source.norm = builder.norm("embedding_norm");
  for (int number = 0; number < config.encoder_layers; ++number) {
    encoder.push_back(builder.encoder_layer("layers." + std::to_string(number)));
  }
  if (config.norm_position == NormPosition::pre) encoder_norm = builder.norm("norm");
  if (config.prediction_head) {
    prediction = builder.linear("prediction.dense", width, width, true);
    prediction_norm = builder.norm("prediction.norm");
    projection =
        builder.projection("embedding.weight", config.source_vocabulary, "prediction.bias");
  }
  // What comes last and is small stays as it is.
  if (config.pooler) pooler = builder.linear("pooler", width, width, true, Dtype::f32);
  if (config.classes > 0) {
    classifier = builder.linear("classifier", config.classes, width, true, Dtype::f32);
  }
}

std::size_t Model::bytes() const {
  std::size_t total = projection.bytes() + prediction.bytes() + pooler.bytes() + classifier.bytes();
  for (const EncoderLayer& layer : encoder) {
    total += layer.self_attention.input.bytes() + layer.self_attention.output.bytes() +
             layer.feed_forward.input.bytes() + layer.feed_forward.output.bytes();
  }
  for (const DecoderLayer& layer : decoder) {
    total += layer.self_attention.input.bytes() + layer.self_attention.output.bytes() +
             layer.cross_attention.query.bytes() + layer.cross_attention.keys_values.bytes() +
             layer.cross_attention.output.bytes() + layer.feed_forward.input.bytes() +
             layer.feed_forward.output.bytes();
  }
  return total + source_table_.bytes() + target_table_.bytes();
}

void Model::reach(int positions) {
  source_places.reach(positions);
  target_places.reach(positions);
  if (config.positions != PositionsKind::sinusoidal) return;
  const int present = static_cast<int>(sinusoids_.size() / static_cast<std::size_t>(config.d_model));
  if (positions > present) append_sinusoids(config, present, positions, sinusoids_);
}

const float* Model::position(const Embedding& embedding, int position) const {
  const std::size_t start = static_cast<std::size_t>(position) * config.d_model;
  switch (config.positions) {
    case PositionsKind::sinusoidal:
      return sinusoids_.data() + start;
    case PositionsKind::learned:
      return embedding.positions.data() + start;
    default:  // they are told inside attention, or not at all
      return nullptr;
  }
}

}  // namespace regard
