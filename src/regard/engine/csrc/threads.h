// A few threads that work on one task together and sleep between tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace regard {

struct Range {
  int begin, end;
};

// Share `share` of `shares` nearly equal shares of [0, count), cut at multiples of `unit`.
Range share_of(int count, int unit, int share, int shares);

// One task at a time; the caller is share 0, so a team of one has no threads.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(share) for every share of [0, size()) at once and returns when all are done; the
  // first exception is rethrown.
  template <class Work>
  void run(Work&& work) {
    using Kind = std::remove_reference_t<Work>;
    dispatch([](void* context, int share) { (*static_cast<Kind*>(context))(share); },
             const_cast<void*>(static_cast<const void*>(&work)));
  }

 private:
  using Call = void (*)(void* context, int share);

  void dispatch(Call call, void* context);
  void attend_to(int share);
  void perform(int share);

  std::vector<std::thread> workers_;
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::uint32_t> round_{0};    // told up when a task is there, or the end
  std::atomic<std::uint32_t> pending_{0};  // workers that are not done yet
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace regard
