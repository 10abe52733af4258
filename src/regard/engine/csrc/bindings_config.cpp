#include "bindings_config.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace {

template <class Value>
Value one_of(const py::dict& settings, const char* name,
             const std::vector<std::pair<const char*, Value>>& choices) {
  const auto given = settings[name].cast<std::string>();
  for (const auto& [word, value] : choices) {
    if (given == word) return value;
  }
  throw std::invalid_argument(std::string(name) + ": " + given + " is not known here");
}

}  // namespace

regard::ModelConfig config_of(const py::dict& settings) {
  using namespace regard;
  ModelConfig config;
  config.family = one_of<Family>(settings, "family",
                                 {{"translation", Family::translation},
                                  {"language", Family::language},
                                  {"encoding", Family::encoding}});
  const auto number = [&](const char* name) { return settings[name].cast<int>(); };
  const auto flag = [&](const char* name) { return settings[name].cast<bool>(); };
  config.source_vocabulary = number("source_vocabulary");
  config.target_vocabulary = number("target_vocabulary");
  config.d_model = number("d_model");
  config.num_heads = number("num_heads");
  config.num_kv_heads = number("num_kv_heads");
  config.d_k = number("d_k");
  config.d_v = number("d_v");
  config.d_ff = number("d_ff");
  config.encoder_layers = number("encoder_layers");
  config.decoder_layers = number("decoder_layers");
  config.attention_bias = flag("attention_bias");
  config.attention_output_bias = flag("attention_output_bias");
  config.feed_forward_bias = flag("feed_forward_bias");
  config.attention_scale = settings["attention_scale"].cast<double>();
  config.norm =
      one_of<NormKind>(settings, "norm", {{"layer", NormKind::layer}, {"rms", NormKind::rms}});
  config.norm_eps = settings["norm_eps"].cast<double>();
  config.norm_position = one_of<NormPosition>(
      settings, "norm_position", {{"post", NormPosition::post}, {"pre", NormPosition::pre}});
  config.feed_forward = one_of<FeedForwardKind>(settings, "feed_forward",
                                                {{"relu", FeedForwardKind::relu},
                                                 {"gelu", FeedForwardKind::gelu},
                                                 {"gelu_tanh", FeedForwardKind::gelu_tanh},
                                                 {"swish", FeedForwardKind::swish},
                                                 {"swiglu", FeedForwardKind::swiglu},
                                                 {"geglu", FeedForwardKind::geglu},
                                                 {"geglu_tanh", FeedForwardKind::geglu_tanh}});
  config.positions = one_of<PositionsKind>(settings, "positions",
                                           {{"none", PositionsKind::none},
                                            {"sinusoidal", PositionsKind::sinusoidal},
                                            {"learned", PositionsKind::learned},
                                            {"rotary", PositionsKind::rotary},
                                            {"alibi", PositionsKind::alibi},
                                            {"relative", PositionsKind::relative}});
  config.rotary_rates = settings["rotary_rates"].cast<std::vector<float>>();
  config.rotary_amplitude = settings["rotary_amplitude"].cast<float>();
  config.alibi_slopes = settings["alibi_slopes"].cast<std::vector<float>>();
  config.relative_buckets = number("relative_buckets");
  config.encoder_limits = settings["encoder_limits"].cast<std::vector<int>>();
  config.decoder_limits = settings["decoder_limits"].cast<std::vector<int>>();
  config.layout = one_of<Layout>(
      settings, "layout", {{"interleaved", Layout::interleaved}, {"halves", Layout::halves}});
  config.wavelengths = one_of<Wavelengths>(
      settings, "wavelengths", {{"paper", Wavelengths::paper}, {"full", Wavelengths::full}});
  config.max_positions = number("max_positions");
  config.tying = one_of<Tying>(
      settings, "tying",
      {{"none", Tying::none}, {"two_way", Tying::two_way}, {"three_way", Tying::three_way}});
  config.embedding_scale = flag("embedding_scale");
  config.embedding_norm = flag("embedding_norm");
  config.output_scale = flag("output_scale");
  config.output_bias = flag("output_bias");
  config.windows = settings["windows"].cast<std::vector<int>>();
  config.recurrent = settings["recurrent"].cast<std::vector<int>>();
  config.token_types = number("token_types");
  config.classes = number("classes");
  config.prediction_head = flag("prediction_head");
  config.pooler = flag("pooler");
  return config;
}

regard::Dtype dtype_of(const std::string& name) {
  if (name == "float32") return regard::Dtype::f32;
  if (name == "bfloat16") return regard::Dtype::bf16;
  if (name == "int8") return regard::Dtype::i8;
  if (name == "int4") return regard::Dtype::i4;
  throw std::invalid_argument("dtype: " + name + " is not known here");
}

regard::Weights weights_of(const py::dict& arrays) {
  using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
  regard::Weights weights;
  for (const auto& [key, value] : arrays) {
    const auto name = key.cast<std::string>();
    if (FloatArray::check_(value)) {
      const auto array = py::reinterpret_borrow<FloatArray>(value);
      weights[name] = {array.data(), {array.shape(), array.shape() + array.ndim()}};
    } else if (Bytes::check_(value)) {
      const auto bytes = py::reinterpret_borrow<Bytes>(value);
      weights.sections[name] = {reinterpret_cast<const std::byte*>(bytes.data()),
                                static_cast<std::size_t>(bytes.size())};
    } else {
      throw std::invalid_argument("weight " + name + " is neither float32 nor bytes in a row");
    }
  }
  weights.packed = weights.arrays.empty();
  if (!weights.packed && !weights.sections.empty()) {
    throw std::invalid_argument("weights are packed, or they are not");
  }
  return weights;
}
