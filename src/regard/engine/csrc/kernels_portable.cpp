// Kernels in plain C++, for any processor: what the others are tested against.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernel_table.h"

namespace regard {

namespace {

// Eight floats, in loops that a compiler turns into what vectors it has.
struct Plain {
  static constexpr int width = 8;
  struct F {
    float at[width];
  };

  template <class Function>
  static F each(Function function) {
    F out;
    for (int i = 0; i < width; ++i) out.at[i] = function(i);
    return out;
  }

  static F set(float value) {
    return each([&](int) { return value; });
  }
  static F zero() { return set(0); }
  static F load(const float* from) {
    return each([&](int i) { return from[i]; });
  }
  static F load_first(const float* from, int n) {
    return each([&](int i) { return i < n ? from[i] : 0.0f; });
  }
  static void store(float* to, F a) { std::memcpy(to, a.at, sizeof a.at); }
  static void store_first(float* to, F a, int n) {
    for (int i = 0; i < n; ++i) to[i] = a.at[i];
  }
  static F first(F a, int n) {
    return each([&](int i) { return i < n ? a.at[i] : 0.0f; });
  }
  static F add(F a, F b) {
    return each([&](int i) { return a.at[i] + b.at[i]; });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return a.at[i] - b.at[i]; });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.at[i] * b.at[i]; });
  }
  static F div(F a, F b) {
    return each([&](int i) { return a.at[i] / b.at[i]; });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return a.at[i] * b.at[i] + c.at[i]; });
  }
  // The second when either is NaN, as x86 has it.
  static F max(F a, F b) {
    return each([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
  }
  static F min(F a, F b) {
    return each([&](int i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
  }
  static F where_less(F a, F b, F yes, F no) {
    return each([&](int i) { return a.at[i] < b.at[i] ? yes.at[i] : no.at[i]; });
  }
  static F magnitude(F a) {
    return each([&](int i) { return std::fabs(a.at[i]); });
  }
  static F with_sign(F a, F sign) {
    return each([&](int i) { return std::copysign(a.at[i], sign.at[i]); });
  }
  static F round(F a) {
    return each([&](int i) { return (a.at[i] + kRounds) - kRounds; });
  }
  // a * 2^n in two moves, as 2^n alone may be no float. n may be NaN, and then so is a.
  static F times_power(F a, F n) {
    return each([&](int i) {
      const auto power = static_cast<std::int32_t>(bits(n.at[i] + kRounds) - bits(kRounds));
      const std::int32_t half = power >> 1;
      return a.at[i] * power_of_two(half) * power_of_two(power - half);
    });
  }
  static float sum(F a) {
    float half[4];
    for (int i = 0; i < 4; ++i) half[i] = a.at[i] + a.at[i + 4];
    return (half[0] + half[2]) + (half[1] + half[3]);
  }
  // The sums of eight, in order.
  static F sums(const F (&a)[8]) {
    return each([&](int i) { return sum(a[i]); });
  }
  static float largest(F a) {
    float most = a.at[0];
    for (int i = 1; i < width; ++i) most = a.at[i] > most ? a.at[i] : most;
    return most;
  }
  static unsigned above(F a, F b) {
    unsigned mask = 0;
    for (int i = 0; i < width; ++i) mask |= (a.at[i] > b.at[i] ? 1u : 0u) << i;
    return mask;
  }
  static unsigned largest_bits(const float* x, int n) {
    unsigned most = 0;
    for (int i = 0; i < n; ++i) {
      const unsigned magnitude = bits(x[i]) & 0x7fffffffu;
      most = magnitude > most ? magnitude : most;
    }
    return most;
  }
  static void store_bytes(std::byte* to, F a, int n) {
    for (int i = 0; i < n; ++i) {
      to[i] = static_cast<std::byte>(static_cast<int>((a.at[i] + kRounds) - kRounds) + 128);
    }
  }
  // As signed bytes.
  static void store_levels(std::byte* to, F a, int n) {
    for (int i = 0; i < n; ++i) {
      const int level = static_cast<int>((a.at[i] + kRounds) - kRounds);
      to[i] = static_cast<std::byte>(static_cast<std::int8_t>(level));
    }
  }
  static void store_halves(std::byte* to, F a, int n) {
    for (int i = 0; i < n; ++i) {
      const auto half = static_cast<std::uint16_t>(rounded(a.at[i]));
      std::memcpy(to + 2 * i, &half, sizeof half);
    }
  }
  // Halves of `first` below those of `second`.
  static void store_pairs(std::byte* to, F first, F second) {
    for (int i = 0; i < width; ++i) {
      const std::uint32_t pair = rounded(first.at[i]) | rounded(second.at[i]) << 16;
      std::memcpy(to + 4 * i, &pair, sizeof pair);
    }
  }
  static F load_first_of_pairs(const std::byte* from) {
    return each([&](int i) { return of_bits(pair(from, i) << 16); });
  }
  static F load_second_of_pairs(const std::byte* from) {
    return each([&](int i) { return of_bits(pair(from, i) & 0xffff0000u); });
  }
  // Eight signed bytes.
  static F load_levels(const std::byte* from) {
    return each([&](int i) { return static_cast<float>(static_cast<std::int8_t>(from[i])); });
  }

  static void prefetch(const std::byte*) {}
  static void prefetch_far(const std::byte*) {}

 private:
  static constexpr float kRounds = 3 << 22;

  static std::uint32_t bits(float value) {
    std::uint32_t out;
    std::memcpy(&out, &value, sizeof out);
    return out;
  }
  // As bfloat16: to the nearest, to the even one of two; a NaN stays one.
  static std::uint32_t rounded(float value) {
    const std::uint32_t whole = bits(value);
    return value != value ? (whole >> 16) | 0x40u : (whole + 0x7fffu + ((whole >> 16) & 1u)) >> 16;
  }
  static float of_bits(std::uint32_t value) {
    float out;
    std::memcpy(&out, &value, sizeof out);
    return out;
  }
  static float power_of_two(std::int32_t power) {
    return of_bits(static_cast<std::uint32_t>(power + 127) << 23);
  }
  static std::uint32_t pair(const std::byte* from, int i) {
    std::uint32_t out;
    std::memcpy(&out, from + 4 * i, sizeof out);
    return out;
  }
};

#include "vector_linear.h"
#include "vector_rows.h"

struct Linears {
  static constexpr LinearKernel f32 = Tiles<Plain, F32Kernel<Plain>, 2, 1>::apply;
  static constexpr LinearKernel bf16 = Tiles<Plain, Bf16Kernel<Plain>, 2, 1>::apply;

  static void i8(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                 int begin, int end) {
    for (int column = begin; column < end; column += kColumns) {
      const int wanted = end - column < kColumns ? end - column : kColumns;
      for (std::size_t r = 0; r < input.rows(); ++r) {
        i8_row(linear, input, r, y + r * y_stride + (column - begin), column, wanted);
      }
    }
  }

 private:
  static void i8_row(const Linear& linear, const Input& input, std::size_t r, float* y, int column,
                     int wanted) {
    const std::byte* weights = linear.block(column / kColumns);
    const std::byte* x = input.packed() + r * input.packed_stride();
    // A sum for each of four inputs of each column, and 16 bits times 16: loops of a kind that
    // compilers know how to widen.
    constexpr int kSums = 4 * kColumns, kLevels = 32;
    std::int32_t sums[kSums] = {};
    for (int step = 0; step < linear.steps(); ++step, weights += kSums, x += 4) {
      std::int16_t levels[kLevels];
      for (int i = 0; i < kLevels; ++i) levels[i] = static_cast<std::int16_t>(x[i % 4]);
      for (int at = 0; at < kSums; at += kLevels) {
        for (int i = 0; i < kLevels; ++i) {
          const std::int16_t weight = static_cast<std::int8_t>(weights[at + i]);
          sums[at + i] += levels[i] * weight;
        }
      }
    }
    for (int c = 0; c < wanted; ++c) {
      const std::int32_t sum = sums[4 * c] + sums[4 * c + 1] + sums[4 * c + 2] + sums[4 * c + 3] -
                               linear.sums()[column + c];
      const float scale = input.scale()[r] * linear.scale()[column + c];
      y[c] = static_cast<float>(sum) * scale + linear.bias()[column + c];
    }
  }
};

constexpr Kernels kAll = kernels_over<Plain, Linears>();

}  // namespace

const Kernels& portable_kernels() { return kAll; }

}  // namespace regard
