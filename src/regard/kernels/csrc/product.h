// Products of small matrices, by tiles that are kept in registers. Included after lanes.h.

// A tile is so many rows by so many sixteens of columns, as registers allow.
constexpr int kTileRows = 6, kTileGroups = REGARD_WIDTH == 16 ? 4 : 1;

// The element (m, k) of the left matrix is at[m * row + k * step].
struct Left {
  const float* at;
  std::int64_t row, step;
};

template <int ROWS, int GROUPS>
void tile(std::int64_t depth, Left a, const float* b, std::int64_t b_row, float* c,
          std::int64_t c_row, bool add) {
  constexpr int kWide = GROUPS * kParts;
  Part sums[ROWS][kWide];
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int w = 0; w < kWide; ++w) {
      sums[r][w] = Part{};
      if (add) __builtin_memcpy(&sums[r][w], c + r * c_row + w * REGARD_WIDTH, sizeof(Part));
    }
  }
  const float* left = a.at;
  for (std::int64_t k = 0; k < depth; ++k) {
    Part right[kWide];
#pragma GCC unroll 8
    for (int w = 0; w < kWide; ++w) {
      __builtin_memcpy(&right[w], b + w * REGARD_WIDTH, sizeof(Part));
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
      const float factor = left[r * a.row];
#pragma GCC unroll 8
      for (int w = 0; w < kWide; ++w) sums[r][w] += factor * right[w];
    }
    left += a.step;
    b += b_row;
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int w = 0; w < kWide; ++w) {
      __builtin_memcpy(c + r * c_row + w * REGARD_WIDTH, &sums[r][w], sizeof(Part));
    }
  }
}

using Tile = void (*)(std::int64_t, Left, const float*, std::int64_t, float*, std::int64_t, bool);

template <int GROUPS>
constexpr Tile kTilesOf[kTileRows] = {tile<1, GROUPS>, tile<2, GROUPS>, tile<3, GROUPS>,
                                      tile<4, GROUPS>, tile<5, GROUPS>, tile<6, GROUPS>};

#if REGARD_WIDTH == 16
constexpr const Tile* kTiles[kTileGroups] = {kTilesOf<1>, kTilesOf<2>, kTilesOf<3>, kTilesOf<4>};
#else
constexpr const Tile* kTiles[kTileGroups] = {kTilesOf<1>};
#endif

// c = a b, or c += a b, of so many rows and sixteens of columns.
inline void product(std::int64_t rows, std::int64_t groups, std::int64_t depth, Left a,
                    const float* b, std::int64_t b_row, float* c, std::int64_t c_row, bool add) {
  for (std::int64_t g = 0; g < groups; g += kTileGroups) {
    const std::int64_t wide = groups - g < kTileGroups ? groups - g : kTileGroups;
    for (std::int64_t r = 0; r < rows; r += kTileRows) {
      const std::int64_t high = rows - r < kTileRows ? rows - r : kTileRows;
      kTiles[wide - 1][high - 1](depth, {a.at + r * a.row, a.row, a.step}, b + g * kLanes, b_row,
                                 c + r * c_row + g * kLanes, c_row, add);
    }
  }
}
