#include "scheduler.h"

#include <algorithm>

namespace regard {

namespace {

// A step that reads no more weights than this is over before threads have met a few times.
constexpr std::size_t kLittle = 8 << 20;

// Weights up to this size wait in the last cache for the next step, so each thread may read them.
constexpr std::size_t kCached = 24 << 20;

// Others come from memory at every step, so threads read them together; unless each thread has so
// many rows, times the number of threads, that it computes for longer than it reads.
constexpr std::size_t kRowsForReading = 16;

// The past has room for so many at first, or for a translation about as long as its source; what it
// leaves when it grows is of use to a shorter one only.
constexpr int kFirstPositions = 16;

std::size_t cost_of(const Job& job, std::size_t number) {
  const std::size_t tokens = std::max(job.sources[number].size(), std::size_t{1});
  return tokens * static_cast<std::size_t>(job.options.beam);
}

std::atomic<Sharing> sharing_now{Sharing::quicker};

// The weights of all that a step of the decoder multiplies with.
std::size_t bytes_of_step(const Model& model) {
  std::size_t bytes = model.projection.bytes();
  for (const DecoderLayer& layer : model.decoder) {
    for (const Linear* linear :
         {&layer.self_attention.input, &layer.self_attention.output, &layer.cross_attention.query,
          &layer.cross_attention.output, &layer.feed_forward.input, &layer.feed_forward.output}) {
      bytes += linear->bytes();
    }
  }
  return bytes;
}

// Whether each thread should have sentences of its own.
bool apart(const Job& job, std::size_t shares, std::size_t cost) {
  const Sharing sharing = sharing_now.load(std::memory_order_relaxed);
  if (shares == 1 || sharing == Sharing::layers) return false;
  if (sharing == Sharing::sentences) return true;
  const std::size_t bytes = bytes_of_step(job.model);
  if (bytes <= kLittle) return true;
  const std::size_t sentences = job.order.size();
  if (bytes <= kCached) return sentences >= shares;
  const std::size_t at_once =
      cost <= job.options.batch_tokens ? sentences : sentences * job.options.batch_tokens / cost;
  return sentences >= 2 * shares &&
         at_once * static_cast<std::size_t>(job.options.beam) >= kRowsForReading * shares * shares;
}

// One queue for all when there is more than runs at once; else each share gets every n-th
// sentence, so that all have as much to do.
std::vector<Queue> deal(const Job& job, std::size_t shares, bool all_at_once) {
  std::vector<Queue> queues(all_at_once ? std::min(shares, job.order.size()) : 1);
  for (std::size_t place = 0; place < job.order.size(); ++place) {
    queues[place % queues.size()].order.push_back(job.order[place]);
  }
  return queues;
}

}  // namespace

Batch::Live::Live(Pool& pool, const Job& job, std::size_t which)
    : number(which), cost(cost_of(job, which)),
      memory(pool, job.model.config, job.model.projection.dtype()),
      past(pool, job.model.config, job.model.projection.dtype()),
      search(job.options, which, static_cast<int>(job.sources[which].size()), job.max_tokens[which],
             job.prefixes.empty() ? nullptr : &job.prefixes[which]) {
  const int likely = std::max({kFirstPositions, static_cast<int>(job.sources[which].size()) + 8,
                               job.options.min_tokens + 1});
  past.reach(std::min(likely, job.max_tokens[which] + 1) * job.options.beam);
  if (const Shortlist* shortlist = job.options.shortlist) {
    allowed.tokens = shortlist->allowed(job.sources[which],
                                        job.prefixes.empty() ? nullptr : &job.prefixes[which]);
  }
}

Batch::Batch(Work& work, Job& job, Queue& queue, std::size_t bound)
    : job_(job), queue_(queue), bound_(bound), work_(work),
      chooser_(job.model.projection, job.options.beam, job.never),
      drawer_(job.model.projection, job.options.sampling, job.never) {
  if (job.options.shortlist != nullptr && !job.options.sampling.on) {
    picker_.emplace(job.model.projection, job.options.beam, job.never);
  }
}

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
    std::size_t place = queue_.next.load(std::memory_order_relaxed);
    std::size_t number = 0;
    do {
      if (place >= queue_.order.size()) break;
      number = queue_.order[place];
      if (!live_.empty() && cost_ + cost_of(job_, number) > bound_) place = queue_.order.size();
    } while (place < queue_.order.size() &&
             !queue_.next.compare_exchange_weak(place, place + 1, std::memory_order_relaxed));
    if (place >= queue_.order.size()) break;
    live_.push_back(std::make_unique<Live>(work_.pool, job_, number));
    cost_ += live_.back()->cost;
    if (picker_) picker_->enter(live_.back()->allowed);
    sources.push_back({&job_.sources[number], &live_.back()->memory});
  }
  encode(work_, job_.model, sources, [this] { keep_on(); });
}

void Batch::step() {
  const bool drawn = job_.options.sampling.on;
  rows_.clear();
  std::size_t count = 0;
  for (const auto& live : live_) count += live->search.running().size();
  wishes_.resize(count);
  for (const auto& live : live_) {
    const Search& search = live->search;
    live->past.reach((search.length() + 1) * job_.options.beam,
                     (job_.max_tokens[live->number] + 1) * job_.options.beam);
    for (int slot = 0; slot < static_cast<int>(search.running().size()); ++slot) {
      const Running& running = search.running()[static_cast<std::size_t>(slot)];
      Wish& wish = wishes_[rows_.size()];
      wish.forced = search.forced();
      search.block(slot, wish.blocked);
      wish.allowed = job_.options.shortlist == nullptr ? nullptr : &live->allowed;
      if (drawn) wish.key = search.key(slot);
      rows_.push_back({&live->memory, static_cast<int>(job_.sources[live->number].size()),
                       &live->past, running.places.data(), search.length() + 1,
                       search.last(slot), live->search.attention(slot)});
    }
  }
  const float* hidden = decode(work_, job_.model, rows_);
  if (drawn) {
    drawer_.choose(work_, hidden, wishes_);
  } else if (picker_) {
    picker_->choose(work_, hidden, wishes_);
  } else {
    chooser_.choose(work_, hidden, wishes_);
  }
  std::vector<std::span<const Candidate>> candidates;
  std::size_t row = 0;
  for (const auto& live : live_) {
    candidates.clear();
    const std::size_t running = live->search.running().size();
    for (std::size_t slot = 0; slot < running; ++slot) {
      candidates.push_back(this->candidates(row++));
    }
    live->search.advance(candidates);
  }
}

std::span<const Candidate> Batch::candidates(std::size_t row) const {
  if (job_.options.sampling.on) return drawer_.candidates(row);
  return picker_ ? picker_->candidates(row) : chooser_.candidates(row);
}

void Batch::leave() {
  for (const auto& live : live_) {
    if (!live->search.done()) continue;
    job_.results[live->number] = live->search.take();
    cost_ -= live->cost;
    if (picker_) picker_->leave(live->allowed);
  }
  std::erase_if(live_, [](const auto& live) { return live->search.done(); });
}

Workshop::Workshop(int threads) : team(threads), together(team) {
  for (int share = 0; share < team.size(); ++share) {
    apart.push_back(std::make_unique<Work>(alone));
  }
}

void use_sharing(Sharing sharing) { sharing_now.store(sharing, std::memory_order_relaxed); }

void run(Workshop& workshop, Job& job) {
  if (job.order.empty()) return;
  Team& team = workshop.team;
  // The longest first: the last ones to run are then short, and threads end together.
  std::stable_sort(job.order.begin(), job.order.end(), [&](std::size_t one, std::size_t other) {
    return job.sources[one].size() > job.sources[other].size();
  });
  std::size_t cost = 0;
  for (const std::size_t number : job.order) cost += cost_of(job, number);
  const std::size_t shares = static_cast<std::size_t>(team.size());
  const std::size_t bound = job.options.batch_tokens;
  if (!apart(job, shares, cost)) {
    std::vector<Queue> one = deal(job, 1, false);
    Batch(workshop.together, job, one[0], bound).run();
    return;
  }
  const bool all_at_once = cost <= bound;
  std::vector<Queue> queues = deal(job, shares, all_at_once);
  const std::size_t part = all_at_once ? bound : std::max(bound / shares, std::size_t{1});
  const auto serve = [&](std::size_t share) {
    try {
      Batch(*workshop.apart[share], job, queues[share % queues.size()], part).run();
    } catch (...) {
      for (Queue& queue : queues) queue.next = queue.order.size();  // the others need not go on
      throw;
    }
  };
  if (job.order.size() == 1) {
    serve(0);
  } else {
    team.run([&](int share) { serve(static_cast<std::size_t>(share)); });
  }
}

}  // namespace regard
