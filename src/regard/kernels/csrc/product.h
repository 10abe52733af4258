// Products of small matrices, by tiles that are kept in registers. Included after lanes.h.

// Sixteen rows with at least sixteen numbers each, of which the first `columns` become rows.
#if REGARD_WIDTH == 16
inline void turn_square(const float* from, std::int64_t from_row, float* to, std::int64_t to_row,
                        std::int64_t columns) {
  __m512 row[kLanes], pair[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) row[i] = _mm512_loadu_ps(from + i * from_row);
  // Two rows, then four: in each quarter of register 4g + c is a column, of rows 4g to 4g + 3.
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    pair[i] = _mm512_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm512_unpackhi_ps(row[i], row[i + 1]);
  }
#pragma GCC unroll 4
  for (int g = 0; g < kLanes; g += 4) {
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      const __m512d low = _mm512_castps_pd(pair[g + c]), high = _mm512_castps_pd(pair[g + c + 2]);
      row[g + 2 * c] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      row[g + 2 * c + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
  // Then quarters change places: the even ones and the odd ones of two registers, and once more.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 even = _mm512_shuffle_f32x4(row[c], row[c + 4], 0x88);
    const __m512 odd = _mm512_shuffle_f32x4(row[c], row[c + 4], 0xdd);
    const __m512 more_even = _mm512_shuffle_f32x4(row[c + 8], row[c + 12], 0x88);
    const __m512 more_odd = _mm512_shuffle_f32x4(row[c + 8], row[c + 12], 0xdd);
    pair[c] = _mm512_shuffle_f32x4(even, more_even, 0x88);
    pair[c + 4] = _mm512_shuffle_f32x4(odd, more_odd, 0x88);
    pair[c + 8] = _mm512_shuffle_f32x4(even, more_even, 0xdd);
    pair[c + 12] = _mm512_shuffle_f32x4(odd, more_odd, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i < columns) _mm512_storeu_ps(to + i * to_row, pair[i]);
  }
}
#else
inline void turn_square(const float* from, std::int64_t from_row, float* to, std::int64_t to_row,
                        std::int64_t columns) {
  for (int i = 0; i < kLanes && i < columns; ++i) {
    for (int j = 0; j < kLanes; ++j) to[i * to_row + j] = from[j * from_row + i];
  }
}
#endif

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
