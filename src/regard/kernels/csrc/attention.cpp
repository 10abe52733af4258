// What Python calls for attention: addresses of tensors, and the numbers between their vectors.
#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "bindings.h"

namespace regard {

namespace {

using Strides = std::tuple<Address, std::int64_t, std::int64_t, std::int64_t>;
using Sizes = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t>;
using Sight = std::tuple<std::int64_t, std::int64_t, std::int64_t, Address, Address, std::int64_t,
                         std::int64_t>;

Places places(const Strides& of, std::int64_t heads) {
  const auto [address, row, head, place] = of;
  return {at<void>(address), heads, row, head, place};
}

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// The numbers that a thread needs beside the tensors. Every one of them starts a line of a cache.
std::int64_t scratch(std::int64_t keys, std::int64_t width, std::int64_t value_width) {
  const std::int64_t padded = up(keys, kAttentionPanel);
  const std::int64_t wide = up(width, 16), value_wide = up(value_width, 16);
  const std::int64_t of_keys = 3 * wide + 2 * value_wide;
  const std::int64_t of_block = 2 * wide + value_wide + 2 * (kAttentionStep + 16);
  return padded * of_keys + kAttentionBlock * of_block;
}

Attention call(bool narrow, const Sizes& sizes, float scale, const Sight& sight, const Strides& query,
               const Strides& key, const Strides& value, const Strides& out, Address level) {
  Attention made{};
  std::int64_t rows = 0;
  std::tie(rows, made.heads, made.sharing, made.queries, made.keys, made.width, made.value_width) =
      sizes;
  const auto [block, lead, stretches, seen, stretch, seen_row, stretch_row] = sight;
  if (block < 1 || block > kAttentionBlock) throw py::value_error("a block is of 1 to 64 queries");
  if (lead < 0 || lead > block) throw py::value_error("the first block is longer than the others");
  made.narrow = narrow;
  made.scale = scale;
  made.block = block;
  made.lead = lead;
  made.stretches = stretches;
  made.seen = at<const int>(seen);
  made.stretch = at<const int>(stretch);
  made.seen_row = seen_row;
  made.stretch_row = stretch_row;
  const std::int64_t heads = made.heads * made.sharing;
  made.query = places(query, heads);
  made.key = places(key, made.heads);
  made.value = places(value, made.heads);
  made.out = places(out, heads);
  made.level = at<float>(level);
  return made;
}

using Kernel = void (*)(const Attention&, std::int64_t, std::int64_t, float*);

void run(const Attention& made, std::int64_t rows, Kernel kernel, Address free, Address parallel,
         unsigned threads) {
  const std::int64_t each = scratch(made.keys, made.width, made.value_width);
  // Heads of a row lie beside each other, and rows too: some are one thread's, where there are
  // enough for all.
  const std::int64_t all = rows * made.heads, parts = 16 * std::int64_t{threads};
  const std::int64_t together = rows >= parts ? rows / parts * made.heads : 1;
  team(parallel, threads)
      .run_numbered((all + together - 1) / together, [&](std::int64_t part, unsigned thread) {
        const std::int64_t begin = part * together, end = std::min(begin + together, all);
        kernel(made, begin, end, at<float>(free) + each * thread);
      });
}

void attention(bool narrow, const Sizes& sizes, float scale, const Sight& sight, const Strides& query,
               const Strides& key, const Strides& value, const Strides& out, Address level,
               Address flaws, Address free, Address parallel, unsigned threads) {
  Attention made = call(narrow, sizes, scale, sight, query, key, value, out, level);
  made.flaws = at<float>(flaws);
  run(made, std::get<0>(sizes), kernels().attention, free, parallel, threads);
}

void attention_slopes(bool narrow, const Sizes& sizes, float scale, const Sight& sight, const Strides& query,
                      const Strides& key, const Strides& value, const Strides& out, Address level,
                      const Strides& slope, const Strides& for_query, const Strides& for_key,
                      const Strides& for_value, Address free, Address parallel, unsigned threads) {
  Attention made = call(narrow, sizes, scale, sight, query, key, value, out, level);
  const std::int64_t heads = made.heads * made.sharing;
  made.slope = places(slope, heads);
  made.for_query = places(for_query, heads);
  made.for_key = places(for_key, made.heads);
  made.for_value = places(for_value, made.heads);
  run(made, std::get<0>(sizes), kernels().attention_slopes, free, parallel, threads);
}

}  // namespace

void bind_attention(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  module.attr("ATTENTION_BLOCK") = kAttentionBlock;
  module.def("attention_scratch", &scratch);
  module.def("attention", &attention, Released());
  module.def("attention_slopes", &attention_slopes, Released());
}

}  // namespace regard
