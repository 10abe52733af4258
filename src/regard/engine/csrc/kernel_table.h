// The functions that each instruction set brings, behind one table.
#pragma once

#include <cstddef>

#include "kernels.h"

namespace regard {

using LinearKernel = void (*)(const Linear&, const Input&, float* y, std::size_t y_stride,
                              int begin, int end);

// What kernels.h says of each; `n` at least 1.
struct Kernels {
  LinearKernel f32, bf16, i8;
  // One row of `n` values as bytes, and as bfloat16; the rest up to `padded` means zero.
  void (*quantise)(const float* x, int n, int padded, std::byte* row, float* scale);
  void (*round)(const float* x, int n, int padded, std::byte* row);
  float (*dot)(const float*, const float*, int);
  void (*axpy)(float, const float*, float*, int);
  void (*add)(const float*, float*, int);
  void (*multiply)(const float*, float*, int);
  void (*scale)(float, float*, int);
  // Halves of `n` values and zeros up to `padded`, as attend_half reads them; and bytes.
  void (*keep_half)(const float*, int n, int padded, std::byte* row);
  void (*keep_bytes)(const float*, int n, int padded, std::byte* row, float* scale);
  // The query padded with zeros; the bias, or null; the weights; the output.
  void (*attend_full)(const Attended&, const float*, const float*, float*, float*);
  void (*attend_half)(const Attended&, const float*, const float*, float*, float*);
  void (*attend_bytes)(const Attended&, const float*, const float*, float*, float*);
  void (*softmax)(float*, int);
  void (*layer_norm)(const float*, const float*, const float*, float, float*, int);
  void (*rms_norm)(const float*, const float*, float, float*, int);
  void (*activate)(Activation, float*, int);
  void (*activate_gate)(Activation, float*, const float*, int);
  void (*exp)(float*, int);
  float (*max)(const float*, int);
  float (*sum_exp)(const float*, int, float);
  int (*first_above)(const float*, int, float);
  LinearKernel i4 = nullptr;  // kernels_of puts it in
};

// The best that this processor has for `isa`; only call it for one that it has.
const Kernels& kernels_of(Isa isa);

// What the functions of kernels.h use: kernels_of(active_isa()).
const Kernels& kernels();

// One file each. Those after the first three bring one function, to put in place of what is in a table.
const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& neon_kernels();
LinearKernel avx2_vnni_i8();
LinearKernel avx512_vnni_i8();
LinearKernel avx512_bf16();
LinearKernel portable_i4();
LinearKernel avx2_i4();
LinearKernel avx512_vnni_i4();
LinearKernel neon_dot_i8();

}  // namespace regard
