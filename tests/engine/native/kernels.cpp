// Every kernel of every instruction set there is against the portable form, on ragged shapes.
//
// tests/engine/test_kernels.py holds them against NumPy where Python runs; this one is for a
// processor that is emulated. docs/engine.md says how to build it.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "kernel_table.h"

using namespace regard;

namespace {

std::mt19937 draw(1);
int failures = 0;
int compared = 0;

std::vector<float> normal(std::size_t count) {
  std::normal_distribution<float> value;
  std::vector<float> values(count);
  for (float& each : values) each = value(draw);
  return values;
}

void check(const char* what, const char* isa, int n, const std::vector<float>& found,
           const std::vector<float>& wanted, float tolerance) {
  ++compared;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float bound = tolerance * (1 + std::fabs(wanted[i]));
    const bool both_nan = std::isnan(found[i]) && std::isnan(wanted[i]);
    if (both_nan || found[i] == wanted[i] || std::fabs(found[i] - wanted[i]) <= bound) continue;
    std::printf("%s, %s, n = %d: [%zu] is %g, not %g\n", what, isa, n, i, found[i], wanted[i]);
    ++failures;
    return;
  }
}

// What `work` makes on the portable form and on another one.
template <class Work>
void both(const char* what, Isa isa, int n, float tolerance, Work&& work) {
  use_isa(Isa::portable);
  const std::vector<float> wanted = work();
  use_isa(isa);
  check(what, name_of(isa), n, work(), wanted, tolerance);
}

void layers(Isa isa) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8, Dtype::i4}) {
    for (const int in : {1, 3, 4, 7, 16, 65, 130, 512}) {
      for (const int out : {1, 5, 63, 64, 65, 200}) {
        for (const std::size_t rows : {1u, 2u, 5u, 6u, 7u, 13u}) {
          std::vector<float> x = normal(rows * static_cast<std::size_t>(in));
          if (rows == 7) x[0] = NAN;
          const auto weight = normal(static_cast<std::size_t>(in) * static_cast<std::size_t>(out));
          const auto bias = normal(static_cast<std::size_t>(out));
          use_isa(Isa::portable);
          // Sums of integers are exact, so that the last multiplication has the same bits too.
          const float tolerance = dtype == Dtype::i8 ? 0.0f : 1e-4f;
          both("a layer", isa, in * 1000 + out, tolerance, [&] {
            const Linear linear = Linear::pack(weight.data(), bias.data(), out, in, dtype);
            Input input;
            input.set(dtype, x.data(), rows, in, static_cast<std::size_t>(in));
            std::vector<float> y(rows * static_cast<std::size_t>(out));
            apply(linear, input, y.data(), static_cast<std::size_t>(out));
            return y;
          });
        }
      }
    }
  }
}

void rows(Isa isa, int n) {
  const auto x = normal(static_cast<std::size_t>(n));
  const auto gain = normal(static_cast<std::size_t>(n));
  const auto bias = normal(static_cast<std::size_t>(n));
  const auto in_place = [&](auto&& work) {
    return [&, work] {
      std::vector<float> y = x;
      work(y.data());
      return y;
    };
  };
  both("exp", isa, n, 1e-6f, in_place([&](float* y) { exp(y, n); }));
  both("softmax", isa, n, 1e-6f, in_place([&](float* y) { softmax(y, n); }));
  both("add", isa, n, 0, in_place([&](float* y) { add(gain.data(), y, n); }));
  both("axpy", isa, n, 1e-6f, in_place([&](float* y) { axpy(0.3f, gain.data(), y, n); }));
  both("multiply", isa, n, 0, in_place([&](float* y) { multiply(gain.data(), y, n); }));
  both("scale", isa, n, 0, in_place([&](float* y) { scale(0.7f, y, n); }));
  both("layer_norm", isa, n, 1e-4f, in_place([&](float* y) {
         layer_norm(y, gain.data(), bias.data(), 1e-5f, y, n);
       }));
  both("rms_norm", isa, n, 1e-5f,
       in_place([&](float* y) { rms_norm(y, gain.data(), 1e-5f, y, n); }));
  for (const Activation each :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::swish}) {
    both("activate", isa, n, 1e-5f, in_place([&](float* y) { activate(each, y, n); }));
    both("activate_gate", isa, n, 1e-5f,
         in_place([&](float* y) { activate_gate(each, y, gain.data(), n); }));
  }
  both("dot", isa, n, 1e-4f, [&] { return std::vector<float>{dot(x.data(), gain.data(), n)}; });
  both("max", isa, n, 0, [&] { return std::vector<float>{max(x.data(), n)}; });
  both("sum_exp", isa, n, 1e-5f, [&] { return std::vector<float>{sum_exp(x.data(), n, 0.5f)}; });
  both("first_above", isa, n, 0,
       [&] { return std::vector<float>{static_cast<float>(first_above(x.data(), n, 1.5f))}; });
}

void attention(Isa isa, int width, int count) {
  const std::size_t n = static_cast<std::size_t>(width);
  const auto query = normal(n);
  const auto keys = normal(n * static_cast<std::size_t>(count));
  const auto values = normal(n * static_cast<std::size_t>(count));
  for (const Dtype kept : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    both("attend", isa, width * 1000 + count, 1e-4f, [&] {
      const std::size_t stride = kept_bytes(kept, width);
      Aligned<std::byte> near_keys(stride * static_cast<std::size_t>(count));
      Aligned<std::byte> near_values(near_keys.size());
      std::vector<float> key_scales(static_cast<std::size_t>(count));
      std::vector<float> value_scales(key_scales.size());
      for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
        keep(kept, keys.data() + j * n, width, near_keys.data() + j * stride, &key_scales[j]);
        keep(kept, values.data() + j * n, width, near_values.data() + j * stride,
             &value_scales[j]);
      }
      const Attended at{kept, {near_keys.data(), stride, key_scales.data()},
                        {near_values.data(), stride, value_scales.data()},
                        count, width, width, 0.4f};
      std::vector<float> work(attend_room(count, width));
      std::vector<float> out(n);
      attend(at, query.data(), nullptr, work.data(), out.data());
      return out;
    });
  }
}

}  // namespace

int main() {
  for (const Isa isa : kIsas) {
    if (!has(isa)) continue;
    std::printf("%s\n", name_of(isa));
    layers(isa);
    for (int n = 1; n < 70; ++n) rows(isa, n);
    for (const int width : {1, 5, 8, 16, 33, 64}) {
      for (const int count : {1, 2, 7, 8, 9, 40}) attention(isa, width, count);
    }
  }
  std::printf("%d comparisons, %d failures\n", compared, failures);
  return failures == 0 ? 0 : 1;
}
