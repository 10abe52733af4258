// Memory that starts on a cache line, as the vector kernels want it; large pieces of it in large
// pages, where the system has them: their addresses are then found without a search, and what the
// processor fetches ahead doesn't stop every 4 KB.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace regard {

inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kLargePage = std::size_t{2} << 20;

inline std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes >= kLargePage ? kLargePage : kLine};
}

inline void* allocate_aligned(std::size_t bytes) {
  void* memory = ::operator new(bytes, alignment_of(bytes));
#if defined(MADV_HUGEPAGE)
  // A wish: without it everything works, a little slower.
  if (bytes >= kLargePage) ::madvise(memory, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  return memory;
}

inline void free_aligned(void* memory, std::size_t bytes) {
  ::operator delete(memory, alignment_of(bytes));
}

template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_aligned(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) { free_aligned(memory, count * sizeof(T)); }
  template <class U>
  bool operator==(const LineAllocator<U>&) const { return true; }
};

template <class T>
using Aligned = std::vector<T, LineAllocator<T>>;

// Values of its own, or a view of some that someone else keeps: a file that is mapped.
template <class T>
class Stored {
 public:
  void assign(std::size_t count, T value) {
    view_ = nullptr;
    own_.assign(count, value);
  }
  void view(const T* data, std::size_t count) {
    own_ = {};
    view_ = data;
    count_ = count;
  }

  // Only of its own values.
  T* own() { return own_.data(); }
  T& operator[](std::size_t place) { return own_[place]; }

  const T* data() const { return view_ != nullptr ? view_ : own_.data(); }
  const T& operator[](std::size_t place) const { return data()[place]; }
  std::size_t size() const { return view_ != nullptr ? count_ : own_.size(); }
  std::size_t bytes() const { return size() * sizeof(T); }
  bool empty() const { return size() == 0; }

 private:
  Aligned<T> own_;
  const T* view_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace regard
