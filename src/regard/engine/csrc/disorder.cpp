#include "disorder.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace regard {

namespace {

std::atomic<bool> on_purpose{false};

// What a row holds at a place, as float32.
float value_at(const Input& input, std::size_t row, std::size_t place) {
  const std::byte* packed = input.packed() + row * input.packed_stride();
  switch (input.dtype()) {
    case Dtype::f32: return input.x()[row * input.x_stride() + place];
    case Dtype::bf16: {
      std::uint32_t bits = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, packed + 2 * place, 2);
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case Dtype::i8: break;
    case Dtype::i4:
      return input.scale()[row] * static_cast<float>(static_cast<std::int8_t>(packed[place]));
  }
  return input.scale()[row] * static_cast<float>(static_cast<int>(packed[place]) - 128);
}

}  // namespace

void set_disorder(bool on) { on_purpose.store(on, std::memory_order_relaxed); }

bool disorder() { return on_purpose.load(std::memory_order_relaxed); }

void apply_in_disorder(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                       int begin, int end) {
  const std::size_t rows = input.rows();
  const std::size_t in = static_cast<std::size_t>(linear.in());
  std::vector<float> inputs(in * rows);  // place after place
  for (std::size_t place = 0; place < in; ++place) {
    for (std::size_t row = 0; row < rows; ++row) {
      inputs[place * rows + row] = value_at(input, row, place);
    }
  }
  std::vector<float> weight(in);
  std::vector<float> sums(rows);
  for (int column = begin; column < end; ++column) {
    linear.unpack(column, weight.data());
    sums.assign(rows, linear.bias()[column]);
    for (std::size_t step = 0; step < in; ++step) {
      const std::size_t place = (step + rows) % in;
      for (std::size_t row = 0; row < rows; ++row) {
        sums[row] += inputs[place * rows + row] * weight[place];
      }
    }
    for (std::size_t row = 0; row < rows; ++row) {
      y[row * y_stride + static_cast<std::size_t>(column - begin)] = sums[row];
    }
  }
}

}  // namespace regard
