#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "disorder.h"
#include "int4.h"
#include "kernel_table.h"

namespace regard {

namespace {

// Sums of 255 x 127 over this many inputs fit in 32 bits.
constexpr int kMostInputs = 1 << 16;

// Kept rows are multiples of these: one and two of the widest vectors, and as many bytes as one has.
constexpr int kKeptFloats = 16;
constexpr int kKeptHalves = 32;
constexpr int kKeptBytes = 64;

std::size_t padded_to(int n, int unit) {
  return static_cast<std::size_t>((n + unit - 1) / unit) * static_cast<std::size_t>(unit);
}

int inputs_a_step(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return 1;
    case Dtype::bf16: return 2;
    case Dtype::i8: return 4;
    case Dtype::i4: return int4::kGroup;
  }
  return 1;
}

float from_bf16(std::uint16_t value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// Weights are quantised as inputs are, but as signed bytes. Returns 128 times their sum.
std::int32_t make_signed(std::vector<std::byte>& row) {
  std::int32_t sum = 0;
  for (std::byte& level : row) {
    level ^= std::byte{128};
    sum += static_cast<std::int8_t>(level);
  }
  return 128 * sum;
}

Kernels with_i8(Kernels base, LinearKernel i8) {
  base.i8 = i8;
  return base;
}

Kernels with_bf16(Kernels base, LinearKernel bf16) {
  base.bf16 = bf16;
  return base;
}

Kernels with_i4(Kernels base, LinearKernel i4) {
  base.i4 = i4;
  return base;
}

// Bytes of a block of `steps` groups of inputs.
std::size_t block_bytes_of(Dtype dtype, int steps) {
  return static_cast<std::size_t>(steps) *
         (dtype == Dtype::i4 ? int4::kGroupBytes : std::size_t{4} * kColumns);
}

// One column of a block: groups of as many values as are four bytes, each far from the one before.
// The loop is short, so that the processor looks for many of them at once.
template <class T, class Widen>
void unpack_groups(const std::byte* from, int in, float* to, Widen&& widen) {
  constexpr int kGroup = 4 / sizeof(T);
  T values[kGroup];
  int i = 0;
  for (; i + kGroup <= in; i += kGroup, from += 4 * kColumns) {
    std::memcpy(values, from, sizeof values);
    for (int k = 0; k < kGroup; ++k) to[i + k] = widen(values[k]);
  }
  if (i == in) return;
  std::memcpy(values, from, sizeof values);
  for (int k = 0; i + k < in; ++k) to[i + k] = widen(values[k]);
}

}  // namespace

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::portable: break;
    case Isa::avx2: {
      static const Kernels all = with_i4(avx2_kernels(), avx2_i4());
      return all;
    }
    case Isa::avx2_vnni: {
      static const Kernels all =
          with_i4(with_i8(avx2_kernels(), avx2_vnni_i8()), avx2_i4());
      return all;
    }
    case Isa::avx512: {
      static const Kernels all = with_i4(avx512_kernels(), avx2_i4());
      return all;
    }
    case Isa::avx512_vnni: {
      static const Kernels vnni =
          with_i4(with_i8(avx512_kernels(), avx512_vnni_i8()), avx512_vnni_i4());
      static const Kernels all =
          processor().avx512_bf16 ? with_bf16(vnni, avx512_bf16()) : vnni;
      return all;
    }
    case Isa::neon: {
      static const Kernels all = with_i4(neon_kernels(), portable_i4());
      return all;
    }
    case Isa::neon_dot: {
      static const Kernels all = with_i4(with_i8(neon_kernels(), neon_dot_i8()), portable_i4());
      return all;
    }
  }
  static const Kernels all = with_i4(portable_kernels(), portable_i4());
  return all;
}

const Kernels& kernels() { return kernels_of(active_isa()); }

Linear::Linear(int out, int in, Dtype dtype) : out_(out), in_(in), dtype_(dtype) {
  if (out < 1 || in < 1) throw std::invalid_argument("a linear layer has at least 1 x 1 weights");
  if (out > std::numeric_limits<int>::max() - kColumns || in > kMostInputs) {
    throw std::invalid_argument("a linear layer is too large");
  }
  const int group = inputs_a_step(dtype);
  steps_ = (in + group - 1) / group;
  block_bytes_ = block_bytes_of(dtype, steps_);
}

std::size_t Linear::blocks() const {
  return (static_cast<std::size_t>(out_) + kColumns - 1) / kColumns;
}

Linear::Sizes Linear::sizes(int out, int in, Dtype dtype) {
  const Linear linear(out, in, dtype);
  const std::size_t floats = linear.blocks() * kColumns * sizeof(float);
  return {linear.blocks() * linear.block_bytes_, floats, dtype == Dtype::i8 ? floats : 0};
}

Linear Linear::view(const std::byte* weight, const float* bias, const float* scale, int out,
                    int in, Dtype dtype) {
  Linear viewed(out, in, dtype);
  const std::size_t columns = viewed.blocks() * kColumns;
  viewed.weight_.view(weight, viewed.blocks() * viewed.block_bytes_);
  viewed.bias_.view(bias, columns);
  if (dtype == Dtype::i8) {
    viewed.scale_.view(scale, columns);
    viewed.sum_columns();
  }
  return viewed;
}

void Linear::sum_columns() {
  sums_.assign(blocks() * kColumns, 0);
  for (std::size_t number = 0; number < blocks(); ++number) {
    const std::byte* at = block(static_cast<int>(number));
    std::int32_t* sums = sums_.data() + number * kColumns;
    for (int step = 0; step < steps_; ++step) {
      for (int column = 0; column < kColumns; ++column, at += 4) {
        std::int32_t sum = 0;
        for (int i = 0; i < 4; ++i) sum += static_cast<std::int8_t>(at[i]);
        sums[column] += 128 * sum;
      }
    }
  }
}

Linear Linear::of_zeros(int out, int in, Dtype dtype) {
  Linear packed(out, in, dtype);
  const std::size_t blocks = packed.blocks();
  packed.weight_.assign(blocks * packed.block_bytes_, std::byte{0});
  packed.bias_.assign(blocks * kColumns, 0.0f);
  if (dtype == Dtype::i8) {
    packed.scale_.assign(blocks * kColumns, 0.0f);
    packed.sums_.assign(blocks * kColumns, 0);
  }
  return packed;
}

// In every dtype a block is lines of four bytes for each of its columns.
void Linear::take(int to, const Linear& from, int column) {
  const std::byte* source = from.block(column / kColumns) + column % kColumns * 4;
  std::byte* target = weight_.own() + to / kColumns * block_bytes_ + to % kColumns * 4;
  for (std::size_t at = 0; at < block_bytes_; at += std::size_t{4} * kColumns) {
    std::memcpy(target + at, source + at, 4);
  }
  bias_[static_cast<std::size_t>(to)] = from.bias()[column];
  if (dtype_ != Dtype::i8) return;
  scale_[static_cast<std::size_t>(to)] = from.scale()[column];
  sums_[static_cast<std::size_t>(to)] = from.sums()[column];
}

Linear Linear::pack(const float* weight, const float* bias, int out, int in, Dtype dtype) {
  Linear packed = of_zeros(out, in, dtype);
  if (bias) std::copy_n(bias, out, packed.bias_.own());
  const Kernels& use = kernels();
  std::vector<std::byte> row(static_cast<std::size_t>(packed.steps_) * 4);
  for (int o = 0; o < out; ++o) {
    const float* from = weight + static_cast<std::size_t>(o) * in;
    std::byte* block = packed.weight_.own() + o / kColumns * packed.block_bytes_;
    switch (dtype) {
      case Dtype::f32: std::memcpy(row.data(), from, row.size()); break;
      case Dtype::bf16: use.round(from, in, packed.steps_ * 2, row.data()); break;
      case Dtype::i8:
        use.quantise(from, in, packed.steps_ * 4, row.data(), &packed.scale_[o]);
        packed.sums_[o] = make_signed(row);
        break;
      case Dtype::i4: int4::pack(from, in, o % kColumns, block); continue;
    }
    std::byte* to = block + o % kColumns * 4;
    for (std::size_t at = 0; at < row.size(); at += 4) {
      std::memcpy(to + at * kColumns, row.data() + at, 4);
    }
  }
  return packed;
}

std::size_t Linear::bytes() const {
  return weight_.bytes() + bias_.bytes() + scale_.bytes() + sums_.size() * sizeof(std::int32_t);
}

void Linear::unpack(int column, float* weight) const {
  if (dtype_ == Dtype::i4) {
    return int4::unpack(block(column / kColumns), column % kColumns, in_, weight);
  }
  const std::byte* from = block(column / kColumns) + column % kColumns * 4;
  if (dtype_ == Dtype::i8) {
    const float scale = scale_[static_cast<std::size_t>(column)];
    return unpack_groups<std::int8_t>(
        from, in_, weight, [scale](std::int8_t level) { return scale * static_cast<float>(level); });
  }
  if (dtype_ == Dtype::bf16) return unpack_groups<std::uint16_t>(from, in_, weight, from_bf16);
  unpack_groups<float>(from, in_, weight, [](float value) { return value; });
}

void Input::set(Dtype dtype, const float* x, std::size_t rows, int in, std::size_t x_stride) {
  start(dtype, x, rows, in, x_stride);
  fill(0, rows);
}

void Input::start(Dtype dtype, const float* x, std::size_t rows, int in, std::size_t x_stride) {
  dtype_ = dtype;
  x_ = x;
  rows_ = rows;
  in_ = in;
  x_stride_ = x_stride;
  if (dtype == Dtype::f32) return;
  const auto group = static_cast<std::size_t>(inputs_a_step(dtype));
  packed_stride_ = dtype == Dtype::i4 ? int4::row_bytes(in)
                                      : (static_cast<std::size_t>(in) + group - 1) / group * 4;
  if (packed_.size() < rows * packed_stride_) packed_.resize(rows * packed_stride_);
  if (scale_.size() < rows) scale_.resize(rows);
}

void Input::fill(std::size_t first, std::size_t last) {
  if (dtype_ == Dtype::f32) return;
  const Kernels& use = kernels();
  for (std::size_t row = first; row < last; ++row) {
    const float* x = x_ + row * x_stride_;
    std::byte* packed = packed_.data() + row * packed_stride_;
    if (dtype_ == Dtype::i8) {
      use.quantise(x, in_, static_cast<int>(packed_stride_), packed, scale_.data() + row);
    } else if (dtype_ == Dtype::i4) {
      const int padded = int4::groups(in_) * int4::kGroup;
      use.quantise(x, in_, padded, packed, scale_.data() + row);
      int4::make_ready(packed, in_);
    } else {
      use.round(x, in_, static_cast<int>(packed_stride_ / 2), packed);
    }
  }
}

void apply(const Linear& linear, const Input& input, float* y, std::size_t y_stride, int begin,
           int end) {
  if (begin >= end) return;
  if (disorder()) return apply_in_disorder(linear, input, y, y_stride, begin, end);
  const Kernels& use = kernels();
  switch (linear.dtype()) {
    case Dtype::f32: return use.f32(linear, input, y, y_stride, begin, end);
    case Dtype::bf16: return use.bf16(linear, input, y, y_stride, begin, end);
    case Dtype::i8: return use.i8(linear, input, y, y_stride, begin, end);
    case Dtype::i4: return use.i4(linear, input, y, y_stride, begin, end);
  }
}

void apply(const Linear& linear, const Input& input, float* y, std::size_t y_stride) {
  apply(linear, input, y, y_stride, 0, linear.out());
}

float dot(const float* a, const float* b, int n) { return kernels().dot(a, b, n); }
void axpy(float a, const float* x, float* y, int n) { kernels().axpy(a, x, y, n); }
void add(const float* x, float* y, int n) { kernels().add(x, y, n); }
void multiply(const float* x, float* y, int n) { kernels().multiply(x, y, n); }
void scale(float a, float* y, int n) { kernels().scale(a, y, n); }

void softmax(float* row, int n) { kernels().softmax(row, n); }

std::size_t kept_bytes(Dtype kept, int n) {
  if (kept == Dtype::i8) return padded_to(n, kKeptBytes);
  return kept == Dtype::f32 ? padded_to(n, kKeptFloats) * sizeof(float)
                            : padded_to(n, kKeptHalves) * sizeof(std::uint16_t);
}

void keep(Dtype kept, const float* x, int n, std::byte* row, float* scale) {
  if (kept == Dtype::i8) {
    kernels().keep_bytes(x, n, static_cast<int>(padded_to(n, kKeptBytes)), row, scale);
    return;
  }
  if (kept != Dtype::f32) {
    kernels().keep_half(x, n, static_cast<int>(padded_to(n, kKeptHalves)), row);
    return;
  }
  const std::size_t size = static_cast<std::size_t>(n) * sizeof(float);
  std::memcpy(row, x, size);
  std::memset(row + size, 0, kept_bytes(kept, n) - size);
}

// The weights; and the query with zeros after it.
std::size_t attend_room(int count, int key_dim) {
  return padded_to(count, kKeptHalves) + padded_to(key_dim, kKeptBytes);
}

void attend(const Attended& at, const float* query, const float* bias, float* work, float* out) {
  const Kernels& use = kernels();
  const auto function = at.kept == Dtype::f32  ? use.attend_full
                        : at.kept == Dtype::i8 ? use.attend_bytes
                                               : use.attend_half;
  if (at.key_dim % kKeptHalves == 0) return function(at, query, bias, work, out);
  // A copy of the query that is padded as the keys are.
  float* padded = work + padded_to(at.count, kKeptHalves);
  std::copy_n(query, at.key_dim, padded);
  std::fill(padded + at.key_dim, padded + padded_to(at.key_dim, kKeptHalves), 0.0f);
  function(at, padded, bias, work, out);
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y,
                int n) {
  kernels().layer_norm(x, weight, bias, epsilon, y, n);
}

void rms_norm(const float* x, const float* weight, float epsilon, float* y, int n) {
  kernels().rms_norm(x, weight, epsilon, y, n);
}

void activate(Activation activation, float* row, int n) { kernels().activate(activation, row, n); }

void activate_gate(Activation activation, float* gate, const float* value, int n) {
  kernels().activate_gate(activation, gate, value, n);
}

void exp(float* row, int n) { kernels().exp(row, n); }
float max(const float* row, int n) { return kernels().max(row, n); }
float sum_exp(const float* row, int n, float shift) { return kernels().sum_exp(row, n, shift); }

int first_above(const float* row, int n, float floor) {
  return kernels().first_above(row, n, floor);
}

}  // namespace regard
