// An embedding's table: float32 beside float32 weights, else bfloat16, which is half of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aligned.h"
#include "kernels.h"

namespace regard {

class Table {
 public:
  Table() = default;
  Table(const float* rows, std::size_t count, int width, Dtype dtype);

  // The same over what `data` of another was; it must stay.
  static Table view(const std::byte* data, std::size_t count, int width, Dtype dtype);
  static std::size_t bytes_of(std::size_t count, int width, Dtype dtype);
  const void* data() const;

  void copy_row(int number, float* to) const;
  std::size_t bytes() const;

 private:
  std::size_t width_ = 0;
  Stored<float> full_;
  Stored<std::uint16_t> half_;
};

}  // namespace regard
