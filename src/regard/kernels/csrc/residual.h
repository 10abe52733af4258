// A residual connection, x + dropped y, with a layer norm after it. Included after lanes.h.

// Which elements of a row are dropped: a byte for each from a hash of seed, row and column.
class Dice {
 public:
  Dice(std::uint64_t seed, std::int64_t row) {
    std::uint64_t z = seed + (static_cast<std::uint64_t>(row) + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    low_ = static_cast<unsigned>(z);
    high_ = static_cast<unsigned>(z >> 32);
    unsigned lanes[kLanes];
    for (unsigned i = 0; i < kLanes; ++i) lanes[i] = i * 0x9e3779b9u;
    __builtin_memcpy(&lane_, lanes, sizeof lanes);
  }

  // The bytes of columns 64 k to 64 k + 63: byte b of each for those from 64 k + 16 b on.
  REGARD_INLINE U throws(std::int64_t k) const {
    U h = lane_ + (static_cast<unsigned>(k) * kLanes * 0x9e3779b9u + low_);
    h = (h ^ (h >> 16)) * 0x21f0aaadu;
    h = (h ^ (h >> 15) ^ high_) * 0x735a2d97u;
    return h ^ (h >> 15);
  }

 private:
  unsigned low_, high_;
  U lane_;
};

template <class KEPT>
struct ResidualOf {
  using Number = typename KEPT::Number;

  static void rows(const Residual& call, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = call.columns, from = row * n;
      float* sum_at = call.sum + from;
      const float mean =
          add(call, row, call.x + from, static_cast<const Number*>(call.y) + from, sum_at) /
          static_cast<float>(n);
      if (call.normed != nullptr) normalise(call, row, mean, sum_at, call.normed + from);
    }
  }

  static void slopes(const ResidualSlopes& call, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t from = row * call.columns;
      const float* slopes = call.slopes + from;
      if (call.weight != nullptr) {
        of_norm(call, row, slopes, call.sum + from, call.for_x + from);
        slopes = call.for_x + from;
      }
      drop(call, row, slopes, static_cast<Number*>(call.for_y) + from);
    }
  }

 private:
  // Calls at(i, kept) for every sixteen columns from i on, `kept` what their y is multiplied by.
  template <class At>
  static REGARD_INLINE void each(std::uint64_t seed, std::int64_t row, unsigned dropped,
                                 std::int64_t n, At at) {
    const Dice dice(seed, row);
    const F scale = all(256.0f / static_cast<float>(256 - dropped));
    for (std::int64_t i = 0; i < n; i += 4 * kLanes) {
      U throws = dropped == 0 ? U{} : dice.throws(i / (4 * kLanes));
      for (std::int64_t j = i; j < n && j < i + 4 * kLanes; j += kLanes) {
        at(j, where_at_least(throws & 0xffu, all(dropped), scale, F{}));
        throws = throws >> 8;
      }
    }
  }

  // The sum of the row is returned.
  static float add(const Residual& call, std::int64_t row, const float* x, const Number* y,
                   float* to) {
    F total{};
    each(call.seed, row, call.dropped, call.columns, [&](std::int64_t i, F kept) REGARD_ALWAYS {
      const std::int64_t left = call.columns - i;
      const F added = load_some<Full>(x + i, left) + load_some<KEPT>(y + i, left) * kept;
      store_some<Full>(to + i, added, left);
      total = total + added;
    });
    return sum(total);
  }

  static void normalise(const Residual& call, std::int64_t row, float mean, const float* x,
                        float* to) {
    const std::int64_t n = call.columns;
    F squares{};
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const F away = load_some<Full>(x + i, n - i, mean) - mean;
      squares = squares + away * away;
    }
    const float inverse =
        1 / __builtin_sqrtf(sum(squares) / static_cast<float>(n) + call.epsilon);
    call.mean[row] = mean;
    call.inverse[row] = inverse;
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t left = n - i;
      const F value = (load_some<Full>(x + i, left) - mean) * inverse;
      store_some<Full>(to + i, value * load_some<Full>(call.weight + i, left) +
                                   load_some<Full>(call.bias + i, left), left);
    }
  }

  static void of_norm(const ResidualSlopes& call, std::int64_t row, const float* slopes,
                      const float* x, float* to) {
    const std::int64_t n = call.columns;
    const float mean = call.mean[row], inverse = call.inverse[row];
    F plain{}, along{};
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t left = n - i;
      const F slope = load_some<Full>(slopes + i, left);
      const F value = (load_some<Full>(x + i, left) - mean) * inverse;
      const F weighed = slope * load_some<Full>(call.weight + i, left);
      plain = plain + weighed;
      along = along + weighed * value;
      store_some<Full>(call.for_weight + i,
                       load_some<Full>(call.for_weight + i, left) + slope * value, left);
      store_some<Full>(call.for_bias + i, load_some<Full>(call.for_bias + i, left) + slope, left);
    }
    const float level = sum(plain) / static_cast<float>(n);
    const float tilt = sum(along) / static_cast<float>(n);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t left = n - i;
      const F value = (load_some<Full>(x + i, left) - mean) * inverse;
      const F weighed = load_some<Full>(slopes + i, left) * load_some<Full>(call.weight + i, left);
      store_some<Full>(to + i, (weighed - level - value * tilt) * inverse, left);
    }
  }

  static void drop(const ResidualSlopes& call, std::int64_t row, const float* slopes, Number* to) {
    each(call.seed, row, call.dropped, call.columns, [&](std::int64_t i, F kept) REGARD_ALWAYS {
      const std::int64_t left = call.columns - i;
      store_some<KEPT>(to + i, load_some<Full>(slopes + i, left) * kept, left);
    });
  }
};
