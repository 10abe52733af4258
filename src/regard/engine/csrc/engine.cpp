#include "engine.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "model.h"
#include "scheduler.h"
#include "scoring.h"

namespace regard {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kWidestBeam = 1 << 16;
constexpr int kMostTokens = 1 << 20;
constexpr std::int64_t kMostPlaces = 1 << 29;  // in the past of a sentence

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

int checked_threads(int threads) {
  require(threads >= 1 && threads <= kMostThreads,
          "threads = " + std::to_string(threads) + " is not between 1 and " +
              std::to_string(kMostThreads));
  return threads;
}

void check_ids(const std::vector<std::int32_t>& ids, int vocabulary, const std::string& what) {
  for (const std::int32_t id : ids) {
    require(id >= 0 && id < vocabulary, what + " holds the id " + std::to_string(id) +
                                            ", and the vocabulary has " +
                                            std::to_string(vocabulary));
  }
}

void check_sampling(const Sampling& sampling, std::size_t sources) {
  require(sampling.seeds.size() == sources, std::to_string(sampling.seeds.size()) + " seeds for " +
                                                std::to_string(sources) + " sources");
  require(sampling.temperature > 0 && sampling.temperature - sampling.temperature == 0,
          "temperature must be finite and above 0");
  require(sampling.top_k >= 0, "top_k must not be below 0");
  require(sampling.top_p > 0 && sampling.top_p <= 1, "top_p must be above 0 and at most 1");
  require(sampling.min_p >= 0 && sampling.min_p <= 1, "min_p must be between 0 and 1");
}

void check_options(const SearchOptions& options, int vocabulary) {
  check_ids({options.bos, options.eos}, vocabulary, "bos or eos");
  require(options.beam >= 1 && options.beam <= kWidestBeam,
          "beam = " + std::to_string(options.beam) + " is not between 1 and " +
              std::to_string(kWidestBeam));
  require(options.n_best >= 1 && options.n_best <= options.beam,
          "n_best = " + std::to_string(options.n_best) + " is not between 1 and the beam");
  require(options.alpha - options.alpha == 0, "alpha must be finite");
  require(options.coverage >= 0 && options.coverage - options.coverage == 0,
          "coverage must be finite and not below 0");
  require(options.min_tokens >= 0, "min_tokens must not be below 0");
  require(options.no_repeat_ngram >= 0, "no_repeat_ngram must not be below 0");
  require(options.batch_tokens >= 1, "batch_tokens must be at least 1");
}

void check_shortlist(const Shortlist& shortlist, const ModelConfig& config, std::int32_t eos) {
  require(shortlist.sources() == config.source_vocabulary &&
              shortlist.targets() == config.target_vocabulary,
          "the shortlist is for " + std::to_string(shortlist.sources()) + " source and " +
              std::to_string(shortlist.targets()) + " target tokens, and the model has " +
              std::to_string(config.source_vocabulary) + " and " +
              std::to_string(config.target_vocabulary));
  require(shortlist.always(eos), "the shortlist does not let every sentence end");
}

int check_longest(const ModelConfig& config, std::size_t longest) {
  require(longest <= static_cast<std::size_t>(kMostTokens) + 1,
          "a sequence of " + std::to_string(longest) + " tokens is too long");
  require(config.positions != PositionsKind::learned ||
              longest <= static_cast<std::size_t>(config.max_positions),
          "a sequence of " + std::to_string(longest) + " tokens is longer than the " +
              std::to_string(config.max_positions) + " learned positions of the model");
  return static_cast<int>(longest);
}

// The most positions that one of the sentences takes, on either side.
int check_lengths(const ModelConfig& config, const std::vector<Ids>& sources,
                  const std::vector<int>& max_tokens, const std::vector<Ids>& prefixes) {
  std::size_t longest = 1;
  for (std::size_t number = 0; number < sources.size(); ++number) {
    require(max_tokens[number] >= 0 && max_tokens[number] <= kMostTokens,
            "max_tokens = " + std::to_string(max_tokens[number]) + " is not between 0 and " +
                std::to_string(kMostTokens));
    std::size_t target = static_cast<std::size_t>(max_tokens[number]);
    if (!prefixes.empty()) target = std::max(target, prefixes[number].size());
    longest = std::max({longest, sources[number].size(), target + 1});
  }
  return check_longest(config, longest);
}

void check_prefixes(const std::vector<Ids>& prefixes, const SearchOptions& options,
                    int vocabulary) {
  std::set<std::int32_t> forbidden(options.never.begin(), options.never.end());
  forbidden.insert({options.bos, options.eos});
  for (const Ids& prefix : prefixes) {
    check_ids(prefix, vocabulary, "a prefix");
    for (const std::int32_t id : prefix) {
      require(!forbidden.contains(id), "a target prefix may not hold control tokens");
    }
  }
}

// With samples as its hypotheses, if it is to sample.
SearchOptions settled(SearchOptions options) {
  if (!options.sampling.on) return options;
  options.beam = options.n_best;
  options.alpha = 0;
  options.coverage = 0;
  return options;
}

// What is never generated: eos always may be.
std::vector<std::int32_t> never_of(const SearchOptions& options) {
  std::vector<std::int32_t> never = options.never;
  never.push_back(options.bos);
  std::erase(never, options.eos);
  return never;
}

}  // namespace

struct Engine::Parts {
  Parts(const ModelConfig& config, const Weights& weights, Dtype given, int threads)
      : model(config, weights, given), dtype(given), workshop(threads) {}

  Model model;
  Dtype dtype;
  Workshop workshop;
  std::mutex mutex;
};

Engine::Engine(const ModelConfig& config, const Weights& weights, Dtype dtype, int threads)
    : parts_(std::make_unique<Parts>(config, weights, dtype, checked_threads(threads))) {}

Engine::~Engine() = default;

const ModelConfig& Engine::config() const { return parts_->model.config; }
Dtype Engine::dtype() const { return parts_->dtype; }
int Engine::threads() const { return parts_->workshop.team.size(); }
std::size_t Engine::bytes() const { return parts_->model.bytes(); }

std::vector<std::vector<Hypothesis>> Engine::translate(
    const std::vector<Ids>& sources, const SearchOptions& asked,
    const std::vector<int>& max_tokens, const std::vector<Ids>& prefixes,
    const std::atomic<bool>* stop) const {
  const ModelConfig& config = parts_->model.config;
  require(max_tokens.size() == sources.size(),
          std::to_string(max_tokens.size()) + " limits for " + std::to_string(sources.size()) +
              " sources");
  require(prefixes.empty() || prefixes.size() == sources.size(),
          std::to_string(prefixes.size()) + " prefixes for " + std::to_string(sources.size()) +
              " sources");
  const SearchOptions options = settled(asked);
  check_options(options, config.target_vocabulary);
  if (options.sampling.on) check_sampling(options.sampling, sources.size());
  if (options.shortlist != nullptr) check_shortlist(*options.shortlist, config, options.eos);
  for (const Ids& source : sources) check_ids(source, config.source_vocabulary, "a source");
  check_prefixes(prefixes, options, config.target_vocabulary);
  const int longest = check_lengths(config, sources, max_tokens, prefixes);

  require((static_cast<std::int64_t>(longest) + 1) * options.beam <= kMostPlaces,
          "beam = " + std::to_string(options.beam) + " is too wide for " +
              std::to_string(longest) + " tokens");

  const std::lock_guard lock(parts_->mutex);
  parts_->model.reach(longest);
  Job job{parts_->model, options, sources, max_tokens, prefixes, stop, never_of(options), {}, {}};
  job.results.resize(sources.size());
  for (std::size_t number = 0; number < sources.size(); ++number) job.order.push_back(number);
  run(parts_->workshop, job);
  return std::move(job.results);
}

std::vector<Scored> Engine::score(const std::vector<Ids>& sources, const std::vector<Ids>& targets,
                                  const ScoreOptions& options,
                                  const std::atomic<bool>* stop) const {
  const ModelConfig& config = parts_->model.config;
  require(targets.size() == sources.size(), std::to_string(targets.size()) + " targets for " +
                                                std::to_string(sources.size()) + " sources");
  check_ids({options.bos}, config.target_vocabulary, "bos");
  std::size_t longest = 1;
  for (std::size_t number = 0; number < sources.size(); ++number) {
    check_ids(sources[number], config.source_vocabulary, "a source");
    check_ids(targets[number], config.target_vocabulary, "a target");
    longest = std::max({longest, sources[number].size(), targets[number].size()});
  }
  const int reach = check_longest(config, longest);

  const std::lock_guard lock(parts_->mutex);
  parts_->model.reach(reach);
  ScoreJob job{parts_->model, options, sources, targets, stop, {}, {}, {}, {}};
  run(parts_->workshop, job);
  return std::move(job.results);
}

}  // namespace regard
