#include "layers.h"

#include <algorithm>

namespace regard {

namespace {

struct Gated {
  Activation activation;
  bool gated;
};

Gated activation_of(FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::relu:
      return {Activation::relu, false};
    case FeedForwardKind::gelu:
      return {Activation::gelu, false};
    case FeedForwardKind::gelu_tanh:
      return {Activation::gelu_tanh, false};
    case FeedForwardKind::swish:
      return {Activation::swish, false};
    case FeedForwardKind::swiglu:
      return {Activation::swish, true};
    case FeedForwardKind::geglu:
      return {Activation::gelu, true};
    case FeedForwardKind::geglu_tanh:
      return {Activation::gelu_tanh, true};
  }
  return {Activation::relu, false};
}

// The inner rows of a feed-forward that are in memory at once: 768 KB at most, and as many each
// time, as the weights are read for a few rows as for many.
std::size_t inner_rows(std::size_t rows, std::size_t width) {
  const std::size_t most = std::clamp((std::size_t{3} << 16) / width, std::size_t{24},
                                      std::size_t{384});
  const std::size_t times = (rows + most - 1) / most;
  return times > 1 ? (rows + times - 1) / times : rows;
}

// Calls part(begin, end) for every thread's columns of a layer.
template <class Part>
void split_columns(Team& team, int columns, Part&& part) {
  if (team.size() == 1 || columns <= kColumns) {
    part(0, columns);
    return;
  }
  team.run([&](int share) {
    const Range range = share_of(columns, kColumns, share, team.size());
    if (range.begin < range.end) part(range.begin, range.end);
  });
}

}  // namespace

void make_ready(Work& work, Dtype dtype, const float* x, std::size_t rows, int in) {
  const std::size_t width = static_cast<std::size_t>(in);
  work.input.start(dtype, x, rows, in, width);
  split_rows(work.team, rows, width,
             [&](std::size_t begin, std::size_t end, int) { work.input.fill(begin, end); });
}

void project_ready(Work& work, const Linear& linear, float* y) {
  split_columns(work.team, linear.out(), [&](int begin, int end) {
    apply(linear, work.input, y + begin, static_cast<std::size_t>(linear.out()), begin, end);
  });
}

void project(Work& work, const Linear& linear, const float* x, std::size_t rows, float* y) {
  make_ready(work, linear.dtype(), x, rows, linear.in());
  project_ready(work, linear, y);
}

void normalise(const Norm& norm, const float* x, float* y, int width) {
  if (norm.kind == NormKind::layer) {
    layer_norm(x, norm.gain.data(), norm.bias.data(), norm.eps, y, width);
  } else {
    rms_norm(x, norm.gain.data(), norm.eps, y, width);
  }
}

void normalise(Work& work, const Norm& norm, const float* x, float* y, std::size_t rows,
               int width) {
  const std::size_t stride = static_cast<std::size_t>(width);
  split_rows(work.team, rows, stride, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      normalise(norm, x + row * stride, y + row * stride, width);
    }
  });
}

void join(Work& work, const Norm* norm, const float* branch, float* x, std::size_t rows,
          int width) {
  const std::size_t stride = static_cast<std::size_t>(width);
  split_rows(work.team, rows, stride, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      float* sum = x + row * stride;
      add(branch + row * stride, sum, width);
      if (norm != nullptr) normalise(*norm, sum, sum, width);
    }
  });
}

void feed_forward(Work& work, const ModelConfig& config, const FeedForward& layer, const float* x,
                  std::size_t rows, float* y) {
  const auto [activation, gated] = activation_of(config.feed_forward);
  const std::size_t width = static_cast<std::size_t>(config.d_model);
  const std::size_t wide = static_cast<std::size_t>(layer.input.out());
  const int narrow = config.d_ff;
  const std::size_t most = inner_rows(rows, wide);
  for (std::size_t first = 0; first < rows; first += most) {
    const std::size_t count = std::min(most, rows - first);
    float* inner = work.inner.room(count * wide);
    make_ready(work, layer.input.dtype(), x + first * width, count, config.d_model);
    split_columns(work.team, layer.input.out(), [&](int begin, int end) {
      apply(layer.input, work.input, inner + begin, wide, begin, end);
      if (gated) return;
      for (std::size_t row = 0; row < count; ++row) {
        activate(activation, inner + row * wide + begin, end - begin);
      }
    });
    if (gated) {
      split_rows(work.team, count, wide, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t row = begin; row < end; ++row) {
          float* gate = inner + row * wide;
          activate_gate(activation, gate, gate + narrow, narrow);
        }
      });
    }
    work.input.start(layer.output.dtype(), inner, count, narrow, wide);
    split_rows(work.team, count, wide, [&](std::size_t begin, std::size_t end, int) {
      work.input.fill(begin, end);
    });
    project_ready(work, layer.output, y + first * width);
  }
}

void embed(const Model& model, const Embedding& embedding, int id, int position, float* row) {
  const int width = model.config.d_model;
  if (embedding.rows != nullptr) {
    embedding.rows->unpack(id, row);
  } else {
    embedding.table->copy_row(id, row);
  }
  if (model.config.embedding_scale) scale(model.embedding_scale, row, width);
  if (!embedding.type.empty()) add(embedding.type.data(), row, width);
  if (const float* here = model.position(embedding, position)) add(here, row, width);
  if (!embedding.norm.gain.empty()) normalise(embedding.norm, row, row, width);
}

}  // namespace regard
