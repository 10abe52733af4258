// Memory that starts on a cache line, as the vector kernels want it.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace regard {

inline constexpr std::size_t kLine = 64;

template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{kLine}));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{kLine}); }
  template <class U>
  bool operator==(const LineAllocator<U>&) const { return true; }
};

template <class T>
using Aligned = std::vector<T, LineAllocator<T>>;

}  // namespace regard
