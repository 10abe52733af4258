// Which target tokens a sentence may be translated with: those that go with its source tokens.
#pragma once

#include <cstdint>
#include <vector>

namespace regard {

using Ids = std::vector<std::int32_t>;

// What a sentence may be translated with, and where that lies among the columns that are computed.
struct Allowed {
  Ids tokens;  // in order, each once

  // For the Picker: by blocks of columns, the columns and the places in `tokens` of each.
  int version = -1;
  std::vector<std::int32_t> starts, columns, places;
};

// For each source token the target tokens that go with it, and those that go with all.
class Shortlist {
 public:
  // Row i of the table is tokens[offsets[i]] up to tokens[offsets[i + 1]]. Throws
  // std::invalid_argument where rows are not within `tokens` or a token is none of the `targets`.
  Shortlist(std::vector<std::int64_t> offsets, Ids tokens, Ids always, int targets);

  int sources() const { return static_cast<int>(offsets_.size()) - 1; }
  int targets() const { return targets_; }
  bool always(std::int32_t token) const;  // whether each sentence may use it

  // All of a sentence, in order and each once: the rows of its source tokens, those of all, and
  // what it must begin with (may be null). The ids must have been checked.
  Ids allowed(const Ids& source, const Ids* prefix) const;

 private:
  std::vector<std::int64_t> offsets_;
  Ids tokens_, always_;
  int targets_;
};

}  // namespace regard
