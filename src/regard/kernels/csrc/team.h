// Work shared out over PyTorch's own threads.
//
// A second team beside PyTorch's would fight it for the cores. Its threads are those of the OpenMP
// library that it brought along, whose entry the caller has looked up in that library.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace regard {

// GOMP_parallel: runs the function on each of that many threads, the caller's among them.
using Parallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);

struct Team {
  Parallel parallel = nullptr;  // null where there is none
  unsigned threads = 1;

  // Calls work(block) once for each block below `blocks`, in any order and at the same time.
  template <class Work>
  void run(std::int64_t blocks, Work&& work) const {
    run_numbered(blocks, [&](std::int64_t block, unsigned) { work(block); });
  }

  // Calls work(block, thread), the threads numbered from 0 on.
  template <class Work>
  void run_numbered(std::int64_t blocks, Work&& work) const {
    if (parallel == nullptr || threads < 2 || blocks < 2) {
      for (std::int64_t block = 0; block < blocks; ++block) work(block, 0u);
      return;
    }
    struct Job {
      std::remove_reference_t<Work>* work;
      std::int64_t blocks;
      std::atomic<std::int64_t> next{0};
      std::atomic<unsigned> arrived{0};
    } job{&work, blocks};
    parallel(
        [](void* data) {
          Job& mine = *static_cast<Job*>(data);
          const unsigned number = mine.arrived.fetch_add(1);
          for (std::int64_t block; (block = mine.next.fetch_add(1)) < mine.blocks;) {
            (*mine.work)(block, number);
          }
        },
        &job, threads, 0);
  }
};

}  // namespace regard
