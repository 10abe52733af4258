// From hidden states to the best next tokens, without ever holding all logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers.h"
#include "search.h"
#include "select.h"
#include "shortlist.h"

namespace regard {

// What one row wants of the vocabulary.
struct Wish {
  std::int32_t forced = -1;           // only this token, if not -1
  std::vector<std::int32_t> blocked;  // tokens that may not follow, besides those of all rows
  std::uint64_t key = 0;              // of the numbers that it is drawn by, if it is drawn
  Allowed* allowed = nullptr;         // what its sentence may use, if not all
};

// The output projection together with log-sum-exp and selection. Columns go through in blocks
// that stay in the cache, for a few rows at a time; each thread takes its share of the blocks.
class Chooser {
 public:
  // `width` candidates a row at most; `never` are tokens that no row may take.
  Chooser(const Linear& projection, int width, std::vector<std::int32_t> never);

  // Throws NotANumber. The wishes belong to the rows; what comes back stays until the next call.
  void choose(Work& work, const float* hidden, std::span<const Wish> wishes);

  std::span<const Candidate> candidates(std::size_t row) const;

 private:
  struct Share {
    Buffer logits;
    std::vector<Best> best;  // one a row
  };

  void run_blocks(Work& work, std::span<const Wish> wishes, int share, Range blocks);
  void look(float* logits, int begin, int end, std::size_t row, const Wish& wish, Best& best);
  void gather(std::size_t row, const Wish& wish);

  const Linear& projection_;
  int width_;
  std::vector<std::int32_t> never_;  // in order
  int blocks_;
  std::vector<Share> shares_;
  std::vector<LogSumExp> sums_;      // row after row, one a block
  std::vector<float> forced_;        // the logit of each row's forced token
  std::vector<Candidate> candidates_;
  std::vector<int> counts_;
};

}  // namespace regard
