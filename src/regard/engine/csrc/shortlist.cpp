#include "shortlist.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

namespace regard {

namespace {

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument("the shortlist " + otherwise);
}

void check(const Ids& tokens, int targets) {
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < targets,
            "holds the target id " + std::to_string(token) + ", and the vocabulary has " +
                std::to_string(targets));
  }
}

}  // namespace

Shortlist::Shortlist(std::vector<std::int64_t> offsets, Ids tokens, Ids always, int targets)
    : offsets_(std::move(offsets)), tokens_(std::move(tokens)), always_(std::move(always)),
      targets_(targets) {
  require(targets_ >= 1, "has no target token");
  require(offsets_.size() >= 2 && offsets_.size() <= std::size_t{1} << 30, "has no row");
  require(offsets_.front() == 0, "does not begin with its first row");
  for (std::size_t row = 1; row < offsets_.size(); ++row) {
    require(offsets_[row - 1] <= offsets_[row],
            "has a row that ends before it begins: " + std::to_string(row - 1));
  }
  require(offsets_.back() == static_cast<std::int64_t>(tokens_.size()),
          "has " + std::to_string(tokens_.size()) + " tokens, and its rows end at " +
              std::to_string(offsets_.back()));
  check(tokens_, targets_);
  check(always_, targets_);
}

bool Shortlist::always(std::int32_t token) const {
  return std::find(always_.begin(), always_.end(), token) != always_.end();
}

Ids Shortlist::allowed(const Ids& source, const Ids* prefix) const {
  std::vector<std::uint64_t> chosen((static_cast<std::size_t>(targets_) + 63) / 64);
  const auto choose = [&](std::int32_t token) {
    chosen[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
  };
  for (const std::int32_t token : always_) choose(token);
  if (prefix != nullptr) {
    for (const std::int32_t token : *prefix) choose(token);
  }
  for (const std::int32_t id : source) {
    const std::size_t row = static_cast<std::size_t>(id);
    for (std::int64_t at = offsets_[row]; at < offsets_[row + 1]; ++at) {
      choose(tokens_[static_cast<std::size_t>(at)]);
    }
  }
  std::size_t count = 0;
  for (const std::uint64_t word : chosen) count += static_cast<std::size_t>(std::popcount(word));
  Ids all;
  all.reserve(count);
  for (std::size_t place = 0; place < chosen.size(); ++place) {
    for (std::uint64_t word = chosen[place]; word != 0; word &= word - 1) {
      all.push_back(static_cast<std::int32_t>(place * 64) + std::countr_zero(word));
    }
  }
  return all;
}

}  // namespace regard
