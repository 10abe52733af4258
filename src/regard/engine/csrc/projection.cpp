#include "projection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace regard {

namespace {

constexpr int kBlock = 8 * kColumns;
constexpr std::size_t kCostOfBlock = 32;  // of one that is gathered, beside that of a number
constexpr float kNothing = -std::numeric_limits<float>::infinity();

}  // namespace

Chooser::Chooser(const Linear& projection, int width, std::vector<std::int32_t> never)
    : projection_(projection), width_(std::min(width, projection.out())), never_(std::move(never)),
      blocks_((projection.out() + kBlock - 1) / kBlock) {
  std::sort(never_.begin(), never_.end());
}

void Chooser::choose(Work& work, const float* hidden, std::span<const Wish> wishes) {
  const std::size_t rows = wishes.size();
  shares_.resize(static_cast<std::size_t>(work.team.size()));
  for (Share& share : shares_) {
    share.best.resize(rows, Best(width_));
    for (Best& best : share.best) best.clear();
  }
  sums_.assign(rows * static_cast<std::size_t>(blocks_), LogSumExp());
  forced_.assign(rows, kNothing);
  make_ready(work, projection_.dtype(), hidden, rows, projection_.in());
  work.team.run([&](int share) {
    run_blocks(work, wishes, share, share_of(blocks_, 1, share, work.team.size()));
  });
  const std::size_t width = static_cast<std::size_t>(width_);
  candidates_.resize(rows * width);
  counts_.assign(rows, 0);
  split_rows(work.team, rows, static_cast<std::size_t>(blocks_) * kCostOfBlock,
             [&](std::size_t begin, std::size_t end, int) {
               for (std::size_t row = begin; row < end; ++row) gather(row, wishes[row]);
             });
}

void Chooser::run_blocks(Work& work, std::span<const Wish> wishes, int share, Range blocks) {
  Share& mine = shares_[static_cast<std::size_t>(share)];
  const std::size_t rows = wishes.size();
  float* logits = mine.logits.room(rows * kBlock);
  for (int block = blocks.begin; block < blocks.end; ++block) {
    const int begin = block * kBlock;
    const int end = std::min(begin + kBlock, projection_.out());
    apply(projection_, work.input, logits, kBlock, begin, end);
    for (std::size_t row = 0; row < rows; ++row) {
      float* piece = logits + row * kBlock;
      const float most = max(piece, end - begin);
      sums_[row * static_cast<std::size_t>(blocks_) + static_cast<std::size_t>(block)].add(
          piece, end - begin, most);
      // Most blocks have nothing that is better than what was found.
      if (wishes[row].forced >= 0 || most > mine.best[row].floor()) {
        look(piece, begin, end, row, wishes[row], mine.best[row]);
      }
    }
  }
}

void Chooser::look(float* logits, int begin, int end, std::size_t row, const Wish& wish,
                   Best& best) {
  if (wish.forced >= 0) {
    if (wish.forced >= begin && wish.forced < end) forced_[row] = logits[wish.forced - begin];
    return;
  }
  for (auto token = std::lower_bound(never_.begin(), never_.end(), begin);
       token != never_.end() && *token < end; ++token) {
    logits[*token - begin] = kNothing;
  }
  for (const std::int32_t token : wish.blocked) {
    if (token >= begin && token < end) logits[token - begin] = kNothing;
  }
  best.offer(logits, end - begin, begin);
}

void Chooser::gather(std::size_t row, const Wish& wish) {
  LogSumExp sum;
  for (int block = 0; block < blocks_; ++block) {
    sum.add(sums_[row * static_cast<std::size_t>(blocks_) + static_cast<std::size_t>(block)]);
  }
  const double log_sum = sum.value();
  if (!std::isfinite(log_sum)) throw NotANumber();
  // log_softmax never gives more than 0, which the search's bound relies on.
  const auto keep = [&](float logit, std::int32_t token) {
    const float log_prob = std::min(static_cast<float>(logit - log_sum), 0.0f);
    const std::size_t rank = static_cast<std::size_t>(counts_[row]++);
    candidates_[row * static_cast<std::size_t>(width_) + rank] = {log_prob, token};
  };
  if (wish.forced >= 0) {
    if (forced_[row] > kNothing) keep(forced_[row], wish.forced);
    return;
  }
  Best& best = shares_[0].best[row];
  for (std::size_t share = 1; share < shares_.size(); ++share) best.offer(shares_[share].best[row]);
  for (int rank = 0; rank < best.size(); ++rank) keep(best.value(rank), best.column(rank));
}

std::span<const Candidate> Chooser::candidates(std::size_t row) const {
  return {candidates_.data() + row * static_cast<std::size_t>(width_),
          static_cast<std::size_t>(counts_[row])};
}

}  // namespace regard
