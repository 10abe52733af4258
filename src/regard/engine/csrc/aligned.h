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
