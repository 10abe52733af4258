// A few threads that work on one thing at a time and sleep when there is nothing to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace regard {

// For a control, where races are watched for: whether threads meet without an order from now on.
void loosen(bool on);

// `run` is for one caller at a time. The caller is one of the threads: a team of one starts none.
// In a process that was forked since, the others are not there, and the caller does all.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(share) once for each share below size() and waits for all; what one of them throws
  // is thrown here. Which thread takes a share is open: on a busy machine, where the others are
  // late, the caller takes theirs too.
  template <class Work>
  void run(Work&& work) {
    if (workers_.empty()) {
      work(0);
      return;
    }
    using Plain = std::remove_reference_t<Work>;
    dispatch([](void* context, int share) { (*static_cast<Plain*>(context))(share); }, &work);
  }

 private:
  using Call = void (*)(void*, int);

  void dispatch(Call call, void* context);
  void serve();
  void take_shares();

  std::vector<std::thread> workers_;
  int process_;  // where they run
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::uint32_t> round_{0};       // what a sleeper waits for
  std::atomic<std::uint32_t> left_{0};        // shares that nobody has taken
  std::atomic<std::uint32_t> unfinished_{0};  // shares that are not done
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

// The part [begin, end) of `count` things that falls to one of `shares`, in units of `unit`.
struct Range {
  int begin;
  int end;
};
Range share_of(int count, int unit, int share, int shares);

}  // namespace regard
