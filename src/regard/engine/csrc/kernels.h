// The arithmetic under the engine: linear layers, attention over rows, norms, activations.
//
// Every output element is summed in an order that depends on the layer's sizes alone: not on how
// many rows there are, which rows they are, how columns are split, or which thread works. So a
// row gives the same bits alone and in any batch. Sizes are in elements. No row function accepts
// rows that overlap, save where it says that it works in place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aligned.h"
#include "isa.h"

namespace regard {

// How weights are held. Rows are float32 outside; i8 and bf16 turn them into their own kind.
enum class Dtype { f32, bf16, i8, i4 };

enum class Activation { relu, gelu, gelu_tanh, swish };

// Weights lie in blocks of this many output columns; ranges of columns start at multiples of it.
inline constexpr int kColumns = 64;

// A weight matrix and its bias, packed as the kernels read them.
//
// Block after block of kColumns columns; inside a block, input after input (f32), pair after pair
// (bf16) or four after four (i8), each for all columns of the block:
//   f32 [block][in][64], bf16 [block][in/2][64][2], i8 [block][in/4][64][4]
// Missing inputs and columns are zeros. i8 has one scale a column, w = scale * integer, the
// integers within -127 and 127. How i4 lies is said in int4.h.
class Linear {
 public:
  Linear() = default;

  // `weight` is out x in, row after row; `bias` may be null. Throws std::invalid_argument for
  // sizes below one or too large to count.
  static Linear pack(const float* weight, const float* bias, int out, int in, Dtype dtype);

  // Bytes of what a layer packs: its blocks, and its bias and scale padded to whole blocks. Throws
  // as `pack` does.
  struct Sizes {
    std::size_t weight = 0, bias = 0, scale = 0;
  };
  static Sizes sizes(int out, int in, Dtype dtype);

  // The same layer over what `block(0)`, `bias()` and, where it has any, `scale()` of another are.
  // They must be as `sizes` says and stay; any bytes will do.
  static Linear view(const std::byte* weight, const float* bias, const float* scale, int out,
                     int in, Dtype dtype);

  int out() const { return out_; }
  int in() const { return in_; }
  Dtype dtype() const { return dtype_; }
  std::size_t bytes() const;

  // A layer of zeros, and a column of another layer of the same inputs and dtype put into it, as it
  // is packed.
  static Linear of_zeros(int out, int in, Dtype dtype);
  void take(int to, const Linear& from, int column);

  // The weights of one output column as float32, as they are after quantisation: `in` values.
  void unpack(int column, float* weight) const;

  // For the kernels.
  int steps() const { return steps_; }  // groups of 1, 2, 4 or, of i4, 32 inputs
  const std::byte* block(int index) const { return weight_.data() + index * block_bytes_; }
  std::size_t block_bytes() const { return block_bytes_; }
  const float* bias() const { return bias_.data(); }           // padded to whole blocks
  const float* scale() const { return scale_.data(); }         // i8, padded
  const std::int32_t* sums() const { return sums_.data(); }    // i8: 128 x the sum of a column

 private:
  Linear(int out, int in, Dtype dtype);
  std::size_t blocks() const;
  void sum_columns();

  int out_ = 0, in_ = 0, steps_ = 0;
  Dtype dtype_ = Dtype::f32;
  std::size_t block_bytes_ = 0;
  Stored<std::byte> weight_;
  Stored<float> bias_, scale_;
  Aligned<std::int32_t> sums_;
};

// Rows made ready once for all layers of one dtype that read them. Reuse it: it keeps its memory.
//
// f32 only points at the rows, so they must stay; i8 holds each row as integers with one scale,
// x = scale * (byte - 128), the scale being the row's largest magnitude / 127; bf16 is rounded to
// nearest even; i4 makes of i8 what int4.h says. A row with a NaN or an infinity has the scale NaN and so gives NaN everywhere.
class Input {
 public:
  void set(Dtype dtype, const float* x, std::size_t rows, int in, std::size_t x_stride);

  // The same in two moves, for several threads: after `start`, each row range is filled once.
  void start(Dtype dtype, const float* x, std::size_t rows, int in, std::size_t x_stride);
  void fill(std::size_t first, std::size_t last);

  Dtype dtype() const { return dtype_; }
  std::size_t rows() const { return rows_; }
  int in() const { return in_; }

  // For the kernels.
  const float* x() const { return x_; }
  std::size_t x_stride() const { return x_stride_; }
  const std::byte* packed() const { return packed_.data(); }
  std::size_t packed_stride() const { return packed_stride_; }  // bytes a row
  const float* scale() const { return scale_.data(); }

 private:
  Dtype dtype_ = Dtype::f32;
  const float* x_ = nullptr;
  std::size_t rows_ = 0, x_stride_ = 0, packed_stride_ = 0;
  int in_ = 0;
  Aligned<std::byte> packed_;
  Aligned<float> scale_;
};

// y[r * y_stride + (o - begin)] = x[r] . W[o] + b[o] for every row r and begin <= o < end.
// Note that y is where column `begin` goes. `begin` is a multiple of kColumns; `end` is one or is
// linear.out().
void apply(const Linear& linear, const Input& input, float* y, std::size_t y_stride, int begin,
           int end);

// The same for all columns.
void apply(const Linear& linear, const Input& input, float* y, std::size_t y_stride);

// Keys and values as attention keeps them: float32, or bfloat16 to the nearest (even), which is half
// to read, or signed bytes and a scale, x = scale * byte, which is a quarter. A row is padded with
// zeros to whole vectors of any instruction set, and what lies where in it is the kernels' affair.
// `scale` is that of bytes, else nothing is put there.
std::size_t kept_bytes(Dtype kept, int n);
void keep(Dtype kept, const float* x, int n, std::byte* row, float* scale);

// Kept rows: row j is base + (index ? index[j] : j) * stride, which is in bytes; and the same element
// of `scale` is its scale, if it has one.
struct RowsAt {
  const std::byte* base;
  std::size_t stride;
  const float* scale;
  const std::int32_t* index = nullptr;
};

// What the queries of one head look at: `count` >= 1 keys and values.
struct Attended {
  Dtype kept;
  RowsAt keys, values;
  int count, key_dim, value_dim;
  float scale;
};

float dot(const float* a, const float* b, int n);

// y += a * x
void axpy(float a, const float* x, float* y, int n);

// y += x
void add(const float* x, float* y, int n);

// y *= x
void multiply(const float* x, float* y, int n);

// y *= a
void scale(float a, float* y, int n);

// In place over n >= 1 values; -inf has weight 0, and a row of nothing else becomes zeros.
void softmax(float* row, int n);

// out = softmax(scale * query . keys + bias) . values for one query of one head; `bias` may be
// null. `work` has room for attend_room() floats, of which the first `count` are left to say what
// each place weighs.
void attend(const Attended& at, const float* query, const float* bias, float* work, float* out);
std::size_t attend_room(int count, int key_dim);

// weight and bias may be null. y may be x.
void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y,
                int n);
void rms_norm(const float* x, const float* weight, float epsilon, float* y, int n);

// In place.
void activate(Activation activation, float* row, int n);

// gate = activation(gate) * value, in place of gate.
void activate_gate(Activation activation, float* gate, const float* value, int n);

// exp(x) with a relative error near 1e-7, in place.
void exp(float* row, int n);

float max(const float* row, int n);                     // n >= 1; a NaN is passed over
float sum_exp(const float* row, int n, float shift);    // sum of exp(row[i] - shift)
int first_above(const float* row, int n, float floor);  // index of the first > floor, or n

}  // namespace regard
