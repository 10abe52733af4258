// Memory for activations: aligned, reused, never smaller than it was.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

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

 private:
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t{kAlignment}); }
  };

  std::unique_ptr<float, Free> data_;
  std::size_t count_ = 0;
};

}  // namespace regard
