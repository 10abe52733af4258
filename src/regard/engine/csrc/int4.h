// 4-bit weights: how they lie in a block, how they are made, and the inputs that go with them.
//
// 32 inputs of a column share a scale: w = scale * (nibble - 8). A block of kColumns columns holds
// one such group after the other, and a group its nibbles and then a scale for each column:
//   [block][group] { [input / 8][column][4] bytes, [column] float32 }
// Byte k of a column's four holds input k in its low half and input k + 4 in its high half. Inputs
// are signed bytes here, x = scale * byte, and after those of a row comes, for each group, -8 times
// their sum, 32 bits wide: what takes the 8 out of the nibbles again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace regard::int4 {

inline constexpr int kGroup = 32;
inline constexpr std::size_t kNibbleBytes = std::size_t{kGroup} / 2 * kColumns;
inline constexpr std::size_t kGroupBytes = kNibbleBytes + kColumns * sizeof(float);

inline int groups(int in) { return (in + kGroup - 1) / kGroup; }

// Bytes of an input row with its sums.
inline std::size_t row_bytes(int in) {
  return static_cast<std::size_t>(groups(in)) * (kGroup + sizeof(std::int32_t));
}

// A column of `in` weights into the block that it is in. Of several scales a group takes the one
// that loses least.
void pack(const float* weight, int in, int column, std::byte* block);

// And back, as float32.
void unpack(const std::byte* block, int column, int in, float* weight);

// Turns a row of bytes that are 128 too large into what the kernels read.
void make_ready(std::byte* row, int in);

}  // namespace regard::int4
