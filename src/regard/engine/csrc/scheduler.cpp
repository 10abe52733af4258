#include "scheduler.h"

#include <algorithm>

namespace regard {

namespace {

// With fewer rows than this a step is bound by reading the weights, which a team does together.
constexpr std::size_t kManyRows = 64;

// The past has room for so many at first, and grows.
constexpr int kFirstPositions = 16;

std::size_t cost_of(const Job& job, std::size_t number) {
  const std::size_t tokens = std::max(job.sources[number].size(), std::size_t{1});
  return tokens * static_cast<std::size_t>(job.options.beam);
}

}  // namespace

Batch::Live::Live(Pool& pool, const Job& job, std::size_t which)
    : number(which), cost(cost_of(job, which)), memory(pool, job.model.config),
      past(pool, job.model.config),
      search(job.options, job.max_tokens[which],
             job.prefixes.empty() ? nullptr : &job.prefixes[which]) {
  past.reach(std::min(kFirstPositions, job.max_tokens[which] + 1) * job.options.beam);
}

Batch::Batch(Work& work, Job& job, std::size_t bound)
    : job_(job), bound_(bound), work_(work),
      chooser_(job.model.projection, job.options.beam, job.never) {}

void Batch::run() {
  for (;;) {
    keep_on();
    refill();
    if (live_.empty()) return;
    step();
    leave();
  }
}

void Batch::keep_on() const {
  if (job_.stop != nullptr && job_.stop->load(std::memory_order_relaxed)) throw Stopped();
}

void Batch::refill() {
  // A few at a time: an encoder over one short sentence would read its weights for a few rows.
  if (!live_.empty() && cost_ > bound_ - bound_ / 8) return;
  std::vector<Source> sources;
  for (;;) {
    std::size_t place = job_.next.load(std::memory_order_relaxed);
    std::size_t number = 0;
    do {
      if (place >= job_.order.size()) break;
      number = job_.order[place];
      if (!live_.empty() && cost_ + cost_of(job_, number) > bound_) place = job_.order.size();
    } while (place < job_.order.size() &&
             !job_.next.compare_exchange_weak(place, place + 1, std::memory_order_relaxed));
    if (place >= job_.order.size()) break;
    live_.push_back(std::make_unique<Live>(work_.pool, job_, number));
    cost_ += live_.back()->cost;
    sources.push_back({&job_.sources[number], &live_.back()->memory});
  }
  encode(work_, job_.model, sources, [this] { keep_on(); });
}

void Batch::step() {
  rows_.clear();
  std::size_t count = 0;
  for (const auto& live : live_) count += live->search.running().size();
  wishes_.resize(count);
  for (const auto& live : live_) {
    const Search& search = live->search;
    live->past.reach((search.length() + 1) * job_.options.beam);
    for (int slot = 0; slot < static_cast<int>(search.running().size()); ++slot) {
      const Running& running = search.running()[static_cast<std::size_t>(slot)];
      Wish& wish = wishes_[rows_.size()];
      wish.forced = search.forced();
      search.block(slot, wish.blocked);
      rows_.push_back({&live->memory, static_cast<int>(job_.sources[live->number].size()),
                       &live->past, running.places.data(), search.length() + 1,
                       search.last(slot)});
    }
  }
  const float* hidden = decode(work_, job_.model, rows_);
  chooser_.choose(work_, hidden, wishes_);
  std::vector<std::span<const Candidate>> candidates;
  std::size_t row = 0;
  for (const auto& live : live_) {
    candidates.clear();
    const std::size_t running = live->search.running().size();
    for (std::size_t slot = 0; slot < running; ++slot) {
      candidates.push_back(chooser_.candidates(row++));
    }
    live->search.advance(candidates);
  }
}

void Batch::leave() {
  for (const auto& live : live_) {
    if (!live->search.done()) continue;
    job_.results[live->number] = live->search.take();
    cost_ -= live->cost;
  }
  std::erase_if(live_, [](const auto& live) { return live->search.done(); });
}

Workshop::Workshop(int threads) : team(threads), together(team) {
  for (int share = 0; share < team.size(); ++share) {
    apart.push_back(std::make_unique<Work>(alone));
  }
}

void run(Workshop& workshop, Job& job) {
  Team& team = workshop.team;
  // The longest first: the last ones to run are then short, and threads end together.
  std::stable_sort(job.order.begin(), job.order.end(), [&](std::size_t one, std::size_t other) {
    return job.sources[one].size() > job.sources[other].size();
  });
  const std::size_t shares = static_cast<std::size_t>(team.size());
  const std::size_t rows = job.order.size() * static_cast<std::size_t>(job.options.beam);
  if (shares == 1 || rows < kManyRows || job.order.size() < 2 * shares) {
    Batch(workshop.together, job, job.options.batch_tokens).run();
    return;
  }
  // Not more at a time than an even share of all there is, so that none is left without.
  std::size_t total = 0;
  for (const std::size_t number : job.order) total += cost_of(job, number);
  const std::size_t bound =
      std::min(job.options.batch_tokens / shares, (total + shares - 1) / shares);
  team.run([&](int share) {
    try {
      Batch(*workshop.apart[static_cast<std::size_t>(share)], job, std::max(bound, std::size_t{1})).run();
    } catch (...) {
      job.next = job.order.size();  // the others need not go on
      throw;
    }
  });
}

}  // namespace regard
