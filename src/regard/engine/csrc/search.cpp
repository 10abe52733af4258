#include "search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "dice.h"

namespace regard {

double length_penalty(int length, double alpha) {
  const double greatest = 200 * std::log(10.0);
  const double growth = alpha * std::log((5 + static_cast<double>(length)) / 6);
  if (std::abs(growth) > greatest) return std::exp(std::copysign(greatest, growth));
  return std::pow((5 + static_cast<double>(length)) / 6, alpha);
}

double coverage_penalty(const std::vector<double>& seen) {
  constexpr double kFloor = 1e-6;  // a logarithm needs some
  double sum = 0;
  for (const double each : seen) sum += std::log(std::clamp(each, kFloor, 1.0));
  return sum;
}

Search::Search(const SearchOptions& options, std::size_t sentence, int source_size,
               int max_tokens, const std::vector<std::int32_t>* prefix)
    : options_(options), prefix_(prefix),
      seed_(options.sampling.on ? options.sampling.seeds[sentence] : 0),
      source_size_(options.coverage > 0 ? static_cast<std::size_t>(source_size) : 0),
      max_tokens_(max_tokens), places_(options.beam),
      running_(options.sampling.on ? static_cast<std::size_t>(options.n_best) : 1), attention_(source_size_) {
  running_[0].seen.resize(source_size_);
  if (prefix_ != nullptr) max_tokens_ = std::max(max_tokens_, static_cast<int>(prefix_->size()));
  for (std::size_t slot = 0; slot < running_.size(); ++slot) {
    running_[slot].places.push_back(static_cast<std::int32_t>(slot));
    running_[slot].sample = slot;
  }
  if (options.sampling.on) found_.resize(running_.size());
}

std::int32_t Search::last(int slot) const {
  const Running& row = running_[static_cast<std::size_t>(slot)];
  return row.tokens.empty() ? options_.bos : row.tokens.back();
}

std::int32_t Search::forced() const {
  const std::size_t place = static_cast<std::size_t>(length_);
  return prefix_ != nullptr && place < prefix_->size() ? (*prefix_)[place] : -1;
}

void Search::block(int slot, std::vector<std::int32_t>& blocked) const {
  blocked.clear();
  if (length_ < options_.min_tokens) blocked.push_back(options_.eos);
  const int size = options_.no_repeat_ngram;
  if (size == 0 || length_ < size) return;
  const std::vector<std::int32_t>& tokens = running_[static_cast<std::size_t>(slot)].tokens;
  const auto suffix = tokens.end() - (size - 1);
  for (auto first = tokens.begin(); first + size <= tokens.end(); ++first) {
    if (std::equal(suffix, tokens.end(), first)) blocked.push_back(first[size - 1]);
  }
}

std::uint64_t Search::key(int slot) const {
  const std::uint64_t chain = random_bits(seed_, running_[static_cast<std::size_t>(slot)].sample);
  return random_bits(chain, static_cast<std::uint64_t>(length_));
}

void Search::follow(const std::vector<std::span<const Candidate>>& candidates) {
  std::vector<Next> running;
  for (std::size_t slot = 0; slot < candidates.size(); ++slot) {
    const bool stuck = candidates[slot].empty();
    const std::int32_t token = stuck ? -1 : candidates[slot][0].token;
    const double log_prob =
        stuck ? 0 : running_[slot].log_prob + static_cast<double>(candidates[slot][0].log_prob);
    const Next next{log_prob, static_cast<int>(slot), token};
    if (!stuck && token == options_.eos) {
      end(next);
    } else if (stuck || max_tokens_ <= length_) {
      cut(next.parent);
    } else {
      running.push_back(next);
    }
  }
  go_on(running);
}

void Search::advance(const std::vector<std::span<const Candidate>>& candidates) {
  if (options_.sampling.on) {
    follow(candidates);
    return;
  }
  look();
  std::vector<bool> stopped;
  for (const auto& list : candidates) stopped.push_back(list.empty() || max_tokens_ <= length_);
  std::vector<Next> running;
  for (const Next& next : best_of(candidates)) {
    if (next.token == options_.eos) {
      end(next);
      stopped[static_cast<std::size_t>(next.parent)] = false;
    } else if (max_tokens_ > length_) {
      running.push_back(next);
    }
  }
  for (std::size_t slot = 0; slot < stopped.size(); ++slot) {
    if (stopped[slot]) cut(static_cast<int>(slot));
  }
  if (over(running)) running.clear();
  go_on(running);
}

std::vector<Search::Next> Search::best_of(
    const std::vector<std::span<const Candidate>>& candidates) const {
  std::vector<Next> all;
  for (std::size_t slot = 0; slot < candidates.size(); ++slot) {
    for (const Candidate& candidate : candidates[slot]) {
      all.push_back({running_[slot].log_prob + static_cast<double>(candidate.log_prob),
                     static_cast<int>(slot), candidate.token});
    }
  }
  // Stable, so that of equals the one of the better hypothesis comes first.
  std::stable_sort(all.begin(), all.end(), [](const Next& one, const Next& other) {
    return one.log_prob > other.log_prob;
  });
  if (all.size() > static_cast<std::size_t>(places_)) {
    all.erase(all.begin() + places_, all.end());
  }
  return all;
}

void Search::look() {
  for (std::size_t slot = 0; slot < running_.size(); ++slot) {
    std::vector<double>& seen = running_[slot].seen;
    const float* now = attention_.data() + slot * source_size_;
    for (std::size_t token = 0; token < source_size_; ++token) {
      seen[token] += static_cast<double>(now[token]);
    }
  }
}

double Search::score(const Running& row, double log_prob, int length) const {
  const double score = log_prob / length_penalty(length, options_.alpha);
  return source_size_ == 0 ? score : score + options_.coverage * coverage_penalty(row.seen);
}

// Samples keep the order in which they began.
void Search::record(const Running& row, Hypothesis hypothesis) {
  if (options_.sampling.on) {
    found_[row.sample] = std::move(hypothesis);
  } else {
    found_.push_back(std::move(hypothesis));
  }
}

void Search::end(const Next& next) {
  const Running& row = running_[static_cast<std::size_t>(next.parent)];
  // The end token counts in the length.
  const double reached = score(row, next.log_prob, length_ + 1);
  record(row, {row.tokens, next.log_prob, reached, true});
  best_ended_.insert(
      std::upper_bound(best_ended_.begin(), best_ended_.end(), reached, std::greater<double>()),
      reached);
  if (best_ended_.size() > static_cast<std::size_t>(options_.n_best)) best_ended_.pop_back();
  --places_;
}

void Search::cut(int slot) {
  const Running& row = running_[static_cast<std::size_t>(slot)];
  const double reached = score(row, row.log_prob, std::max(length_, 1));
  record(row, {row.tokens, row.log_prob, reached, false});
}

bool Search::over(const std::vector<Next>& running) const {
  if (running.empty()) return true;
  if (best_ended_.size() < static_cast<std::size_t>(options_.n_best)) return false;
  // With alpha at most 0 the penalty falls with the length: the next end is the best to come. What
  // coverage adds is 0 at best.
  const int length = options_.alpha > 0
                         ? max_tokens_ + 1
                         : std::max(length_ + 1, options_.min_tokens) + 1;
  const double bound = running.front().log_prob / length_penalty(length, options_.alpha);
  return best_ended_.back() >= bound;
}

void Search::go_on(const std::vector<Next>& running) {
  ++length_;
  std::vector<Running> rows;
  rows.reserve(running.size());
  for (const Next& next : running) {
    // The first of a parent's children could take its lists; the copies are short.
    Running row = running_[static_cast<std::size_t>(next.parent)];
    row.tokens.push_back(next.token);
    row.places.push_back(length_ * options_.beam + static_cast<int>(rows.size()));
    row.log_prob = next.log_prob;
    rows.push_back(std::move(row));
  }
  running_ = std::move(rows);
  attention_.resize(running_.size() * source_size_);
}

std::vector<Hypothesis> Search::take() {
  if (options_.sampling.on) return std::move(found_);
  std::stable_sort(found_.begin(), found_.end(), [](const Hypothesis& one, const Hypothesis& other) {
    if (one.finished != other.finished) return one.finished;
    return one.score > other.score;
  });
  if (found_.size() > static_cast<std::size_t>(options_.n_best)) {
    found_.resize(static_cast<std::size_t>(options_.n_best));
  }
  return std::move(found_);
}

}  // namespace regard
