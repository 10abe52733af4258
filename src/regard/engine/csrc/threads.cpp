#include "threads.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace regard {

namespace {

// About 60 microseconds: longer than a pause between two regions of one step, shorter than a
// person or another program would notice.
constexpr int kSpins = 4000;

// What orders what one thread stores before another reads it.
#ifdef __SANITIZE_THREAD__
std::atomic<bool> loose{false};
std::memory_order order(std::memory_order wanted) {
  return loose.load(std::memory_order_relaxed) ? std::memory_order_relaxed : wanted;
}
#else
constexpr std::memory_order order(std::memory_order wanted) { return wanted; }
#endif

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
    if (value.load(order(std::memory_order_acquire)) != seen) return;
    relax();
  }
  value.wait(seen, order(std::memory_order_acquire));
}

}  // namespace

#ifdef __SANITIZE_THREAD__
void loosen(bool on) { loose.store(on, std::memory_order_relaxed); }
#endif

Team::Team(int threads) : process_(getpid()) {
  workers_.reserve(static_cast<std::size_t>(std::max(threads - 1, 0)));
  try {
    for (int share = 1; share < threads; ++share) {
      workers_.emplace_back([this] { serve(); });
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do the work.
  }
}

Team::~Team() {
  if (process_ != getpid()) {
    // Neither to be waited for nor to be let go: what is left of them stays.
    new std::vector<std::thread>(std::move(workers_));
    return;
  }
  closing_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Team::dispatch(Call call, void* context) {
  call_ = call;
  context_ = context;
  failure_ = nullptr;
  const std::uint32_t shares = static_cast<std::uint32_t>(size());
  unfinished_.store(shares, std::memory_order_relaxed);
  left_.store(shares, order(std::memory_order_release));
  round_.fetch_add(1, order(std::memory_order_release));
  round_.notify_all();
  take_shares();
  for (;;) {
    const std::uint32_t unfinished = unfinished_.load(order(std::memory_order_acquire));
    if (unfinished == 0) break;
    wait_while(unfinished_, unfinished);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Team::serve() {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(round_, seen);
    seen = round_.load(order(std::memory_order_acquire));
    if (closing_.load(std::memory_order_relaxed)) return;
    take_shares();
  }
}

// A share once taken holds the round open, so that what it calls is there until it is done; and
// who takes one sees the call that was stored before the count.
void Team::take_shares() {
  std::uint32_t left = left_.load(order(std::memory_order_acquire));
  while (left > 0) {
    if (!left_.compare_exchange_weak(left, left - 1, order(std::memory_order_acq_rel),
                                     order(std::memory_order_acquire))) {
      continue;
    }
    try {
      call_(context_, static_cast<int>(left) - 1);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1, order(std::memory_order_acq_rel)) == 1) unfinished_.notify_all();
    left = left_.load(order(std::memory_order_acquire));
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
