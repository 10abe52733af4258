// Where tokens stand, told inside attention: queries and keys turned, or numbers added to scores.
#pragma once

#include <vector>

#include "config.h"

namespace regard {

// The positions of one stack of layers. Of a scheme that says nothing inside attention it does
// nothing.
class Places {
 public:
  Places() = default;

  // `bidirectional` stacks look at keys after the query too. `table` is that of relative
  // positions, buckets x heads, else null.
  Places(const ModelConfig& config, bool bidirectional, const float* table);

  // Makes ready for so many positions. What it says of one never changes.
  void reach(int positions);

  bool turns() const { return pairs_ > 0; }

  // Turns `heads` vectors, one after the other, as queries and keys at that position.
  void turn(float* row, int heads, int position) const;

  // What to add to the scores of a head's query: for key j at [j]. Null if nothing is.
  const float* bias(int head, int query) const;

 private:
  float bias_of(int head, int ahead) const;

  int width_ = 0;  // of a head's queries
  int heads_ = 0;
  Layout layout_ = Layout::halves;
  bool bidirectional_ = false;
  int reach_ = 0;

  // Rotary: a row of cosines and a row of sines a position.
  int pairs_ = 0;
  std::vector<float> rates_;
  float amplitude_ = 1;
  std::vector<float> phases_;

  // ALiBi and relative: a number for every head and distance, the keys in order.
  bool biased_ = false;
  std::vector<float> slopes_;  // of ALiBi
  std::vector<float> table_;   // of relative positions
  std::vector<int> limits_;
  int side_ = 0;  // buckets of one side
  std::vector<float> biases_;
};

}  // namespace regard
