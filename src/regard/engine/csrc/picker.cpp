#include "picker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace regard {

namespace {

constexpr int kBlock = 8 * kColumns;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

int blocks_of(int columns) { return (columns + kBlock - 1) / kBlock; }

// Takes a token out of a row, if its sentence has it.
void block(float* logits, const Ids& tokens, std::int32_t token) {
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), token);
  if (found != tokens.end() && *found == token) logits[found - tokens.begin()] = kNothing;
}

}  // namespace

Picker::Picker(const Linear& projection, int width, std::vector<std::int32_t> never)
    : picked_(projection), width_(std::min(width, projection.out())), never_(std::move(never)) {}

void Picker::choose(Work& work, const float* hidden, std::span<const Wish> wishes) {
  const std::size_t rows = wishes.size();
  picked_.settle();
  stride_ = 1;
  for (const Wish& wish : wishes) {
    if (wish.allowed->version != picked_.version()) find(*wish.allowed);
    stride_ = std::max(stride_, wish.allowed->tokens.size());
  }
  const auto shares = static_cast<std::size_t>(work.team.size());
  pieces_.resize(shares);
  best_.resize(shares, Best(width_));
  logits_.room(rows * stride_);
  const Linear& layer = picked_.layer();
  make_ready(work, layer.dtype(), hidden, rows, layer.in());
  work.team.run([&](int share) {
    run_blocks(work, wishes, share,
               share_of(blocks_of(picked_.width()), 1, share, work.team.size()));
  });
  candidates_.resize(rows * static_cast<std::size_t>(width_));
  counts_.assign(rows, 0);
  split_rows(work.team, rows, stride_, [&](std::size_t begin, std::size_t end, int share) {
    for (std::size_t row = begin; row < end; ++row) {
      pick(wishes[row], row, best_[static_cast<std::size_t>(share)]);
    }
  });
}

// Deals a sentence's tokens to the blocks of columns that they are in.
void Picker::find(Allowed& allowed) const {
  const std::size_t blocks = static_cast<std::size_t>(blocks_of(picked_.layer().out()));
  allowed.starts.assign(blocks + 1, 0);
  allowed.columns.resize(allowed.tokens.size());
  allowed.places.resize(allowed.tokens.size());
  const auto block_at = [&](std::int32_t column) { return static_cast<std::size_t>(column / kBlock); };
  for (const std::int32_t token : allowed.tokens) {
    ++allowed.starts[block_at(picked_.place(token)) + 1];
  }
  for (std::size_t each = 0; each < blocks; ++each) allowed.starts[each + 1] += allowed.starts[each];
  std::vector<std::int32_t> next(allowed.starts.begin(), allowed.starts.end() - 1);
  for (std::size_t place = 0; place < allowed.tokens.size(); ++place) {
    const std::int32_t column = picked_.place(allowed.tokens[place]);
    const auto at = static_cast<std::size_t>(next[block_at(column)]++);
    allowed.columns[at] = column;
    allowed.places[at] = static_cast<std::int32_t>(place);
  }
  allowed.version = picked_.version();
}

void Picker::run_blocks(Work& work, std::span<const Wish> wishes, int share, Range blocks) {
  const std::size_t rows = wishes.size();
  const Linear& layer = picked_.layer();
  float* piece = pieces_[static_cast<std::size_t>(share)].room(rows * kBlock);
  for (int number = blocks.begin; number < blocks.end; ++number) {
    const int begin = number * kBlock;
    // Up to whole tiles, which are there, or the layer's end.
    const int used = (picked_.width() + kColumns - 1) / kColumns * kColumns;
    apply(layer, work.input, piece, kBlock, begin, std::min({begin + kBlock, used, layer.out()}));
    for (std::size_t row = 0; row < rows; ++row) {
      const Allowed& allowed = *wishes[row].allowed;
      const auto first = static_cast<std::size_t>(allowed.starts[static_cast<std::size_t>(number)]);
      const auto last =
          static_cast<std::size_t>(allowed.starts[static_cast<std::size_t>(number) + 1]);
      const float* from = piece + row * kBlock;
      float* to = logits_.data() + row * stride_;
      for (std::size_t at = first; at < last; ++at) {
        to[allowed.places[at]] = from[allowed.columns[at] - begin];
      }
    }
  }
}

void Picker::pick(const Wish& wish, std::size_t row, Best& best) {
  const Ids& tokens = wish.allowed->tokens;
  const int size = static_cast<int>(tokens.size());
  float* logits = logits_.data() + row * stride_;
  LogSumExp sum;
  for (int begin = 0; begin < size; begin += kBlock) {
    sum.add(logits + begin, std::min(kBlock, size - begin));
  }
  const double log_sum = sum.value();
  if (!std::isfinite(log_sum)) throw NotANumber();
  // log_softmax never gives more than 0, which the search's bound relies on.
  const auto keep = [&](float logit, std::int32_t token) {
    const float log_prob = std::min(static_cast<float>(logit - log_sum), 0.0f);
    const std::size_t place = row * static_cast<std::size_t>(width_);
    candidates_[place + static_cast<std::size_t>(counts_[row]++)] = {log_prob, token};
  };
  if (wish.forced >= 0) {
    const auto found = std::lower_bound(tokens.begin(), tokens.end(), wish.forced);
    const float logit = logits[found - tokens.begin()];
    if (logit > kNothing) keep(logit, wish.forced);
    return;
  }
  for (const std::int32_t token : never_) block(logits, tokens, token);
  for (const std::int32_t token : wish.blocked) block(logits, tokens, token);
  best.clear();
  best.offer(logits, size, 0);
  for (int rank = 0; rank < best.size(); ++rank) {
    keep(best.value(rank), tokens[static_cast<std::size_t>(best.column(rank))]);
  }
}

std::span<const Candidate> Picker::candidates(std::size_t row) const {
  return {candidates_.data() + row * static_cast<std::size_t>(width_),
          static_cast<std::size_t>(counts_[row])};
}

}  // namespace regard
