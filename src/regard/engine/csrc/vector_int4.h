// Linear layers of 4-bit weights (int4.h) over a vector type V: tiles of rows by columns.
//
// It includes nothing. A kernel K says how the integers of one group are summed: `Sum` a register
// of them, a lane a column once `total` has made floats of it.

template <class V, class K, int ROWS, int VECTORS>
struct Int4Tiles {
  static constexpr int kWide = V::width * VECTORS;
  static_assert(kColumns % kWide == 0);

  template <int R>
  static void tile(const Linear& linear, const Input& input, std::size_t first, float* y,
                   std::size_t y_stride, int column, int wanted) {
    const int groups = linear.steps();
    const std::byte* rows[R];
    typename V::F totals[R][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      rows[r] = input.packed() + (first + static_cast<std::size_t>(r)) * input.packed_stride();
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) totals[r][v] = V::zero();
    }
    const std::size_t across = static_cast<std::size_t>(column % kColumns) * 4;
    const std::byte* at = linear.block(column / kColumns) + across;
    for (int group = 0; group < groups; ++group, at += int4::kGroupBytes) {
      typename K::Sum sums[R][VECTORS];
      int corrections[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __builtin_memcpy(&corrections[r], rows[r] + groups * int4::kGroup + group * 4, 4);
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) sums[r][v] = K::begin(corrections[r]);
      }
#pragma GCC unroll 4
      for (int eight = 0; eight < int4::kGroup / 8; ++eight) {
        const std::byte* nibbles = at + eight * kColumns * 4;
        typename K::Bytes low[VECTORS], high[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) {
          V::prefetch(nibbles + v * V::width * 4 + kAhead);
          K::split(nibbles + v * V::width * 4, low[v], high[v]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const std::byte* x = rows[r] + group * int4::kGroup + eight * 8;
          const typename K::Bytes one = K::four(x), other = K::four(x + 4);
#pragma GCC unroll 8
          for (int v = 0; v < VECTORS; ++v) {
            sums[r][v] = K::more(other, high[v], K::more(one, low[v], sums[r][v]));
          }
        }
      }
      const float* scales = reinterpret_cast<const float*>(at + int4::kNibbleBytes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) {
          totals[r][v] = V::fma(K::total(sums[r][v], corrections[r]),
                                V::load(scales + v * V::width), totals[r][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::size_t row = first + static_cast<std::size_t>(r);
      const typename V::F scale = V::set(input.scale()[row]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) {
        float* to = y + row * y_stride + v * V::width;
        const typename V::F out = V::add(V::mul(totals[r][v], scale),
                                         V::load(linear.bias() + column + v * V::width));
        const int left = wanted - v * V::width;
        if (left >= V::width) {
          V::store(to, out);
        } else if (left > 0) {
          V::store_first(to, out, left);
        }
      }
    }
  }

  template <int R>
  static void remainder(std::size_t left, const Linear& linear, const Input& input,
                        std::size_t first, float* y, std::size_t y_stride, int column,
                        int wanted) {
    if constexpr (R > 0) {
      if (left == R) return tile<R>(linear, input, first, y, y_stride, column, wanted);
      remainder<R - 1>(left, linear, input, first, y, y_stride, column, wanted);
    }
  }

  static void apply(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                    int begin, int end) {
    const std::size_t rows = input.rows();
    for (int column = begin; column < end; column += kWide) {
      const int wanted = end - column < kWide ? end - column : kWide;
      float* to = y + (column - begin);
      std::size_t first = 0;
      for (; first + ROWS <= rows; first += ROWS) {
        tile<ROWS>(linear, input, first, to, y_stride, column, wanted);
      }
      remainder<ROWS - 1>(rows - first, linear, input, first, to, y_stride, column, wanted);
    }
  }

 private:
  static constexpr int kAhead = 8192;
};
