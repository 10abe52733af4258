// Linear layers over a vector type V: tiles of some rows by some columns, summed in registers.
//
// Like vector_rows.h, it includes nothing. A kernel K says how it reads weights and inputs and how
// it ends: `Sum` a register of sums, `Ends` what some columns end with, and functions on them.

// Sums of floats end with a bias.
template <class V>
struct Biased {
  struct Ends { typename V::F bias; };

  static Ends ends(const Linear& linear, int column) { return {V::load(linear.bias() + column)}; }
  static typename V::F end(typename V::F sum, Ends ends, const float*, std::size_t) {
    return V::add(sum, ends.bias);
  }
};

// Those of integers with the scales of their row and columns, too.
template <class V>
struct Scaled {
  struct Ends { typename V::F scale, bias; };

  static Ends ends(const Linear& linear, int column) {
    return {V::load(linear.scale() + column), V::load(linear.bias() + column)};
  }
  static typename V::F end_with(typename V::F sum, Ends ends, float row_scale) {
    return V::add(V::mul(sum, V::mul(V::set(row_scale), ends.scale)), ends.bias);
  }
};

// Float32 weights; V::F sums.
template <class V>
struct F32Kernel : Biased<V> {
  using Sum = typename V::F;
  static constexpr int width = V::width;

  struct Weight { Sum w; };
  struct Value { Sum x; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return reinterpret_cast<const std::byte*>(input.x() + r * input.x_stride());
  }
  static Sum begin(const Linear&, int) { return V::zero(); }
  static Weight weight(const std::byte* at) {
    return {V::load(reinterpret_cast<const float*>(at))};
  }
  static Value value(const std::byte* row, int step) {
    return {V::set(reinterpret_cast<const float*>(row)[step])};
  }
  static Sum more(Value x, Weight w, Sum sum) { return V::fma(x.x, w.w, sum); }
};

// bfloat16 weights and inputs, widened to float32 in registers: the first of a pair, the second.
template <class V>
struct Bf16Kernel : Biased<V> {
  using Sum = typename V::F;
  static constexpr int width = V::width;

  struct Weight { Sum first, second; };
  struct Value { Sum first, second; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  static Sum begin(const Linear&, int) { return V::zero(); }
  static Weight weight(const std::byte* at) {
    return {V::load_first_of_pairs(at), V::load_second_of_pairs(at)};
  }
  static Value value(const std::byte* row, int step) {
    unsigned pair;
    __builtin_memcpy(&pair, row + static_cast<std::size_t>(step) * 4, sizeof pair);
    const unsigned first = pair << 16, second = pair & 0xffff0000u;
    float x, y;
    __builtin_memcpy(&x, &first, sizeof x);
    __builtin_memcpy(&y, &second, sizeof y);
    return {V::set(x), V::set(y)};
  }
  static Sum more(Value x, Weight w, Sum sum) {
    return V::fma(x.second, w.second, V::fma(x.first, w.first, sum));
  }
};

// The tiles of kernel K, whose last step is over V: at most ROWS rows by VECTORS registers.
template <class V, class K, int ROWS, int VECTORS>
struct Tiles {
  static constexpr int kWide = K::width * VECTORS;
  static_assert(kColumns % kWide == 0);

  // Weights that are asked for while a tile is summed: `step` bytes more at each step. Null: those
  // that this tile itself reads next.
  struct Ahead {
    const std::byte* at = nullptr;
    std::size_t step = 0;
  };

  // Columns column .. column + kWide of the layer, as many of them as `wanted`.
  template <int R>
  static void tile(const Linear& linear, const Input& input, std::size_t first, float* y,
                   std::size_t y_stride, int column, int wanted, Ahead ahead) {
    const std::byte* rows[R];
    typename K::Sum sums[R][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      rows[r] = K::row(input, first + static_cast<std::size_t>(r));
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sums[r][v] = K::begin(linear, column + v * K::width);
    }
    const std::byte* weights =
        linear.block(column / kColumns) + static_cast<std::size_t>(column % kColumns) * 4;
    const int steps = linear.steps();
    const auto sum_step = [&](int step) {
      typename K::Weight w[VECTORS];
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) w[v] = K::weight(weights + v * K::width * 4);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename K::Value x = K::value(rows[r], step);
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) sums[r][v] = K::more(x, w[v], sums[r][v]);
      }
      weights += kColumns * 4;
    };
    if (ahead.at) {
      for (int step = 0; step < steps; ++step, ahead.at += ahead.step) {
        V::prefetch_far(ahead.at);
        V::prefetch_far(ahead.at + 64);
        sum_step(step);
      }
    } else {
      for (int step = 0; step < steps; ++step) {
        for (int line = 0; line < kWide * 4; line += 64) V::prefetch(weights + kAhead + line);
        sum_step(step);
      }
    }
    // Nothing is read again after a store that it might have changed, and whole tiles ask nothing.
    const float* scales = input.scale();
    float* to = y + first * y_stride;
    const auto finish = [&](auto&& store) {
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) {
        const typename K::Ends ends = K::ends(linear, column + v * K::width);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const std::size_t row = static_cast<std::size_t>(r);
          store(to + row * y_stride + v * K::width,
                K::end(sums[r][v], ends, scales, first + row), wanted - v * K::width);
        }
      }
    };
    if (wanted == kWide) {
      finish([](float* at, typename V::F out, int) { V::store(at, out); });
    } else {
      finish([](float* at, typename V::F out, int left) {
        if (left >= K::width) {
          V::store(at, out);
        } else if (left > 0) {
          V::store_first(at, out, left);
        }
      });
    }
  }

  // The tile of `count` rows.
  template <int R = ROWS>
  static void tile_of(int count, const Linear& linear, const Input& input, std::size_t first,
                      float* y, std::size_t y_stride, int column, int wanted, Ahead ahead) {
    if constexpr (R > 0) {
      if (count == R) return tile<R>(linear, input, first, y, y_stride, column, wanted, ahead);
      tile_of<R - 1>(count, linear, input, first, y, y_stride, column, wanted, ahead);
    }
  }

  static void apply(const Linear& linear, const Input& input, float* y, std::size_t y_stride,
                    int begin, int end) {
    const std::size_t rows = input.rows();
    const std::size_t tiles = (rows + ROWS - 1) / ROWS;
    // Many tiles read the same weights: they have as many rows each, or one more, as a small tile
    // leaves adders waiting; and meanwhile each asks for its part of the weights that come next.
    const bool many = tiles >= kTilesToShare;
    const std::size_t least = many ? rows / tiles : ROWS;
    const std::size_t larger = many ? rows % tiles : 0;
    const std::size_t part = many ? linear.block_bytes() / tiles : 0;
    const std::size_t part_of_step = many ? kColumns * 4 / tiles : 0;
    for (int column = begin; column < end; column += kWide) {
      const int wanted = end - column < kWide ? end - column : kWide;
      float* to = y + (column - begin);
      const bool share = many && kWide == kColumns && column + kWide < end;
      for (std::size_t number = 0, first = 0; first < rows; ++number) {
        std::size_t count = least + (number < larger ? 1 : 0);
        if (count > rows - first) count = rows - first;
        Ahead ahead;
        if (share) ahead = {linear.block(column / kColumns + 1) + number * part, part_of_step};
        tile_of(static_cast<int>(count), linear, input, first, to, y_stride, column, wanted,
                ahead);
        first += count;
      }
    }
  }

 private:
  static constexpr std::size_t kTilesToShare = 3;
  // Bytes between what is asked for and what is used: weights seldom wait in the nearest cache.
  static constexpr int kAhead = 8192;
};
