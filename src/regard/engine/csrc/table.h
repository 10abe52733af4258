// An embedding's table: float32 beside float32 weights, else bfloat16, which is half of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace regard {

class Table {
 public:
  Table() = default;
  Table(const float* rows, std::size_t count, int width, Dtype dtype);

  void copy_row(int number, float* to) const;
  std::size_t bytes() const;

 private:
  std::size_t width_ = 0;
  std::vector<float> full_;
  std::vector<std::uint16_t> half_;
};

}  // namespace regard
