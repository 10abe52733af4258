#include "encoder.h"

#include <algorithm>
#include <atomic>

#include "attention.h"

namespace regard {

namespace {

// Calls part(row, sentence, place in it) for every row, on several threads.
template <class Part>
void each_row(Work& work, const std::vector<std::size_t>& offsets, std::size_t cost, Part&& part) {
  split_rows(work.team, offsets.back(), cost, [&](std::size_t begin, std::size_t end, int) {
    auto next = std::upper_bound(offsets.begin(), offsets.end(), begin);
    for (std::size_t row = begin; row < end; ++row) {
      while (*next <= row) ++next;
      part(row, static_cast<std::size_t>(next - offsets.begin()) - 1,
           static_cast<int>(row - *(next - 1)));
    }
  });
}

// Rotary positions: the queries and keys of every row.
void turn(Work& work, const Model& model, const std::vector<std::size_t>& offsets,
          float* projected) {
  if (!model.source_places.turns()) return;
  const ModelConfig& config = model.config;
  const std::size_t width = static_cast<std::size_t>(config.input_width());
  each_row(work, offsets, width, [&](std::size_t row, std::size_t, int place) {
    model.source_places.turn(projected + row * width, config.num_heads + config.num_kv_heads,
                             place);
  });
}

void attend_to_itself(Work& work, const Model& model, const SelfAttention& layer, const float* x,
                      const std::vector<std::size_t>& offsets, float* y) {
  const ModelConfig& config = model.config;
  const std::size_t rows = offsets.back();
  float* projected =
      work.projected.room(rows * static_cast<std::size_t>(config.input_width()));
  float* context = work.context.room(rows * static_cast<std::size_t>(config.context_width()));
  project(work, layer.input, x, rows, projected);
  turn(work, model, offsets, projected);
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

// What the decoder's layers look for in the encoder's output.
void remember(Work& work, const Model& model, std::span<const Source> sources,
              const std::vector<std::size_t>& offsets, const float* x) {
  const ModelConfig& config = model.config;
  const std::size_t rows = offsets.back();
  for (const Source& source : sources) source.memory->reach(static_cast<int>(source.ids->size()));
  const std::size_t memory_width = static_cast<std::size_t>(config.memory_width());
  float* projected = work.projected.room(rows * memory_width);
  make_ready(work, model.projection.dtype(), x, rows, config.d_model);
  for (int number = 0; number < config.decoder_layers; ++number) {
    project_ready(work, model.decoder[static_cast<std::size_t>(number)].cross_attention.keys_values,
                  projected);
    each_row(work, offsets, memory_width, [&](std::size_t row, std::size_t sentence, int place) {
      sources[sentence].memory->put(number, place, projected + row * memory_width);
    });
  }
}

}  // namespace

const float* run_encoder(Work& work, const Model& model, std::span<const Ids* const> texts,
                         std::vector<std::size_t>& offsets) {
  const ModelConfig& config = model.config;
  offsets.assign(1, 0);
  for (const Ids* ids : texts) offsets.push_back(offsets.back() + ids->size());
  const std::size_t rows = offsets.back();
  const std::size_t width = static_cast<std::size_t>(config.d_model);
  float* x = work.hidden.room(rows * width);
  each_row(work, offsets, 4 * width, [&](std::size_t row, std::size_t text, int place) {
    embed(model, model.source, (*texts[text])[static_cast<std::size_t>(place)], place,
          x + row * width);
  });
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
  return x;
}

void encode(Work& work, const Model& model, std::span<const Source> sources,
            const std::function<void()>& keep_on) {
  std::vector<const Ids*> texts;
  std::vector<std::size_t> offsets;
  while (!sources.empty()) {
    keep_on();
    std::size_t rows = sources[0].ids->size();
    std::size_t count = 1;
    while (count < sources.size() && rows + sources[count].ids->size() <= kEncoderRows) {
      rows += sources[count++].ids->size();
    }
    texts.clear();
    for (const Source& source : sources.first(count)) texts.push_back(source.ids);
    const float* hidden = run_encoder(work, model, texts, offsets);
    remember(work, model, sources.first(count), offsets, hidden);
    sources = sources.subspan(count);
  }
}

}  // namespace regard
