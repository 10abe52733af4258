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
  const void* y;
  std::uint64_t seed;
  unsigned dropped;  // of 256
  float* sum;
  // Null where no norm is wanted.
  float* normed;
  const float* weight;
  const float* bias;
  float epsilon;
  float* mean;     // of each row
  float* inverse;  // one by the deviation of each row
};

// What the slopes of `sum` or, with a weight, of `normed` make of those of x and y.
struct ResidualSlopes {
  std::int64_t columns;
  const float* slopes;
  std::uint64_t seed;
  unsigned dropped;
  void* for_y;
  // As above; null where there was no norm.
  const float* weight;
  const float* sum;
  const float* mean;
  const float* inverse;
  float* for_x;
  float* for_weight;  // added to
  float* for_bias;    // added to
};

// Each does the rows from `begin` up to `end`.
struct Kernels {
  void (*loss[2])(const Loss&, std::int64_t begin, std::int64_t end);
  void (*residual[2])(const Residual&, std::int64_t begin, std::int64_t end);
  void (*residual_slopes[2])(const ResidualSlopes&, std::int64_t begin, std::int64_t end);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

}  // namespace regard
