#include "decoder.h"

#include <cmath>
#include <span>

#include "ssru.h"

namespace regard {

namespace {

void look_back(Work& work, const Model& model, int number, const std::vector<LiveRow>& rows,
               const float* x, float* y) {
  const ModelConfig& config = model.config;
  const SelfAttention& layer = model.decoder[static_cast<std::size_t>(number)].self_attention;
  const std::size_t width = static_cast<std::size_t>(config.input_width());
  const std::size_t out_width = static_cast<std::size_t>(config.context_width());
  float* projected = work.projected.room(rows.size() * width);
  float* context = work.context.room(rows.size() * out_width);
  project(work, layer.input, x, rows.size(), projected);
  if (model.target_places.turns()) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      model.target_places.turn(projected + row * width, config.num_heads + config.num_kv_heads,
                               rows[row].length - 1);
    }
  }
  // A hypothesis looks at places that another one of its sentence has filled, so all are filled
  // before any is read; the last place is its own.
  split_rows(work.team, rows.size(), width, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      const float* fresh = projected + row * width + config.query_width();
      rows[row].past->put(number, rows[row].places[rows[row].length - 1], fresh);
    }
  });
  split_rows(work.team, rows.size(), 16 * width, [&](std::size_t begin, std::size_t end,
                                                     int share) {
    past_attention(model, number, std::span(rows).subspan(begin, end - begin),
                   projected + begin * width, width,
                   work.scores[static_cast<std::size_t>(share)], context + begin * out_width);
  });
  project(work, layer.output, context, rows.size(), y);
}

void look_at_source(Work& work, const Model& model, int number, const std::vector<LiveRow>& rows,
                    const float* x, float* y) {
  const ModelConfig& config = model.config;
  const CrossAttention& layer = model.decoder[static_cast<std::size_t>(number)].cross_attention;
  const std::size_t width = static_cast<std::size_t>(config.query_width());
  const std::size_t out_width = static_cast<std::size_t>(config.context_width());
  float* queries = work.projected.room(rows.size() * width);
  float* context = work.context.room(rows.size() * out_width);
  project(work, layer.query, x, rows.size(), queries);
  split_rows(work.team, rows.size(), 16 * width, [&](std::size_t begin, std::size_t end,
                                                     int share) {
    memory_attention(model, number, std::span(rows).subspan(begin, end - begin),
                     queries + begin * width, width,
                     work.scores[static_cast<std::size_t>(share)], context + begin * out_width);
  });
  project(work, layer.output, context, rows.size(), y);
}

}  // namespace

const float* decode(Work& work, const Model& model, const std::vector<LiveRow>& rows) {
  const ModelConfig& config = model.config;
  const std::size_t width = static_cast<std::size_t>(config.d_model);
  const std::size_t count = rows.size();
  float* x = work.hidden.room(count * width);
  split_rows(work.team, count, 4 * width, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      embed(model, model.target, rows[row].token, rows[row].length - 1, x + row * width);
    }
  });
  for (int number = 0; number < config.decoder_layers; ++number) {
    const DecoderLayer& layer = model.decoder[static_cast<std::size_t>(number)];
    residual(work, config, layer.self_attention.norm, x, count,
             [&](const float* in, float* out) {
               if (config.recurrent[static_cast<std::size_t>(number)] != 0) {
                 recur(work, model, number, rows, in, out);
               } else {
                 look_back(work, model, number, rows, in, out);
               }
             });
    if (config.family == Family::translation) {
      residual(work, config, layer.cross_attention.norm, x, count,
               [&](const float* in, float* out) {
                 look_at_source(work, model, number, rows, in, out);
               });
    }
    residual(work, config, layer.feed_forward.norm, x, count, [&](const float* in, float* out) {
      feed_forward(work, config, layer.feed_forward, in, count, out);
    });
  }
  if (config.norm_position == NormPosition::pre) {
    normalise(work, model.decoder_norm, x, x, count, config.d_model);
  }
  if (config.output_scale) {
    const float factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.d_model)));
    for (std::size_t row = 0; row < count; ++row) scale(factor, x + row * width, config.d_model);
  }
  return x;
}

}  // namespace regard
