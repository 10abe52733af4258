// From hidden states to the best next tokens, where each sentence has a shortlist of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers.h"
#include "picked.h"
#include "projection.h"
#include "search.h"
#include "select.h"
#include "shortlist.h"

namespace regard {

// As the Chooser, over the tokens that each row's sentence may use: they alone make its
// log-sum-exp and its candidates, in their order, whatever else is computed for its neighbours.
// The output projection is computed for all rows over the columns that any of their sentences needs.
class Picker {
 public:
  // `width` candidates a row at most; `never` are tokens that no row may take.
  Picker(const Linear& projection, int width, std::vector<std::int32_t> never);

  // A sentence comes, or leaves.
  void enter(const Allowed& allowed) { picked_.need(allowed.tokens); }
  void leave(const Allowed& allowed) { picked_.drop(allowed.tokens); }

  // Throws NotANumber. Each wish says what its row may use, of a sentence that has come. What comes
  // back stays until the next call.
  void choose(Work& work, const float* hidden, std::span<const Wish> wishes);

  std::span<const Candidate> candidates(std::size_t row) const;

 private:
  void find(Allowed& allowed) const;
  void run_blocks(Work& work, std::span<const Wish> wishes, int share, Range blocks);
  void pick(const Wish& wish, std::size_t row, Best& best);

  PickedColumns picked_;
  int width_;
  std::vector<std::int32_t> never_;  // in order
  std::vector<Buffer> pieces_;       // one a thread
  std::vector<Best> best_;           // one a thread
  Buffer logits_;                    // of each row's own tokens
  std::size_t stride_ = 0;           // of those
  std::vector<Candidate> candidates_;
  std::vector<int> counts_;
};

}  // namespace regard
