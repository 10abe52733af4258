// Memory for activations: aligned, reused, never smaller than it was.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <utility>

namespace regard {

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  // Room for `count` floats; what was there is lost when it has to grow.
  float* room(std::size_t count) {
    if (count > count_) {
      data_.reset();
      count_ = 0;
      data_.reset(static_cast<float*>(
          ::operator new(count * sizeof(float), std::align_val_t{kAlignment})));
      count_ = count;
    }
    return data_.get();
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::size_t size() const { return count_; }

 private:
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t{kAlignment}); }
  };

  std::unique_ptr<float, Free> data_;
  std::size_t count_ = 0;
};

// Buffers that nobody uses now, for the next one who needs some: memory that the system has given
// once costs nothing, and new memory a fault for every page.
class Pool {
 public:
  // At least `count` floats.
  Buffer take(std::size_t count) {
    const auto found = free_.lower_bound(count);
    if (found != free_.end() && found->first / 4 <= count) {
      return std::move(free_.extract(found).mapped());
    }
    std::size_t rounded = 1024;
    while (rounded < count) rounded *= 2;
    Buffer fresh;
    fresh.room(rounded);
    return fresh;
  }

  void give(Buffer buffer) {
    const std::size_t size = buffer.size();
    if (size > 0) free_.emplace(size, std::move(buffer));
  }

 private:
  std::multimap<std::size_t, Buffer> free_;
};

}  // namespace regard
