#include "attention.h"

#include <algorithm>

namespace regard {

namespace {

// `keys_values` are rows of keys of all heads, then values of all heads, `width` apart.
void all_heads(const Model& model, const float* queries, const RowsAt& keys_values, int count,
               Buffer& scores, float* context) {
  const ModelConfig& config = model.config;
  const int sharing = config.num_heads / config.num_kv_heads;
  float* work = scores.room(static_cast<std::size_t>(count));
  for (int head = 0; head < config.num_heads; ++head) {
    const int shared = head / sharing;
    RowsAt keys = keys_values;
    keys.base += shared * config.d_k;
    RowsAt values = keys_values;
    values.base += config.key_width() + shared * config.d_v;
    attend(queries + head * config.d_k, keys, values, count, config.d_k, config.d_v,
           model.attention_scale, work, context + head * config.d_v);
  }
}

}  // namespace

void encoder_attention(const Model& model, const float* projected, std::size_t begin,
                       std::size_t end, int head, Buffer& scores, float* context) {
  const ModelConfig& config = model.config;
  const std::size_t stride = static_cast<std::size_t>(config.input_width());
  const std::size_t out_stride = static_cast<std::size_t>(config.context_width());
  const int shared = head / (config.num_heads / config.num_kv_heads);
  const float* first = projected + begin * stride;
  const RowsAt keys{first + config.query_width() + shared * config.d_k, stride};
  const RowsAt values{
      first + config.query_width() + config.key_width() + shared * config.d_v, stride};
  const int count = static_cast<int>(end - begin);
  float* work = scores.room(static_cast<std::size_t>(count));
  for (std::size_t row = begin; row < end; ++row) {
    attend(projected + row * stride + head * config.d_k, keys, values, count, config.d_k,
           config.d_v, model.attention_scale, work,
           context + row * out_stride + head * config.d_v);
  }
}

void past_attention(const Model& model, int layer, const LiveRow& row, const float* queries,
                    Buffer& scores, float* context) {
  const RowsAt rows{row.past->layer(layer),
                    static_cast<std::size_t>(model.config.memory_width()), row.places};
  all_heads(model, queries, rows, row.length, scores, context);
}

void memory_attention(const Model& model, int layer, const LiveRow& row, const float* queries,
                      Buffer& scores, float* context) {
  if (row.memory->length == 0) {
    std::fill(context, context + model.config.context_width(), 0.0f);
    return;
  }
  const RowsAt rows{row.memory->layers[static_cast<std::size_t>(layer)].data(),
                    static_cast<std::size_t>(model.config.memory_width())};
  all_heads(model, queries, rows, row.memory->length, scores, context);
}

}  // namespace regard
