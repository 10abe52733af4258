// The engine as it is seen from outside: weights go in once, then sentences in, hypotheses out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "config.h"
#include "kernels.h"
#include "shortlist.h"

namespace regard {

// A float32 array in row-major order that someone else owns.
struct Array {
  const float* data = nullptr;
  std::vector<std::int64_t> shape;
};

// Packed bytes that begin on a cache line and that someone else owns.
struct Section {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// What a model is made of: `arrays` by the names of its state dict
// ("encoder_layers.0.self_attention.input.weight", ...), or, where `packed` says so, `sections` by
// the names that `made` got when such arrays were packed. Sections are used where they are.
struct Weights {
  std::map<std::string, Array> arrays;
  std::map<std::string, Section> sections;
  bool packed = false;
  std::map<std::string, Section>* made = nullptr;  // if given, gets what the model packs

  Array& operator[](const std::string& name) { return arrays[name]; }
};

// Texts that are drawn, not searched for: n_best of each sentence; alpha, coverage and the beam
// have no part in it.
struct Sampling {
  bool on = false;
  std::vector<std::uint64_t> seeds;  // one a source
  double temperature = 1;
  int top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
};

struct SearchOptions {
  std::int32_t bos = 0;
  std::int32_t eos = 0;
  // Tokens that are never generated, bos and pad among them; eos is ignored here.
  std::vector<std::int32_t> never;
  int beam = 1;  // 1: greedy
  int n_best = 1;
  double alpha = 0.6;
  double coverage = 0;  // weight of what hypotheses are taken for source tokens left unread
  int min_tokens = 0;
  int no_repeat_ngram = 0;
  // Bounds what is worked on at once: source tokens times the beam.
  std::size_t batch_tokens = 4096;
  Sampling sampling;
  // If given, what sentences may use; it must outlive the call.
  const Shortlist* shortlist = nullptr;
};

// `tokens` hold neither start nor end; `finished` is false when the search cut it.
struct Hypothesis {
  std::vector<std::int32_t> tokens;
  double log_prob = 0;
  double score = 0;
  bool finished = false;
};

struct ScoreOptions {
  std::int32_t bos = 0;
  bool best = false;       // also find the likeliest token at each place
  bool attention = false;  // also say where each place looked
  // Tokens that are never the likeliest; they may be given all the same.
  std::vector<std::int32_t> never;
};

// A target that was given: one entry a token.
struct Scored {
  double log_prob = 0;  // their sum
  std::vector<float> log_probs;
  std::vector<std::int32_t> best;  // -1 where nothing may follow
  std::vector<float> attention;    // [token][source token], of the last layer, the heads' mean
};

// The stop flag was raised while a call ran.
class Stopped : public std::runtime_error {
 public:
  Stopped() : std::runtime_error("stopped") {}
};

// The model's output is NaN.
class NotANumber : public std::runtime_error {
 public:
  NotANumber() : std::runtime_error("the model's output is not a number (NaN)") {}
};

class Engine {
 public:
  // Packs the weights; arrays are not needed afterwards, sections are. Throws std::invalid_argument when a
  // weight is missing, has another shape, is unknown, or a size makes no sense.
  Engine(const ModelConfig& config, const Weights& weights, Dtype dtype, int threads);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const;
  Dtype dtype() const;
  int threads() const;
  std::size_t bytes() const;  // of packed weights

  // One list a source, the best hypothesis first, in the order of the sources. A source holds the
  // ids that the encoder reads, control tokens included; `max_tokens` has one entry for each, the
  // end token not counted. `prefixes` is empty, or holds for each the tokens to begin with.
  // Calls from several threads wait for one another. Throws std::invalid_argument for bad input,
  // NotANumber, and Stopped soon after `stop` (when given) is set.
  std::vector<std::vector<Hypothesis>> translate(
      const std::vector<std::vector<std::int32_t>>& sources, const SearchOptions& options,
      const std::vector<int>& max_tokens,
      const std::vector<std::vector<std::int32_t>>& prefixes = {},
      const std::atomic<bool>* stop = nullptr) const;

  // How likely each token of a target is, given its source and what comes before it. A target holds
  // all that is predicted, an end token included. Throws as `translate` does.
  std::vector<Scored> score(const std::vector<std::vector<std::int32_t>>& sources,
                            const std::vector<std::vector<std::int32_t>>& targets,
                            const ScoreOptions& options,
                            const std::atomic<bool>* stop = nullptr) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace regard
