// Encoders of texts: a vector for each, its classes, or the tokens that may stand at its places.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "encoder.h"
#include "engine.h"
#include "model.h"
#include "scheduler.h"

namespace regard {

enum class Pooling { mean, first };

// An encoder's packed weights, and the threads that work with them. One call at a time works; each
// throws std::invalid_argument for texts that are empty, too long or hold ids that are not there,
// and Stopped soon after `stop` (when given) is set.
class TextEncoder {
 public:
  // As Engine's.
  TextEncoder(const ModelConfig& config, const Weights& weights, Dtype dtype, int threads);

  const ModelConfig& config() const { return model_.config; }
  int threads() const { return workshop_.team.size(); }
  std::size_t bytes() const { return model_.bytes(); }

  // A vector of d_model numbers for each text, one after the other.
  void pool(const std::vector<Ids>& texts, Pooling pooling, float* vectors,
            const std::atomic<bool>* stop);

  // The logits of each text's classes, from its pooled vector.
  void classify(const std::vector<Ids>& texts, Pooling pooling, float* logits,
                const std::atomic<bool>* stop);

  // The logits of the tokens at these places of a text.
  void predict(const Ids& text, const std::vector<int>& places, float* logits);

 private:
  // Calls finish(work, text, rows of its tokens, how many) for every text, of a group at a time.
  using Finish = std::function<void(Work&, std::size_t, const float*, std::size_t)>;

  void run(const std::vector<Ids>& texts, const Finish& finish, const std::atomic<bool>* stop);
  void pool_one(const float* hidden, std::size_t rows, Pooling pooling, float* vector) const;

  Model model_;
  Workshop workshop_;
  std::mutex mutex_;
};

}  // namespace regard
