#include "table.h"

#include <algorithm>
#include <bit>

namespace regard {

namespace {

// To the nearest, to the even one of two; a NaN stays one.
std::uint16_t rounded(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

Table::Table(const float* rows, std::size_t count, int width, Dtype dtype)
    : width_(static_cast<std::size_t>(width)) {
  const std::size_t size = count * width_;
  if (dtype == Dtype::f32) {
    full_.assign(size, 0);
    std::copy_n(rows, size, full_.own());
  } else {
    half_.assign(size, 0);
    std::transform(rows, rows + size, half_.own(), rounded);
  }
}

Table Table::view(const std::byte* data, std::size_t count, int width, Dtype dtype) {
  Table table;
  table.width_ = static_cast<std::size_t>(width);
  const std::size_t size = count * table.width_;
  if (dtype == Dtype::f32) {
    table.full_.view(reinterpret_cast<const float*>(data), size);
  } else {
    table.half_.view(reinterpret_cast<const std::uint16_t*>(data), size);
  }
  return table;
}

std::size_t Table::bytes_of(std::size_t count, int width, Dtype dtype) {
  return count * static_cast<std::size_t>(width) *
         (dtype == Dtype::f32 ? sizeof(float) : sizeof(std::uint16_t));
}

const void* Table::data() const {
  return full_.empty() ? static_cast<const void*>(half_.data()) : full_.data();
}

void Table::copy_row(int number, float* to) const {
  const std::size_t start = static_cast<std::size_t>(number) * width_;
  if (!full_.empty()) {
    std::copy_n(full_.data() + start, width_, to);
    return;
  }
  const std::uint16_t* from = half_.data() + start;
  for (std::size_t i = 0; i < width_; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
  }
}

std::size_t Table::bytes() const {
  return full_.bytes() + half_.bytes();
}

}  // namespace regard
