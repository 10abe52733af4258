#include "disorder.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace regard {

namespace {

std::atomic<bool> on_purpose{false};

// What a row holds at a place, as float32.
float value_at(const Input& input, std::size_t row, int place) {
  const std::byte* packed = input.packed() + row * input.packed_stride();
  switch (input.dtype()) {
    case Dtype::f32: return input.x()[row * input.x_stride() + static_cast<std::size_t>(place)];
    case Dtype::bf16: {
      std::uint32_t bits = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, packed + 2 * place, 2);
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case Dtype::i8: break;
  }
  return input.scale()[row] * static_cast<float>(static_cast<int>(packed[place]) - 128);
}

}  // namespace

void set_disorder(bool on) { on_purpose.store(on, std::memory_order_relaxed); }

bool disorder() { return on_purpose.load(std::memory_order_relaxed); }

void apply_in_disorder(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                       int begin, int end) {
  const int in = linear.in();
  const int start = static_cast<int>(input.rows() % static_cast<std::size_t>(in));
  std::vector<float> weight(static_cast<std::size_t>(in));
  for (int column = begin; column < end; ++column) {
    linear.unpack(column, weight.data());
    for (std::size_t row = 0; row < input.rows(); ++row) {
      float sum = linear.bias()[column];
      for (int step = 0; step < in; ++step) {
        const int place = step < in - start ? step + start : step + start - in;
        sum += value_at(input, row, place) * weight[static_cast<std::size_t>(place)];
      }
      y[row * y_stride + static_cast<std::size_t>(column - begin)] = sum;
    }
  }
}

}  // namespace regard
