// The kernels, which each instruction set compiles for itself, and what they are given.
//
// Memory is the caller's, who has checked the sizes. Rows are worked on by themselves, so that what
// comes out does not depend on how they are shared out.
#pragma once

#include <cstdint>

namespace regard {

enum class Kept { float32, bfloat16 };

// Cross-entropy with label smoothing of rows of logits, over which its slopes are written.
struct Loss {
  void* logits;
  std::int64_t columns;
  const std::int64_t* targets;  // each from 0 up to `columns`
  float smoothing;
  bool write;         // whether the slopes are wanted
  double* smoothed;   // of each row, in nats
  double* unsmoothed;
};

// sum = x + dropped y, and its norm. What is dropped follows from the seed, the row and the column.
struct Residual {
  std::int64_t columns;
  const float* x;
  const void* y;  // null where nothing is added, and x is the sum
  std::uint64_t seed;
  unsigned dropped;  // of 256
  float* sum;
  // The norm, and the same as bfloat16; each null where it is not wanted.
  float* normed;
  unsigned short* narrow;
  const float* weight;
  const float* bias;
  float epsilon;
  float* mean;     // of each row
  float* inverse;  // one by the deviation of each row
};

// What the slopes of `sum` and, with a weight, of its norm make of those of x and y.
struct ResidualSlopes {
  std::int64_t columns;
  const float* slopes;  // of the sum; with a norm they may be null
  std::uint64_t seed;
  unsigned dropped;
  void* for_y;  // null where there was no y
  // As above; null where there was no norm.
  const float* weight;
  const float* sum;
  const float* mean;
  const float* inverse;
  const float* normed;  // the slopes of it and of the narrow one: either is null, or none
  const unsigned short* narrow;
  float* for_x;
  float* for_weight;  // added to
  float* for_bias;    // added to
};

// What the slopes of a ReLU after a linear layer, bfloat16, make of those of what went in, and of
// the layer's bias, whose slopes are their sums over rows.
struct BiasSlopes {
  std::int64_t columns;
  const unsigned short* slopes;
  const unsigned short* out;  // what the ReLU made
  unsigned short* for_in;
  float* for_bias;  // added to
};

// Vectors by row of the batch, head and place; their numbers lie side by side.
struct Places {
  void* at;
  std::int64_t heads;
  std::int64_t row, head, place;  // numbers from one to the next
};

// Keys are turned in panels; a block of queries meets a step of keys.
constexpr std::int64_t kAttentionPanel = 64, kAttentionBlock = 64, kAttentionStep = 256;

// softmax(scale q k^T) v where query i sees the keys from seen[i][0] up to seen[i][1], and the first
// seen[i][2], of those that its block of queries looks at; and the slopes of q, k and v.
struct Attention {
  std::int64_t heads;    // of keys and values
  std::int64_t sharing;  // heads of queries for each
  std::int64_t queries, keys, width, value_width;
  float scale;
  std::int64_t block;      // queries in one, up to kAttentionBlock
  std::int64_t lead;       // queries in a shorter one before the others; 0 if there is none
  std::int64_t stretches;  // of keys a block looks at, in order: each from one up to another
  const int* seen;
  const int* stretch;
  std::int64_t seen_row, stretch_row;  // numbers from a row to the next; 0 if all have the same
  bool narrow;  // the vectors are bfloat16; all between is float32
  Places query, key, value, out;
  float* level;  // the logarithm of each query's sum of exponentials
  float* flaws;  // of each head of keys: not 0 if a key or value is not finite
  Places slope, for_query, for_key, for_value;
};

// Each does the rows from `begin` up to `end`.
struct Kernels {
  void (*loss[2])(const Loss&, std::int64_t begin, std::int64_t end);
  void (*residual[2])(const Residual&, std::int64_t begin, std::int64_t end);
  void (*residual_slopes[2])(const ResidualSlopes&, std::int64_t begin, std::int64_t end);
  void (*bias_slopes)(const BiasSlopes&, std::int64_t begin, std::int64_t end);
  // Of rows and heads of keys in one; `scratch` is the thread's own.
  void (*attention)(const Attention&, std::int64_t begin, std::int64_t end, float* scratch);
  void (*attention_slopes)(const Attention&, std::int64_t begin, std::int64_t end, float* scratch);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

}  // namespace regard
