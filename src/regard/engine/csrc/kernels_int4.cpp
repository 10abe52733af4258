// 4-bit weights in plain C++.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "int4.h"
#include "kernel_table.h"

namespace regard {

namespace {

// One row by one block.
void block_of_row(const Linear& linear, const std::byte* row, float scale, int column, int wanted,
                  float* y) {
  const int groups = linear.steps();
  float totals[kColumns] = {};
  const std::byte* at = linear.block(column / kColumns);
  for (int group = 0; group < groups; ++group, at += int4::kGroupBytes) {
    std::int32_t correction;
    std::memcpy(&correction, row + groups * int4::kGroup + group * 4, sizeof correction);
    std::int32_t sums[kColumns];
    std::fill_n(sums, kColumns, correction);
    for (int eight = 0; eight < int4::kGroup / 8; ++eight) {
      const std::byte* x = row + group * int4::kGroup + eight * 8;
      for (int c = 0; c < kColumns; ++c) {
        for (int k = 0; k < 4; ++k) {
          const int both = std::to_integer<int>(at[(eight * kColumns + c) * 4 + k]);
          sums[c] += (both & 15) * static_cast<std::int8_t>(x[k]) +
                     (both >> 4) * static_cast<std::int8_t>(x[k + 4]);
        }
      }
    }
    const float* scales = reinterpret_cast<const float*>(at + int4::kNibbleBytes);
    for (int c = 0; c < kColumns; ++c) totals[c] += static_cast<float>(sums[c]) * scales[c];
  }
  for (int c = 0; c < wanted; ++c) y[c] = totals[c] * scale + linear.bias()[column + c];
}

void apply_int4(const Linear& linear, const Input& input, float* y, std::size_t y_stride, int begin,
                int end) {
  for (int column = begin; column < end; column += kColumns) {
    for (std::size_t r = 0; r < input.rows(); ++r) {
      block_of_row(linear, input.packed() + r * input.packed_stride(), input.scale()[r], column,
                   std::min(kColumns, end - column), y + r * y_stride + (column - begin));
    }
  }
}

}  // namespace

LinearKernel portable_i4() { return apply_int4; }

}  // namespace regard
