// A residual connection, x + dropped y, with a layer norm after it, or that norm alone. Included
// after lanes.h.

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
      const float* added = call.x + from;
      float total;
      if (call.y == nullptr) {
        total = summed(n, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
          return load_some<Full>(added + i, left);
        });
      } else {
        total = add(call, row, added, static_cast<const Number*>(call.y) + from, call.sum + from);
        added = call.sum + from;
      }
      if (call.weight != nullptr) normalise(call, row, total / static_cast<float>(n), added);
    }
  }

  static void slopes(const ResidualSlopes& call, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t from = row * call.columns;
      const float* slopes = past(call.slopes, from);
      if (call.weight != nullptr) {
        of_norm(call, row);
        slopes = call.for_x + from;
      }
      if (call.for_y != nullptr) drop(call, row, slopes, static_cast<Number*>(call.for_y) + from);
    }
  }

 private:
  // So many numbers on, or still nowhere.
  template <class T>
  static REGARD_INLINE T* past(T* start, std::int64_t from) {
    return start == nullptr ? nullptr : start + from;
  }

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

  // Calls at(i, left) for every sixteen columns, of which so many are left: as a constant while
  // there are enough, so that the loop has no case of fewer in it.
  template <class At>
  static REGARD_INLINE void over(std::int64_t n, At at) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) at(i, std::int64_t{kLanes});
    if (i < n) at(i, n - i);
  }

  // The sum of at(i, left), in two turns that need not wait for each other.
  template <class At>
  static REGARD_INLINE float summed(std::int64_t n, At at) {
    F even{}, odd{};
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      even = even + at(i, std::int64_t{kLanes});
      odd = odd + at(i + kLanes, std::int64_t{kLanes});
    }
    for (; i < n; i += kLanes) even = even + at(i, n - i);
    return sum(even + odd);
  }

  static void normalise(const Residual& call, std::int64_t row, float mean, const float* x) {
    const std::int64_t n = call.columns;
    const float *weight = call.weight, *bias = call.bias;
    float* const wide = past(call.normed, row * n);
    unsigned short* const narrow = past(call.narrow, row * n);
    const float squares = summed(n, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
      const F away = load_some<Full>(x + i, left, mean) - mean;
      return away * away;
    });
    const float inverse = 1 / __builtin_sqrtf(squares / static_cast<float>(n) + call.epsilon);
    call.mean[row] = mean;
    call.inverse[row] = inverse;
    over(n, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
      const F value = (load_some<Full>(x + i, left) - mean) * inverse;
      const F normed =
          value * load_some<Full>(weight + i, left) + load_some<Full>(bias + i, left);
      if (wide != nullptr) store_some<Full>(wide + i, normed, left);
      if (narrow != nullptr) store_some<Half>(narrow + i, normed, left);
    });
  }

  static void of_norm(const ResidualSlopes& call, std::int64_t row) {
    const std::int64_t from = row * call.columns;
    const float* wide = past(call.normed, from);
    const unsigned short* narrow = past(call.narrow, from);
    if (narrow == nullptr) {
      of_norm(call, row, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
        return load_some<Full>(wide + i, left);
      });
    } else if (wide == nullptr) {
      of_norm(call, row, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
        return load_some<Half>(narrow + i, left);
      });
    } else {
      of_norm(call, row, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
        return load_some<Full>(wide + i, left) + load_some<Half>(narrow + i, left);
      });
    }
  }

  // slope(i, left) are those of the norm from column i on.
  template <class Slope>
  static REGARD_INLINE void of_norm(const ResidualSlopes& call, std::int64_t row, Slope slope) {
    const std::int64_t n = call.columns, from = row * n;
    const float *x = call.sum + from, *weight = call.weight, *beside = past(call.slopes, from);
    float *to = call.for_x + from, *for_weight = call.for_weight, *for_bias = call.for_bias;
    const float mean = call.mean[row], inverse = call.inverse[row];
    F plain{}, along{};
    over(n, [&](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
      const F here = slope(i, left);
      const F value = (load_some<Full>(x + i, left) - mean) * inverse;
      const F weighed = here * load_some<Full>(weight + i, left);
      plain = plain + weighed;
      along = along + weighed * value;
      store_some<Full>(for_weight + i, load_some<Full>(for_weight + i, left) + here * value, left);
      store_some<Full>(for_bias + i, load_some<Full>(for_bias + i, left) + here, left);
    });
    const float level = sum(plain) / static_cast<float>(n);
    const float tilt = sum(along) / static_cast<float>(n);
    over(n, [=](std::int64_t i, std::int64_t left) REGARD_ALWAYS {
      const F value = (load_some<Full>(x + i, left) - mean) * inverse;
      const F weighed = slope(i, left) * load_some<Full>(weight + i, left);
      F made = (weighed - level - value * tilt) * inverse;
      if (beside != nullptr) made = made + load_some<Full>(beside + i, left);
      store_some<Full>(to + i, made, left);
    });
  }

  static void drop(const ResidualSlopes& call, std::int64_t row, const float* slopes, Number* to) {
    each(call.seed, row, call.dropped, call.columns, [&](std::int64_t i, F kept) REGARD_ALWAYS {
      const std::int64_t left = call.columns - i;
      store_some<KEPT>(to + i, load_some<Full>(slopes + i, left) * kept, left);
    });
  }
};
