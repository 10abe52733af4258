// The numbers that a text is drawn by; the rule of regard.decoding.dice, to the bit.
#pragma once

#include <cmath>
#include <cstdint>

namespace regard {

// Output `number` of the SplitMix64 stream that begins at a key. It is the key of another stream.
inline std::uint64_t random_bits(std::uint64_t key, std::uint64_t number) {
  std::uint64_t bits = key + (number + 1) * 0x9E3779B97F4A7C15u;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

// How the upper 52 bits become a time of waiting, exponentially distributed with the mean 1. It is
// at least 2^-52 times the upper bits.
inline double wait_of(std::uint64_t upper) {
  return -std::log1p(-(static_cast<double>(static_cast<std::int64_t>(upper)) + 0.5) * 0x1p-52);
}

}  // namespace regard
