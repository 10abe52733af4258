// What Python calls: addresses of tensors and their sizes, checked there.
#include <algorithm>

#include "bindings.h"

namespace regard {

namespace {

constexpr std::int64_t kLossRows = 4;  // shared out at a time; a row of logits is long
constexpr std::int64_t kResidualRows = 32;
constexpr std::int64_t kBiasRows = 128;

template <class Rows>
void in_blocks(const Team& team, std::int64_t rows, std::int64_t each, Rows&& work) {
  team.run((rows + each - 1) / each, [&](std::int64_t block) {
    work(block * each, std::min(rows, (block + 1) * each));
  });
}

void loss(Address logits, bool half, std::int64_t rows, std::int64_t columns, Address targets,
          float smoothing, bool write, Address smoothed, Address unsmoothed, Address parallel,
          unsigned threads) {
  const Loss call{at<void>(logits), columns,           at<const std::int64_t>(targets), smoothing,
                  write,            at<double>(smoothed), at<double>(unsmoothed)};
  for (std::int64_t row = 0; row < rows; ++row) {
    if (call.targets[row] < 0 || call.targets[row] >= columns) {
      throw py::index_error("a target is outside of the vocabulary");
    }
  }
  const auto kernel = kernels().loss[half];
  in_blocks(team(parallel, threads), rows, kLossRows,
            [&](std::int64_t begin, std::int64_t end) { kernel(call, begin, end); });
}

void residual(std::int64_t rows, std::int64_t columns, Address x, Address y, bool half,
              std::uint64_t seed, unsigned dropped, Address sum, Address normed, Address narrow,
              Address weight, Address bias, float epsilon, Address mean, Address inverse,
              Address parallel, unsigned threads) {
  const Residual call{columns,
                      at<const float>(x),
                      at<const void>(y),
                      seed,
                      dropped,
                      at<float>(sum),
                      at<float>(normed),
                      at<unsigned short>(narrow),
                      at<const float>(weight),
                      at<const float>(bias),
                      epsilon,
                      at<float>(mean),
                      at<float>(inverse)};
  const auto kernel = kernels().residual[half];
  in_blocks(team(parallel, threads), rows, kResidualRows,
            [&](std::int64_t begin, std::int64_t end) { kernel(call, begin, end); });
}

// The sums of blocks of rows, in one: each block has a row of `sums`, and the last is for all.
template <class Block>
void in_blocks_with_sums(const Team& team, std::int64_t rows, std::int64_t each, float* sums,
                         std::int64_t width, Block&& work) {
  in_blocks(team, rows, each, [&](std::int64_t begin, std::int64_t end) {
    float* const mine = sums + begin / each * width;
    std::fill_n(mine, width, 0.0f);
    work(begin, end, mine);
  });
  const std::int64_t blocks = (rows + each - 1) / each;
  float* const total = sums + blocks * width;
  std::fill_n(total, width, 0.0f);
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (std::int64_t i = 0; i < width; ++i) total[i] += sums[block * width + i];
  }
}

// `sums` are two rows, of the slopes of weight and bias, for each block and then for all.
void residual_slopes(std::int64_t rows, std::int64_t columns, Address slopes, bool half,
                     std::uint64_t seed, unsigned dropped, Address for_y, Address weight,
                     Address sum, Address mean, Address inverse, Address normed, Address narrow,
                     Address for_x, Address sums, Address parallel, unsigned threads) {
  const ResidualSlopes call{columns,
                            at<const float>(slopes),
                            seed,
                            dropped,
                            at<void>(for_y),
                            at<const float>(weight),
                            at<const float>(sum),
                            at<const float>(mean),
                            at<const float>(inverse),
                            at<const float>(normed),
                            at<const unsigned short>(narrow),
                            at<float>(for_x),
                            nullptr,
                            nullptr};
  const auto kernel = kernels().residual_slopes[half];
  if (call.weight == nullptr) {
    in_blocks(team(parallel, threads), rows, kResidualRows,
              [&](std::int64_t begin, std::int64_t end) { kernel(call, begin, end); });
    return;
  }
  in_blocks_with_sums(team(parallel, threads), rows, kResidualRows, at<float>(sums), 2 * columns,
                      [&](std::int64_t begin, std::int64_t end, float* here) {
                        ResidualSlopes mine = call;
                        mine.for_weight = here;
                        mine.for_bias = here + columns;
                        kernel(mine, begin, end);
                      });
}

void bias_slopes(std::int64_t rows, std::int64_t columns, Address slopes, Address out,
                 Address for_in, Address sums, Address parallel, unsigned threads) {
  const BiasSlopes call{columns, at<const unsigned short>(slopes),
                        at<const unsigned short>(out), at<unsigned short>(for_in), nullptr};
  const auto kernel = kernels().bias_slopes;
  in_blocks_with_sums(team(parallel, threads), rows, kBiasRows, at<float>(sums), columns,
                      [&](std::int64_t begin, std::int64_t end, float* here) {
                        BiasSlopes mine = call;
                        mine.for_bias = here;
                        kernel(mine, begin, end);
                      });
}

}  // namespace

}  // namespace regard

PYBIND11_MODULE(_native, module) {
  using namespace regard;
  using Released = py::call_guard<py::gil_scoped_release>;
  module.attr("INTERFACE") = 2;  // as native.py says
  module.def("isa", [] { return name_of(active_isa()); });
  module.def("isas", [] {
    py::list there;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
      if (has(isa)) there.append(name_of(isa));
    }
    return there;
  });
  module.def("use_isa", [](const std::string& name) { use_isa(isa_named(name)); });
  module.attr("RESIDUAL_ROWS") = kResidualRows;
  module.def("loss", &loss, Released());
  module.def("residual", &residual, Released());
  module.def("residual_slopes", &residual_slopes, Released());
  module.attr("BIAS_ROWS") = kBiasRows;
  module.def("bias_slopes", &bias_slopes, Released());
  bind_attention(module);
}
