#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace regard {

namespace {

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

  SelfAttention self_attention(const std::string& name) {
    return {linear(name + ".input", config_.input_width(), config_.d_model, config_.attention_bias),
            output(name), norm(name + "_norm")};
  }

  CrossAttention cross_attention(const std::string& name) {
    const int width = config_.input_width();
    const int queries = config_.query_width();
    const float* weight = reader_.read(name + ".input.weight", {width, config_.d_model});
    const float* bias =
        config_.attention_bias ? reader_.read(name + ".input.bias", {width}) : nullptr;
    const std::size_t skipped = static_cast<std::size_t>(queries) * config_.d_model;
    return {Linear::pack(weight, bias, queries, config_.d_model, dtype_),
            Linear::pack(weight + skipped, bias ? bias + queries : nullptr, width - queries,
                         config_.d_model, dtype_),
            output(name), norm(name + "_norm")};
  }

  FeedForward feed_forward(const std::string& name) {
    const int inner = is_gated(config_.feed_forward) ? 2 * config_.d_ff : config_.d_ff;
    const bool bias = config_.feed_forward_bias;
    return {linear(name + ".input", inner, config_.d_model, bias),
            linear(name + ".output", config_.d_model, config_.d_ff, bias), norm(name + "_norm")};
  }

  Linear linear(const std::string& name, int out, int in, bool with_bias) {
    const float* weight = reader_.read(name + ".weight", {out, in});
    const float* bias = with_bias ? reader_.read(name + ".bias", {out}) : nullptr;
    return Linear::pack(weight, bias, out, in, dtype_);
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
  Reader& reader = builder.reader();
  const int width = config.d_model;

  attention_scale = static_cast<float>(config.attention_scale > 0
                                           ? config.attention_scale
                                           : 1.0 / std::sqrt(static_cast<double>(config.d_k)));
  if (config.embedding_scale) {
    embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(width)));
  }
  const char* target_name = config.tying == Tying::three_way ? "source_embedding.weight"
                                                              : "target_embedding.weight";
  const float* output_weight =
      config.tying == Tying::none
          ? reader.read("projection.weight", {config.target_vocabulary, width})
          : reader.read(target_name, {config.target_vocabulary, width});
  source_table_ = Table(reader.read("source_embedding.weight", {config.source_vocabulary, width}),
                        static_cast<std::size_t>(config.source_vocabulary), width, dtype);
  source.table = target.table = &source_table_;
  if (config.tying != Tying::three_way) {
    target_table_ = Table(reader.read(target_name, {config.target_vocabulary, width}),
                          static_cast<std::size_t>(config.target_vocabulary), width, dtype);
    target.table = &target_table_;
  }
  if (config.positions == PositionsKind::learned) {
    source.positions = reader.copy("source_positions.weight", {config.max_positions, width});
    target.positions = reader.copy("target_positions.weight", {config.max_positions, width});
  }
  const float* source_biases = nullptr;
  const float* target_biases = nullptr;
  if (config.positions == PositionsKind::relative) {
    const int buckets = config.relative_buckets;
    source_biases = reader.read("source_positions.weight", {buckets, config.num_heads});
    target_biases = reader.read("target_positions.weight", {buckets, config.num_heads});
  }
  source_places = Places(config, true, source_biases);
  target_places = Places(config, false, target_biases);
  if (config.embedding_norm) {
    source.norm = builder.norm("source_embedding_norm");
    target.norm = builder.norm("target_embedding_norm");
  }
  const float* output_bias =
      config.output_bias ? reader.read("output_bias", {config.target_vocabulary}) : nullptr;
  projection = Linear::pack(output_weight, output_bias, config.target_vocabulary, width, dtype);

  for (int number = 0; number < config.encoder_layers; ++number) {
    const std::string name = "encoder_layers." + std::to_string(number);
    encoder.push_back({builder.self_attention(name + ".self_attention"),
                       builder.feed_forward(name + ".feed_forward")});
  }
  for (int number = 0; number < config.decoder_layers; ++number) {
    const std::string name = "decoder_layers." + std::to_string(number);
    decoder.push_back({builder.self_attention(name + ".self_attention"),
                       builder.cross_attention(name + ".cross_attention"),
                       builder.feed_forward(name + ".feed_forward")});
  }
  if (config.norm_position == NormPosition::pre) {
    encoder_norm = builder.norm("encoder_norm");
    decoder_norm = builder.norm("decoder_norm");
  }
  reader.finish();
}

std::size_t Model::bytes() const {
  std::size_t total = projection.bytes();
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
