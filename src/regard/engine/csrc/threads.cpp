#include "threads.h"

#include <algorithm>
#include <system_error>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace regard {

namespace {

// About 20 microseconds: longer than a pause between two regions of one step, shorter than a
// person or another program would notice.
constexpr int kSpins = 400;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits until `value` is no longer `seen`: watching first, then asleep.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != seen) return;
    relax();
  }
  value.wait(seen, std::memory_order_acquire);
}

}  // namespace

Team::Team(int threads) {
  workers_.reserve(static_cast<std::size_t>(std::max(threads - 1, 0)));
  try {
    for (int share = 1; share < threads; ++share) {
      workers_.emplace_back([this, share] { attend_to(share); });
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do the work.
  }
}

Team::~Team() {
  closing_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Team::dispatch(Call call, void* context) {
  call_ = call;
  context_ = context;
  failure_ = nullptr;
  pending_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  perform(0);
  for (;;) {
    const std::uint32_t pending = pending_.load(std::memory_order_acquire);
    if (pending == 0) break;
    wait_while(pending_, pending);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Team::attend_to(int share) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(round_, seen);
    ++seen;
    if (closing_.load(std::memory_order_relaxed)) return;
    perform(share);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_all();
  }
}

void Team::perform(int share) {
  try {
    call_(context_, share);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

Range share_of(int count, int unit, int share, int shares) {
  const std::int64_t units = (static_cast<std::int64_t>(count) + unit - 1) / unit;
  const std::int64_t begin = units * share / shares * unit;
  const std::int64_t end = units * (share + 1) / shares * unit;
  return {static_cast<int>(std::min<std::int64_t>(begin, count)),
          static_cast<int>(std::min<std::int64_t>(end, count))};
}

}  // namespace regard
