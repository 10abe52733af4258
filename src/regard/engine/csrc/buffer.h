// Memory for activations: aligned, reused, never smaller than it was.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "aligned.h"

namespace regard {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() { drop(); }

  // Room for `count` floats; what was there is lost when it has to grow.
  float* room(std::size_t count) {
    if (count > count_) {
      drop();
      data_ = static_cast<float*>(allocate_aligned(count * sizeof(float)));
      count_ = count;
    }
    return data_;
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::size_t size() const { return count_; }

 private:
  void drop() {
    if (data_ != nullptr) free_aligned(data_, count_ * sizeof(float));
    data_ = nullptr;
    count_ = 0;
  }

  float* data_ = nullptr;
  std::size_t count_ = 0;
};

// A part of a pool's memory.
struct Piece {
  float* data = nullptr;
  std::size_t size = 0;
};

// Pieces that nobody uses now, for the next one who needs some: memory that the system has given
// once costs nothing, and new memory a fault for every page. They are cut from large slabs, which
// live as long as the pool.
class Pool {
 public:
  // At least `count` floats, on a cache line.
  Piece take(std::size_t count) {
    const auto found = free_.lower_bound(count);
    if (found != free_.end() && found->first / 4 <= count) {
      const Piece piece = found->second;
      free_.erase(found);
      return piece;
    }
    std::size_t unit = 1024;  // a size is one to eight of them, so that few sizes are in use
    while (8 * unit < count) unit *= 2;
    const std::size_t rounded = (count + unit - 1) / unit * unit;
    if (rounded > rest_.size) {
      give(rest_);
      const std::size_t size = std::max(rounded, kLargePage / sizeof(float));
      slabs_.emplace_back();
      rest_ = {slabs_.back().room(size), size};
    }
    const Piece piece{rest_.data, rounded};
    rest_ = {rest_.data + rounded, rest_.size - rounded};
    return piece;
  }

  void give(Piece piece) {
    if (piece.size > 0) free_.emplace(piece.size, piece);
  }

 private:
  std::multimap<std::size_t, Piece> free_;
  std::vector<Buffer> slabs_;
  Piece rest_;  // of the last slab
};

}  // namespace regard
