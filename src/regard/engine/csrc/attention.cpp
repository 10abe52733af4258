#include "attention.h"

#include <algorithm>

namespace regard {

namespace {

// One head's keys and values at `count` places of a layer: those in `index`, or the first ones.
Attended places_of(const Model& model, const Cache& cache, int layer, int head,
                   const std::int32_t* index, int count) {
  const ModelConfig& config = model.config;
  const int shared = head / (config.num_heads / config.num_kv_heads);
  return {cache.kept(),
          cache.keys(layer, shared, index),
          cache.values(layer, shared, index),
          count,
          config.d_k,
          config.d_v,
          model.attention_scale};
}

// What is asked for ahead of one query at most, of keys and of values: half of the nearest cache.
// Longer rows the processor follows by itself.
constexpr std::size_t kAsked = 16 << 10;

// Asks for rows that are read next, so that they are near by then; those that `known` names at the
// same places are.
void ask_for(const RowsAt& rows, int count, const std::int32_t* known, int known_count) {
  const int most = std::min(count, static_cast<int>(kAsked / rows.stride));
  for (int j = 0; j < most; ++j) {
    const std::int32_t place = rows.index == nullptr ? j : rows.index[j];
    if (j < known_count && place == known[j]) continue;
    const std::byte* row = rows.base + static_cast<std::size_t>(place) * rows.stride;
    for (std::size_t line = 0; line < rows.stride; line += kLine) __builtin_prefetch(row + line);
  }
  asm volatile("");  // GCC 12 leaves out calls of a function that does nothing but this
}

void ask_for(const Attended& at, const std::int32_t* known = nullptr, int known_count = 0) {
  ask_for(at.keys, at.count, known, known_count);
  ask_for(at.values, at.count, known, known_count);
}

// How many of the first rows look at what the first one looks at.
std::size_t company(std::span<const LiveRow> rows) {
  std::size_t count = 1;
  while (count < rows.size() && rows[count].memory == rows[0].memory) ++count;
  return count;
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
  const std::size_t rows = end - begin;
  const int count = static_cast<int>(rows);
  const std::size_t key_bytes = kept_bytes(Dtype::f32, config.d_k);
  const std::size_t value_bytes = kept_bytes(Dtype::f32, config.d_v);
  const std::size_t near = rows * (key_bytes + value_bytes) / sizeof(float);
  float* work = scores.room(near + attend_room(count, config.d_k));
  std::byte* near_keys = reinterpret_cast<std::byte*>(work);
  std::byte* near_values = near_keys + rows * key_bytes;
  work += near;
  const float* key = projected + begin * stride + config.query_width() + shared * config.d_k;
  const float* value = projected + begin * stride + config.query_width() + config.key_width() +
                       shared * config.d_v;
  for (std::size_t row = 0; row < rows; ++row) {
    keep(Dtype::f32, key + row * stride, config.d_k, near_keys + row * key_bytes, nullptr);
    keep(Dtype::f32, value + row * stride, config.d_v, near_values + row * value_bytes,
         nullptr);
  }
  const Attended at{Dtype::f32,
                    {near_keys, key_bytes, nullptr},
                    {near_values, value_bytes, nullptr},
                    count,
                    config.d_k,
                    config.d_v,
                    model.attention_scale};
  for (std::size_t row = begin; row < end; ++row) {
    attend(at, projected + row * stride + head * config.d_k,
           model.source_places.bias(head, static_cast<int>(row - begin)), work,
           context + row * out_stride + head * config.d_v);
  }
}

// Head after head, and a head's queries one after the other: what they look at is then in the
// nearest cache. What the next one looks at is asked for before: it comes from a far cache or from
// memory, in pieces too short for the processor to see where they lead.
void past_attention(const Model& model, int layer, std::span<const LiveRow> rows,
                    const float* queries, std::size_t stride, Buffer& scores, float* context) {
  const ModelConfig& config = model.config;
  const std::size_t out_stride = static_cast<std::size_t>(config.context_width());
  const int window = config.windows[static_cast<std::size_t>(layer)];
  const int shared_by = config.num_heads / config.num_kv_heads;
  const auto first_of = [&](const LiveRow& row) {
    return window > 0 ? std::max(row.length - window, 0) : 0;
  };
  const auto looked_at = [&](const LiveRow& row, int head) {
    const int first = first_of(row);
    return places_of(model, *row.past, layer, head, row.places + first, row.length - first);
  };
  while (!rows.empty()) {
    const std::size_t count = company(rows);
    const auto ask_for_next = [&](int head, std::size_t number) {
      if (number + 1 < count) {
        if (head % shared_by != 0) return;  // the head before has read it
        const LiveRow& row = rows[number];
        const LiveRow& next = rows[number + 1];
        const int first = first_of(next);
        ask_for(looked_at(next, head), row.places + first,
                next.past == row.past ? row.length - first : 0);
      } else if (head + 1 < config.num_heads) {
        if ((head + 1) % shared_by == 0) ask_for(looked_at(rows[0], head + 1));
      } else if (count < rows.size()) {
        ask_for(looked_at(rows[count], 0));
      }
    };
    for (int head = 0; head < config.num_heads; ++head) {
      for (std::size_t number = 0; number < count; ++number) {
        const LiveRow& row = rows[number];
        const Attended at = looked_at(row, head);
        ask_for_next(head, number);
        const float* bias = model.target_places.bias(head, row.length - 1);
        attend(at, queries + number * stride + head * config.d_k,
               bias == nullptr ? nullptr : bias + first_of(row),
               scores.room(attend_room(at.count, config.d_k)),
               context + number * out_stride + head * config.d_v);
      }
    }
    rows = rows.subspan(count);
    queries += count * stride;
    context += count * out_stride;
  }
}

void memory_attention(const Model& model, int layer, std::span<const LiveRow> rows,
                      const float* queries, std::size_t stride, Buffer& scores, float* context) {
  const ModelConfig& config = model.config;
  const std::size_t out_stride = static_cast<std::size_t>(config.context_width());
  const float share = 1.0f / static_cast<float>(config.num_heads);
  const bool last = layer + 1 == config.decoder_layers;
  const auto looked_at = [&](const LiveRow& row, int head) {
    return places_of(model, *row.memory, layer, head, nullptr, row.memory_length);
  };
  while (!rows.empty()) {
    const std::size_t count = company(rows);
    const int length = rows[0].memory_length;
    if (length == 0) std::fill_n(context, count * out_stride, 0.0f);
    for (int head = 0; length > 0 && head < config.num_heads; ++head) {
      const Attended at = looked_at(rows[0], head);
      if (head + 1 < config.num_heads) {
        ask_for(looked_at(rows[0], head + 1));
      } else if (count < rows.size()) {
        ask_for(looked_at(rows[count], 0));
      }
      float* work = scores.room(attend_room(length, config.d_k));
      for (std::size_t number = 0; number < count; ++number) {
        attend(at, queries + number * stride + head * config.d_k, nullptr, work,
               context + number * out_stride + head * config.d_v);
        float* mean = last ? rows[number].attention : nullptr;
        if (mean == nullptr) continue;
        if (head == 0) std::fill_n(mean, length, 0.0f);
        axpy(share, work, mean, length);
      }
    }
    rows = rows.subspan(count);
    queries += count * stride;
    context += count * out_stride;
  }
}

}  // namespace regard
