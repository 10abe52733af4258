// Targets that are given: how likely a model finds each of their tokens, all places at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "engine.h"
#include "model.h"
#include "scheduler.h"

namespace regard {

// One call of Engine::score, whose arguments must outlive it.
struct ScoreJob {
  const Model& model;
  const ScoreOptions& options;
  const std::vector<Ids>& sources;
  const std::vector<Ids>& targets;
  const std::atomic<bool>* stop;
  std::vector<std::size_t> order;    // in which pairs are worked on
  std::vector<std::size_t> groups;   // where in `order` each group begins, and at last its size
  std::atomic<std::size_t> next{0};  // the next group
  std::vector<Scored> results;       // in the order of the sources
};

// Runs the job: layer by layer on all threads when there is little to do, and else each thread on
// its own pairs. The bits are the same: a row of the decoder does not know of those beside it.
void run(Workshop& workshop, ScoreJob& job);

}  // namespace regard
