// From hidden states to next tokens that are drawn: the rule of regard.decoding.sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine.h"
#include "layers.h"
#include "projection.h"

namespace regard {

// Draws a token for each row. Unlike the Chooser it holds the logits of some rows as a whole, for
// which tokens may be drawn is known only when all were seen.
class Drawer {
 public:
  // `sampling` must outlive it; `never` are tokens that no row may take.
  Drawer(const Linear& projection, const Sampling& sampling, std::vector<std::int32_t> never);

  // Draws by the key of each wish. Throws NotANumber. What comes of it stays until the next call.
  void choose(Work& work, const float* hidden, std::span<const Wish> wishes);

  // One token with the log-probability that the model gives it, or none where none may follow.
  std::span<const Candidate> candidates(std::size_t row) const;

 private:
  // What a thread needs to draw.
  struct Desk {
    Buffer shares;
    std::vector<std::int32_t> order;
  };

  void draw(float* logits, const Wish& wish, Desk& desk, std::size_t row) const;
  std::int32_t first_of_all(const float* logits, const float* shares, float most,
                            std::uint64_t key) const;
  std::int32_t first_of_some(const float* logits, const float* shares, float most,
                             std::uint64_t key, Desk& desk) const;
  void take_likeliest(const float* logits, const float* shares,
                      std::vector<std::int32_t>& order) const;

  const Linear& projection_;
  const Sampling& sampling_;
  std::vector<std::int32_t> never_;
  Buffer logits_;
  std::vector<Desk> desks_;  // one a thread
  mutable std::vector<Candidate> found_;
  mutable std::vector<std::uint8_t> counts_;
};

}  // namespace regard
