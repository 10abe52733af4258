#include "ssru.h"

#include <algorithm>

namespace regard {

namespace {

// sigmoid in place: 1 / (1 + exp(-x)), which is 0 where exp is infinite.
void sigmoid(float* row, int n) {
  scale(-1.0f, row, n);
  exp(row, n);
  for (int i = 0; i < n; ++i) row[i] = 1.0f / (1.0f + row[i]);
}

// state = forget * before + (1 - forget) * value, and y = relu(state). `before` may be null: zeros.
void go_on(const float* forget, const float* value, const float* before, int n, float* state,
           float* y) {
  for (int i = 0; i < n; ++i) {
    const float added = (1.0f - forget[i]) * value[i];
    state[i] = before == nullptr ? added : forget[i] * before[i] + added;
    // Written so that a NaN stays one.
    y[i] = state[i] < 0.0f ? 0.0f : state[i];
  }
}

}  // namespace

void recur(Work& work, const Model& model, int number, const std::vector<LiveRow>& rows,
           const float* x, float* y) {
  const int width = model.config.d_model;
  const std::size_t wide = 2 * static_cast<std::size_t>(width);
  float* projected = work.projected.room(rows.size() * wide);
  project(work, model.decoder[static_cast<std::size_t>(number)].self_attention.input, x,
          rows.size(), projected);
  split_rows(work.team, rows.size(), 4 * wide, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) sigmoid(projected + row * wide, width);
  });
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const LiveRow& live = rows[row];
    const std::int32_t here = live.places[live.length - 1];
    States& states = live.past->states();
    states.reach(here + 1);
    const float* before =
        live.length > 1 ? states.at(number, live.places[live.length - 2]) : nullptr;
    const float* forget = projected + row * wide;
    go_on(forget, forget + width, before, width, states.at(number, here),
          y + row * static_cast<std::size_t>(width));
  }
}

}  // namespace regard
