// The search of one sentence: greedy, or a beam with a length penalty and an exact rule to stop; or
// samples, which go on side by side.
//
// It is the search of regard.decoding.beam, for one sentence: with a beam of one it is greedy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine.h"

namespace regard {

// ((5 + length) / 6) ** alpha, kept between 1e-200 and 1e200.
double length_penalty(int length, double alpha);

// The sum of log(min(seen, 1)) over what each source token was seen: 0 at best.
double coverage_penalty(const std::vector<double>& seen);

struct Candidate {
  float log_prob;
  std::int32_t token;
};

// One hypothesis that runs. `places` are those in the past that it came by; see Past.
struct Running {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> places;
  std::vector<double> seen;  // the attention that each source token had, where coverage counts
  double log_prob = 0;
  std::size_t sample = 0;  // which of the samples it is
};

class Search {
 public:
  // `options` and `prefix` (may be null) must outlive it; `max_tokens` is raised to the prefix.
  // `sentence` says which of the seeds is its own.
  Search(const SearchOptions& options, std::size_t sentence, int source_size, int max_tokens,
         const std::vector<std::int32_t>* prefix);

  bool done() const { return running_.empty(); }
  int length() const { return length_; }
  const std::vector<Running>& running() const { return running_; }

  // The last token of a hypothesis: what the decoder reads next.
  std::int32_t last(int slot) const;

  // The token that must follow, or -1.
  std::int32_t forced() const;

  // Fills `blocked` with the tokens that may not follow, those of SearchOptions::never apart.
  void block(int slot, std::vector<std::int32_t>& blocked) const;

  // The key of the numbers by which the next token of a sample is drawn.
  std::uint64_t key(int slot) const;

  // Where `advance` finds how much a hypothesis looks at each source token while its next token is
  // chosen; null where nobody asks.
  float* attention(int slot) {
    return source_size_ == 0 ? nullptr
                             : attention_.data() + static_cast<std::size_t>(slot) * source_size_;
  }

  // Goes on by one token, given the best continuations of every running hypothesis, each list the
  // best first and without those that may not follow.
  void advance(const std::vector<std::span<const Candidate>>& candidates);

  // The best hypothesis first, at most n_best; for once.
  std::vector<Hypothesis> take();

 private:
  struct Next {
    double log_prob;
    int parent;
    std::int32_t token;
  };

  std::vector<Next> best_of(const std::vector<std::span<const Candidate>>& candidates) const;
  void follow(const std::vector<std::span<const Candidate>>& candidates);
  void record(const Running& row, Hypothesis hypothesis);
  void look();
  double score(const Running& row, double log_prob, int length) const;
  void end(const Next& next);
  void cut(int slot);
  bool over(const std::vector<Next>& running) const;
  void go_on(const std::vector<Next>& running);

  const SearchOptions& options_;
  const std::vector<std::int32_t>* prefix_;
  std::uint64_t seed_;
  std::size_t source_size_;  // 0 where coverage does not count
  int max_tokens_;
  int places_;
  int length_ = 0;
  std::vector<Running> running_;
  std::vector<float> attention_;    // of each running hypothesis
  std::vector<double> best_ended_;  // scores, the best first, at most n_best
  std::vector<Hypothesis> found_;
};

}  // namespace regard
