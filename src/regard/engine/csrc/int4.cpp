#include "int4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace regard::int4 {

namespace {

constexpr float kLeast = 1e-36f;  // below it a group is zeros, as elsewhere

// To the nearest integer, the even one of two, of what is far below 2^22.
float rounded(float value) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (value + kShift) - kShift;
}

float level(float value, float inverse) {
  return std::clamp(rounded(value * inverse), -8.0f, 7.0f);
}

float loss(const float* weight, int count, float scale, float inverse) {
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    const float lost = weight[i] - scale * level(weight[i], inverse);
    sum += lost * lost;
  }
  return sum;
}

// The scale of a group: its largest weight becomes about -8, whatever its sign, or is cut.
float scale_of(const float* weight, int count) {
  float most = 0;
  bool finite = true;
  for (int i = 0; i < count; ++i) {
    finite = finite && std::isfinite(weight[i]);
    if (std::abs(weight[i]) > std::abs(most)) most = weight[i];
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  if (std::abs(most) < kLeast) return 0;
  float best = 0, least = std::numeric_limits<float>::infinity();
  for (float steps = 8; steps >= 6; steps -= 0.25f) {
    const float scale = most / -steps;
    const float lost = loss(weight, count, scale, -steps / most);
    if (lost < least || best == 0) {
      best = scale;
      least = lost;
    }
  }
  return best;
}

std::byte* nibbles_of(std::byte* block, int group, int column, int input) {
  return block + static_cast<std::size_t>(group) * kGroupBytes +
         static_cast<std::size_t>(input / 8 * kColumns + column) * 4 + input % 4;
}

}  // namespace

void pack(const float* weight, int in, int column, std::byte* block) {
  for (int group = 0; group < groups(in); ++group) {
    const float* from = weight + group * kGroup;
    const int count = std::min(kGroup, in - group * kGroup);
    const float scale = scale_of(from, count);
    const float inverse = scale == 0 ? 0 : 1 / scale;
    for (int i = 0; i < kGroup; ++i) {
      const float found = i < count && !std::isnan(scale) ? level(from[i], inverse) : 0;
      const auto nibble = static_cast<std::byte>(static_cast<int>(found) + 8);
      *nibbles_of(block, group, column, i) |= i % 8 < 4 ? nibble : nibble << 4;
    }
    std::memcpy(block + static_cast<std::size_t>(group) * kGroupBytes + kNibbleBytes +
                    static_cast<std::size_t>(column) * sizeof(float),
                &scale, sizeof scale);
  }
}

void unpack(const std::byte* block, int column, int in, float* weight) {
  for (int i = 0; i < in; ++i) {
    const std::byte* at = block + static_cast<std::size_t>(i / kGroup) * kGroupBytes;
    const int inside = i % kGroup;
    const std::byte both = at[static_cast<std::size_t>(inside / 8 * kColumns + column) * 4 +
                              static_cast<std::size_t>(inside % 4)];
    const int nibble = std::to_integer<int>(inside % 8 < 4 ? both & std::byte{15} : both >> 4);
    float scale;
    std::memcpy(&scale, at + kNibbleBytes + static_cast<std::size_t>(column) * sizeof scale,
                sizeof scale);
    weight[i] = scale * static_cast<float>(nibble - 8);
  }
}

void make_ready(std::byte* row, int in) {
  std::byte* sums = row + groups(in) * kGroup;
  for (int group = 0; group < groups(in); ++group) {
    std::byte* some = row + group * kGroup;
    std::int32_t sum = 0;
    for (int i = 0; i < kGroup; ++i) {
      some[i] ^= std::byte{128};
      sum += static_cast<std::int8_t>(some[i]);
    }
    sum *= -8;
    std::memcpy(sums + static_cast<std::size_t>(group) * sizeof sum, &sum, sizeof sum);
  }
}

}  // namespace regard::int4
