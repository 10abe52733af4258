// Which sentences are worked on, and when: one that is done leaves, and a waiting one comes in.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "cache.h"
#include "decoder.h"
#include "encoder.h"
#include "engine.h"
#include "layers.h"
#include "picker.h"
#include "projection.h"
#include "sampling.h"
#include "search.h"

namespace regard {

// One call of Engine::translate, whose arguments must outlive it.
struct Job {
  const Model& model;
  const SearchOptions& options;
  const std::vector<Ids>& sources;
  const std::vector<int>& max_tokens;
  const std::vector<Ids>& prefixes;
  const std::atomic<bool>* stop;
  std::vector<std::int32_t> never;
  std::vector<std::size_t> order;                 // in which sentences come in
  std::vector<std::vector<Hypothesis>> results;  // in the order of the sources
};

// Sentences that wait, for one batch or for several.
struct Queue {
  std::vector<std::size_t> order;
  std::atomic<std::size_t> next{0};  // in `order`
};

// Sentences that run together, refilled out of a queue. Several may serve one job, each on its own
// team.
class Batch {
 public:
  // At most `bound` source tokens times the beam at once, but never less than one sentence.
  Batch(Work& work, Job& job, Queue& queue, std::size_t bound);

  // Until nothing is left. Throws NotANumber and Stopped.
  void run();

 private:
  struct Live {
    Live(Pool& pool, const Job& job, std::size_t number);

    std::size_t number;
    std::size_t cost;
    Cache memory;
    Cache past;
    Search search;
    Allowed allowed;
  };

  void keep_on() const;
  std::span<const Candidate> candidates(std::size_t row) const;
  void refill();
  void step();
  void leave();

  Job& job_;
  Queue& queue_;
  std::size_t bound_;
  std::size_t cost_ = 0;
  Work& work_;
  Chooser chooser_;
  Drawer drawer_;
  std::optional<Picker> picker_;  // where there is a shortlist, in the place of the Chooser
  std::vector<std::unique_ptr<Live>> live_;
  std::vector<LiveRow> rows_;
  std::vector<Wish> wishes_;
};

// A team, and what each of its threads needs to work alone. It keeps its memory between jobs.
struct Workshop {
  explicit Workshop(int threads);

  Team team;
  Work together;
  Team alone{1};
  std::vector<std::unique_ptr<Work>> apart;
};

// How threads divide the work: by what is quicker, or always in one way, for tests.
enum class Sharing { quicker, layers, sentences };
void use_sharing(Sharing sharing);

// Runs the job: the threads share the layers of one batch, or each has a batch of its own. The
// answers are the same.
void run(Workshop& workshop, Job& job);

}  // namespace regard
