#include "encoder.h"

#include <algorithm>
#include <atomic>

#include "attention.h"

namespace regard {

namespace {

// The first row of each sentence, and at last the number of rows.
std::vector<std::size_t> offsets_of(const std::vector<const Ids*>& sources) {
  std::vector<std::size_t> offsets{0};
  for (const Ids* source : sources) offsets.push_back(offsets.back() + source->size());
  return offsets;
}

void attend_to_itself(Work& work, const Model& model, const SelfAttention& layer, const float* x,
                      const std::vector<std::size_t>& offsets, float* y) {
  const ModelConfig& config = model.config;
  const std::size_t rows = offsets.back();
  float* projected =
      work.projected.room(rows * static_cast<std::size_t>(config.input_width()));
  float* context = work.context.room(rows * static_cast<std::size_t>(config.context_width()));
  project(work, layer.input, x, rows, projected);
  const int sentences = static_cast<int>(offsets.size()) - 1;
  std::atomic<int> next{0};
  work.team.run([&](int share) {
    Buffer& scores = work.scores[static_cast<std::size_t>(share)];
    for (;;) {
      const int unit = next.fetch_add(1, std::memory_order_relaxed);
      if (unit >= sentences * config.num_heads) return;
      const std::size_t sentence = static_cast<std::size_t>(unit / config.num_heads);
      encoder_attention(model, projected, offsets[sentence], offsets[sentence + 1],
                        unit % config.num_heads, scores, context);
    }
  });
  project(work, layer.output, context, rows, y);
}

}  // namespace

std::vector<Memory> encode(Work& work, const Model& model,
                           const std::vector<const Ids*>& sources) {
  const ModelConfig& config = model.config;
  const std::vector<std::size_t> offsets = offsets_of(sources);
  const std::size_t rows = offsets.back();
  const std::size_t width = static_cast<std::size_t>(config.d_model);
  Buffer hidden;
  float* x = hidden.room(rows * width);
  for (std::size_t sentence = 0; sentence < sources.size(); ++sentence) {
    const Ids& ids = *sources[sentence];
    for (std::size_t place = 0; place < ids.size(); ++place) {
      embed(model, model.source, ids[place], static_cast<int>(place),
            x + (offsets[sentence] + place) * width);
    }
  }
  for (const EncoderLayer& layer : model.encoder) {
    residual(work, config, layer.self_attention.norm, x, rows, [&](const float* in, float* out) {
      attend_to_itself(work, model, layer.self_attention, in, offsets, out);
    });
    residual(work, config, layer.feed_forward.norm, x, rows, [&](const float* in, float* out) {
      feed_forward(work, config, layer.feed_forward, in, rows, out);
    });
  }
  if (config.norm_position == NormPosition::pre) {
    normalise(work, model.encoder_norm, x, x, rows, config.d_model);
  }

  std::vector<Memory> memories(sources.size());
  for (std::size_t sentence = 0; sentence < sources.size(); ++sentence) {
    memories[sentence].length = static_cast<int>(sources[sentence]->size());
    memories[sentence].layers.resize(model.decoder.size());
  }
  const std::size_t memory_width = static_cast<std::size_t>(config.memory_width());
  float* projected = work.projected.room(rows * memory_width);
  for (std::size_t number = 0; number < model.decoder.size(); ++number) {
    const Linear& linear = model.decoder[number].cross_attention.keys_values;
    if (number == 0) make_ready(work, linear.dtype(), x, rows, config.d_model);
    project_ready(work, linear, projected);
    for (std::size_t sentence = 0; sentence < sources.size(); ++sentence) {
      const float* first = projected + offsets[sentence] * memory_width;
      const float* last = projected + offsets[sentence + 1] * memory_width;
      float* kept = memories[sentence].layers[number].room(
          static_cast<std::size_t>(last - first));
      std::copy(first, last, kept);
    }
  }
  return memories;
}

}  // namespace regard
