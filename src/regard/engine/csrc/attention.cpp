#include "attention.h"

#include <algorithm>

namespace regard {

namespace {

// One row's queries over `count` places of a layer: those in `index`, or the first ones. With
// `places` the query stands at the last of them, and they are positions in order. To `mean` (may be
// null) is added what each place weighs, over the number of heads.
void all_heads(const Model& model, const float* queries, const Cache& cache, int layer,
               const std::int32_t* index, int count, const Places* places, Buffer& scores,
               float* context, float* mean = nullptr) {
  const ModelConfig& config = model.config;
  const int sharing = config.num_heads / config.num_kv_heads;
  float* work = scores.room(static_cast<std::size_t>(count));
  for (int head = 0; head < config.num_heads; ++head) {
    const int shared = head / sharing;
    const RowsAt keys{cache.keys(layer, shared), static_cast<std::size_t>(config.d_k), index};
    const RowsAt values{cache.values(layer, shared), static_cast<std::size_t>(config.d_v), index};
    attend(queries + head * config.d_k, keys, values, count, config.d_k, config.d_v,
           model.attention_scale, work, context + head * config.d_v,
           places == nullptr ? nullptr : places->bias(head, count - 1));
    if (mean != nullptr) axpy(1.0f / static_cast<float>(config.num_heads), work, mean, count);
  }
}

}  // namespace

void encoder_attention(const Model& model, const float* projected, std::size_t begin,
                       std::size_t end, int head, Buffer& scores, float* context) {
  const ModelConfig& config = model.config;
  const std::size_t stride = static_cast<std::size_t>(config.input_width());
  const std::size_t out_stride = static_cast<std::size_t>(config.context_width());
  const int shared = head / (config.num_heads / config.num_kv_heads);
  // Keys and values side by side: far apart they fall on few lines of the cache, and push out one
  // another while query after query reads them.
  const std::size_t d_k = static_cast<std::size_t>(config.d_k);
  const std::size_t d_v = static_cast<std::size_t>(config.d_v);
  float* work = scores.room((end - begin) * (1 + d_k + d_v));
  float* near_keys = work + (end - begin);
  float* near_values = near_keys + (end - begin) * d_k;
  const float* key = projected + begin * stride + config.query_width() + shared * config.d_k;
  const float* value = projected + begin * stride + config.query_width() + config.key_width() +
                       shared * config.d_v;
  for (std::size_t row = 0; row < end - begin; ++row) {
    std::copy_n(key + row * stride, d_k, near_keys + row * d_k);
    std::copy_n(value + row * stride, d_v, near_values + row * d_v);
  }
  const RowsAt keys{near_keys, d_k};
  const RowsAt values{near_values, d_v};
  const int count = static_cast<int>(end - begin);
  for (std::size_t row = begin; row < end; ++row) {
    attend(projected + row * stride + head * config.d_k, keys, values, count, config.d_k,
           config.d_v, model.attention_scale, work,
           context + row * out_stride + head * config.d_v,
           model.source_places.bias(head, static_cast<int>(row - begin)));
  }
}

void past_attention(const Model& model, int layer, const LiveRow& row, const float* queries,
                    Buffer& scores, float* context) {
  all_heads(model, queries, *row.past, layer, row.places, row.length, &model.target_places, scores,
            context);
}

void memory_attention(const Model& model, int layer, const LiveRow& row, const float* queries,
                      Buffer& scores, float* context) {
  if (row.memory_length == 0) {
    std::fill(context, context + model.config.context_width(), 0.0f);
    return;
  }
  float* mean = layer + 1 == model.config.decoder_layers ? row.attention : nullptr;
  if (mean != nullptr) std::fill(mean, mean + row.memory_length, 0.0f);
  all_heads(model, queries, *row.memory, layer, nullptr, row.memory_length, nullptr, scores,
            context, mean);
}

}  // namespace regard
