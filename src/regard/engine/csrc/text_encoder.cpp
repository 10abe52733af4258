#include "text_encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

namespace regard {

namespace {

constexpr int kMostThreads = 1024;
constexpr std::size_t kMostTokens = std::size_t{1} << 20;

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

int checked_threads(int threads) {
  require(threads >= 1 && threads <= kMostThreads,
          "threads = " + std::to_string(threads) + " is not between 1 and " +
              std::to_string(kMostThreads));
  return threads;
}

// The most tokens of one of them.
int check(const ModelConfig& config, const std::vector<Ids>& texts) {
  std::size_t longest = 0;
  for (const Ids& text : texts) {
    require(!text.empty(), "a text holds no token");
    for (const std::int32_t id : text) {
      require(id >= 0 && id < config.source_vocabulary,
              "the id " + std::to_string(id) + " is not below the vocabulary's " +
                  std::to_string(config.source_vocabulary));
    }
    longest = std::max(longest, text.size());
  }
  const std::size_t most = config.positions == PositionsKind::learned
                               ? static_cast<std::size_t>(config.max_positions)
                               : kMostTokens;
  require(longest <= most, "a text of " + std::to_string(longest) + " tokens is longer than the " +
                               std::to_string(most) + " positions of the model");
  return static_cast<int>(longest);
}

// Numbers of texts, the longest first, and where groups of them begin that fill a pass.
struct Groups {
  explicit Groups(const std::vector<Ids>& texts) : order(texts.size()) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      return texts[one].size() > texts[other].size();
    });
    std::size_t rows = 0;
    for (std::size_t at = 0; at < order.size(); ++at) {
      rows += texts[order[at]].size();
      if (at == 0 || rows > kEncoderRows) {
        begins.push_back(at);
        rows = texts[order[at]].size();
      }
    }
    begins.push_back(order.size());
  }

  std::vector<std::size_t> order;
  std::vector<std::size_t> begins;
};

}  // namespace

TextEncoder::TextEncoder(const ModelConfig& config, const Weights& weights, Dtype dtype,
                         int threads)
    : model_(config, weights, dtype), workshop_(checked_threads(threads)) {
  require(config.family == Family::encoding, "it is no encoder");
}

void TextEncoder::run(const std::vector<Ids>& texts, const Finish& finish,
                      const std::atomic<bool>* stop) {
  const int longest = check(model_.config, texts);
  const std::lock_guard lock(mutex_);
  model_.reach(longest);
  const Groups groups(texts);
  const std::size_t count = groups.begins.size() - 1;
  std::atomic<std::size_t> next{0};
  const auto serve = [&](Work& work) {
    std::vector<const Ids*> some;
    std::vector<std::size_t> offsets;
    for (std::size_t group = next++; group < count; group = next++) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) throw Stopped();
      const std::size_t begin = groups.begins[group];
      const std::size_t end = groups.begins[group + 1];
      some.clear();
      for (std::size_t at = begin; at < end; ++at) some.push_back(&texts[groups.order[at]]);
      const float* hidden = run_encoder(work, model_, some, offsets);
      const std::size_t width = static_cast<std::size_t>(model_.config.d_model);
      for (std::size_t at = begin; at < end; ++at) {
        const std::size_t first = offsets[at - begin];
        finish(work, groups.order[at], hidden + first * width, offsets[at - begin + 1] - first);
      }
    }
  };
  const std::size_t shares = static_cast<std::size_t>(workshop_.team.size());
  if (shares == 1 || count < 2 * shares) {
    serve(workshop_.together);
    return;
  }
  workshop_.team.run([&](int share) {
    try {
      serve(*workshop_.apart[static_cast<std::size_t>(share)]);
    } catch (...) {
      next = count;  // the others need not go on
      throw;
    }
  });
}

void TextEncoder::pool_one(const float* hidden, std::size_t rows, Pooling pooling,
                           float* vector) const {
  const int width = model_.config.d_model;
  std::copy_n(hidden, width, vector);
  if (pooling == Pooling::first) return;
  for (std::size_t row = 1; row < rows; ++row) {
    add(hidden + row * static_cast<std::size_t>(width), vector, width);
  }
  for (int i = 0; i < width; ++i) vector[i] /= static_cast<float>(rows);
}

void TextEncoder::pool(const std::vector<Ids>& texts, Pooling pooling, float* vectors,
                       const std::atomic<bool>* stop) {
  const std::size_t width = static_cast<std::size_t>(model_.config.d_model);
  run(texts,
      [&](Work&, std::size_t text, const float* hidden, std::size_t rows) {
        pool_one(hidden, rows, pooling, vectors + text * width);
      },
      stop);
}

void TextEncoder::classify(const std::vector<Ids>& texts, Pooling pooling, float* logits,
                           const std::atomic<bool>* stop) {
  const ModelConfig& config = model_.config;
  require(config.classes > 0, "the model has no classifier");
  const std::size_t width = static_cast<std::size_t>(config.d_model);
  const bool through = config.pooler && pooling == Pooling::first;
  run(texts,
      [&](Work& work, std::size_t text, const float* hidden, std::size_t rows) {
        // Neither of these holds hidden states.
        float* vector = work.inner.room(2 * width);
        float* pooled = vector + width;
        pool_one(hidden, rows, pooling, vector);
        if (through) {
          project(work, model_.pooler, vector, 1, pooled);
          for (std::size_t i = 0; i < width; ++i) pooled[i] = std::tanh(pooled[i]);
        }
        project(work, model_.classifier, through ? pooled : vector, 1,
                logits + text * static_cast<std::size_t>(config.classes));
      },
      stop);
}

void TextEncoder::predict(const Ids& text, const std::vector<int>& places, float* logits) {
  const ModelConfig& config = model_.config;
  require(config.prediction_head, "the model has no prediction head");
  for (const int place : places) {
    require(place >= 0 && static_cast<std::size_t>(place) < text.size(),
            "there is no place " + std::to_string(place));
  }
  if (places.empty()) return;
  const std::size_t width = static_cast<std::size_t>(config.d_model);
  run({text},
      [&](Work& work, std::size_t, const float* hidden, std::size_t) {
        float* masked = work.inner.room(2 * places.size() * width);
        float* dense = masked + places.size() * width;
        for (std::size_t at = 0; at < places.size(); ++at) {
          std::copy_n(hidden + static_cast<std::size_t>(places[at]) * width, width,
                      masked + at * width);
        }
        project(work, model_.prediction, masked, places.size(), dense);
        for (std::size_t at = 0; at < places.size(); ++at) {
          activate(Activation::gelu, dense + at * width, config.d_model);
        }
        normalise(work, model_.prediction_norm, dense, masked, places.size(), config.d_model);
        project(work, model_.projection, masked, places.size(), logits);
      },
      nullptr);
}

}  // namespace regard
