// The backward pass of a ReLU, with the gradient of the bias before it. Included after lanes.h.

struct BiasOf {
  static void rows(const BiasSlopes& call, std::int64_t begin, std::int64_t end) {
    std::int64_t row = begin;
    for (; row + kTogether <= end; row += kTogether) together<kTogether>(call, row);
    for (; row < end; ++row) together<1>(call, row);
  }

 private:
  static constexpr int kTogether = 4;  // rows between a load and a store of the sums

  // Row after row is added, however many are done together.
  template <int ROWS>
  static void together(const BiasSlopes& call, std::int64_t row) {
    const std::int64_t n = call.columns;
    const unsigned short *slopes = call.slopes + row * n, *out = call.out + row * n;
    unsigned short* const for_in = call.for_in + row * n;
    float* const for_bias = call.for_bias;
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t left = n - i;
      F total = load_some<Full>(for_bias + i, left);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        const std::int64_t from = r * n + i;
        // What came out is no less than 0 or NaN, whose slope goes on: as PyTorch has it.
        const U size = bits(load_some<Half>(out + from, left)) << 1;
        const F slope = where_at_least(size, all(1u), load_some<Half>(slopes + from, left), F{});
        store_some<Half>(for_in + from, slope, left);
        total = total + slope;
      }
      store_some<Full>(for_bias + i, total, left);
    }
  }
};
