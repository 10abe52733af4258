#include "scoring.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>

namespace regard {

namespace {

// Target places that go through the decoder at once: together they stay near the cache.
constexpr std::size_t kRows = 256;

// Works on groups of pairs. All places of a target are rows of one pass through the decoder, which
// writes the keys and values of all rows before it reads any; a place names those up to its own,
// so that it sees what a search would have seen.
class Scorer {
 public:
  Scorer(Work& work, ScoreJob& job)
      : job_(job), work_(work), chooser_(job.model.projection, 1, job.options.never) {}

  void run() {
    for (;;) {
      const std::size_t group = job_.next.fetch_add(1, std::memory_order_relaxed);
      if (group + 1 >= job_.groups.size()) return;
      score(job_.groups[group], job_.groups[group + 1]);
    }
  }

 private:
  struct Place {
    std::size_t pair;
    std::size_t place;
  };

  void keep_on() const {
    if (job_.stop != nullptr && job_.stop->load(std::memory_order_relaxed)) throw Stopped();
  }

  void score(std::size_t begin, std::size_t end);
  void flush();
  void look_up(const float* hidden, bool best);

  ScoreJob& job_;
  Work& work_;
  Chooser chooser_;
  std::vector<std::int32_t> places_;  // 0, 1, 2, ...: a target has one hypothesis
  std::vector<LiveRow> rows_;
  std::vector<Place> which_;  // of each row
  std::vector<Wish> wishes_;
};

void Scorer::score(std::size_t begin, std::size_t end) {
  const ModelConfig& config = job_.model.config;
  const Dtype dtype = job_.model.projection.dtype();
  std::deque<Cache> memories;
  std::deque<Cache> pasts;
  std::vector<Source> sources;
  std::size_t longest = 0;
  for (std::size_t at = begin; at < end; ++at) {
    const std::size_t pair = job_.order[at];
    const std::size_t size = job_.targets[pair].size();
    longest = std::max(longest, size);
    sources.push_back({&job_.sources[pair], &memories.emplace_back(work_.pool, config, dtype)});
    pasts.emplace_back(work_.pool, config, dtype).reach(static_cast<int>(size));
  }
  encode(work_, job_.model, sources, [this] { keep_on(); });
  places_.resize(std::max(places_.size(), longest));
  std::iota(places_.begin(), places_.end(), 0);
  for (std::size_t at = begin; at < end; ++at) {
    const std::size_t pair = job_.order[at];
    const Ids& target = job_.targets[pair];
    const std::size_t source_size = job_.sources[pair].size();
    Scored& result = job_.results[pair];
    result.log_probs.resize(target.size());
    if (job_.options.best) result.best.resize(target.size());
    if (job_.options.attention) result.attention.resize(target.size() * source_size);
    for (std::size_t place = 0; place < target.size(); ++place) {
      LiveRow row;
      row.memory = &memories[at - begin];
      row.memory_length = static_cast<int>(source_size);
      row.past = &pasts[at - begin];
      row.places = places_.data();
      row.length = static_cast<int>(place) + 1;
      row.token = place == 0 ? job_.options.bos : target[place - 1];
      if (job_.options.attention) row.attention = result.attention.data() + place * source_size;
      rows_.push_back(row);
      which_.push_back({pair, place});
      if (rows_.size() == kRows) flush();
    }
  }
  flush();
}

void Scorer::flush() {
  if (rows_.empty()) return;
  keep_on();
  const float* hidden = decode(work_, job_.model, rows_);
  look_up(hidden, false);
  if (job_.options.best) look_up(hidden, true);
  rows_.clear();
  which_.clear();
}

void Scorer::look_up(const float* hidden, bool best) {
  wishes_.resize(rows_.size());
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    wishes_[row].forced = best ? -1 : job_.targets[which_[row].pair][which_[row].place];
  }
  chooser_.choose(work_, hidden, wishes_);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const auto found = chooser_.candidates(row);
    Scored& result = job_.results[which_[row].pair];
    if (best) {
      result.best[which_[row].place] = found.empty() ? -1 : found[0].token;
    } else {
      const float log_prob =
          found.empty() ? -std::numeric_limits<float>::infinity() : found[0].log_prob;
      result.log_probs[which_[row].place] = log_prob;
      result.log_prob += static_cast<double>(log_prob);  // in the order of the places
    }
  }
}

// The longest first, as many together as make a full pass.
void arrange(ScoreJob& job) {
  job.results.resize(job.sources.size());
  job.order.resize(job.sources.size());
  std::iota(job.order.begin(), job.order.end(), std::size_t{0});
  std::stable_sort(job.order.begin(), job.order.end(), [&](std::size_t one, std::size_t other) {
    return job.targets[one].size() > job.targets[other].size();
  });
  std::size_t rows = 0;
  std::size_t tokens = 0;
  for (std::size_t at = 0; at < job.order.size(); ++at) {
    rows += job.targets[job.order[at]].size();
    tokens += job.sources[job.order[at]].size();
    if (at == 0 || rows > kRows || tokens > kRows) {
      job.groups.push_back(at);
      rows = job.targets[job.order[at]].size();
      tokens = job.sources[job.order[at]].size();
    }
  }
  job.groups.push_back(job.order.size());
}

}  // namespace

void run(Workshop& workshop, ScoreJob& job) {
  arrange(job);
  Team& team = workshop.team;
  const std::size_t shares = static_cast<std::size_t>(team.size());
  if (shares == 1 || job.groups.size() - 1 < 2 * shares) {
    Scorer(workshop.together, job).run();
    return;
  }
  team.run([&](int share) {
    try {
      Scorer(*workshop.apart[static_cast<std::size_t>(share)], job).run();
    } catch (...) {
      job.next = job.groups.size();  // the others need not go on
      throw;
    }
  });
}

}  // namespace regard
