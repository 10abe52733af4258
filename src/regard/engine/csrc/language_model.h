// Language models: texts that are read, and go on token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cache.h"
#include "decoder.h"
#include "engine.h"
#include "model.h"
#include "scheduler.h"

namespace regard {

// A decoder's packed weights, and the threads that work with them. One call at a time works.
class LanguageModel {
 public:
  // As Engine's.
  LanguageModel(const ModelConfig& config, const Weights& weights, Dtype dtype, int threads);

  int threads() const { return workshop_.team.size(); }
  std::size_t bytes() const { return model_.bytes(); }
  int vocabulary() const { return model_.config.target_vocabulary; }

 private:
  friend class Texts;

  Model model_;
  Workshop workshop_;
  std::mutex mutex_;
};

// Texts that a language model is in the middle of, a row each. Rows that came of one share what
// they have in common: each names the places of its past in a cache of all.
class Texts {
 public:
  // The model must outlive it. At first every text is empty.
  Texts(LanguageModel& model, int rows);
  ~Texts();
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  int rows() const { return static_cast<int>(rows_.size()); }

  // Appends to rows, each named once at most, the tokens given for them, some for each. Writes the
  // logits of what follows the last of them, one row of the vocabulary after the other, unless
  // `logits` is null. Throws std::invalid_argument for rows and ids that are not there, and for a
  // text past the model's positions; nothing has then changed.
  void advance(std::span<const int> rows, const std::vector<std::vector<std::int32_t>>& tokens,
               float* logits);

  // Goes on with these of the present rows, in this order; a row may come often or never.
  void select(std::span<const int> rows);

 private:
  // The keys and values of texts that began as one.
  struct Past {
    Past(Pool& pool, const Model& model) : cache(pool, model.config, model.projection.dtype()) {}

    Cache cache;
    int used = 0;  // places
  };
  struct Row {
    std::shared_ptr<Past> past;
    std::vector<std::int32_t> places;
  };

  int check(std::span<const int> rows, const std::vector<std::vector<std::int32_t>>& tokens) const;
  void run(std::span<const LiveRow> live, std::span<const std::size_t> last, float* logits);

  LanguageModel& model_;
  std::vector<Row> rows_;
};

}  // namespace regard
