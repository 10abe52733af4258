// The cross-entropy of a row of logits, its slopes written over them. Included after lanes.h.

template <class KEPT>
struct LossOf {
  using Number = typename KEPT::Number;

  static void rows(const Loss& loss, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      Number* logits = static_cast<Number*>(loss.logits) + row * loss.columns;
      one(loss, logits, row);
    }
  }

 private:
  // Sums of floats go into a double this often: a vocabulary is long.
  static constexpr std::int64_t kStretch = 128 * kLanes;
  // So many powers of a row are kept from its sum for its slopes; of later ones they are taken anew.
  static constexpr std::int64_t kKept = 1 << 15;

  static REGARD_INLINE float at(const Number* logits, std::int64_t column) {
    return load_first<KEPT>(logits + column, 1).part[0][0];
  }

  static void one(const Loss& loss, Number* logits, std::int64_t row) {
    const std::int64_t n = loss.columns, target = loss.targets[row];
    const float given = at(logits, target);
    const float most = maximum(logits, n);
    float kept[kKept];
    const double exponentials = sum_of(logits, n, [&](F x, std::int64_t i) REGARD_ALWAYS {
      const F power = exp(x - most);
      if (i < kKept) Full::store(kept + i, power);
      return power;
    });
    const double logarithm = __builtin_log(exponentials) + most;
    const double nll = logarithm - given;
    loss.unsmoothed[row] = nll;
    loss.smoothed[row] = nll;
    if (loss.smoothing != 0) {
      const double total = sum_of(logits, n, [](F x, std::int64_t) REGARD_ALWAYS { return x; });
      const double mean = total / static_cast<double>(n);
      loss.smoothed[row] = (1 - static_cast<double>(loss.smoothing)) * nll +
                           static_cast<double>(loss.smoothing) * (logarithm - mean);
    }
    if (!loss.write) return;
    const float by = static_cast<float>(1 / exponentials);
    const float less = loss.smoothing / static_cast<float>(n);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      // What stands in for missing ones is not stored.
      const bool is_kept = i < kKept;
      const F power =
          is_kept ? Full::load(kept + i) : exp(load_some<KEPT>(logits + i, n - i) - most);
      store_some<KEPT>(logits + i, power * by - less, n - i);
    }
    const F own = exp(all(given) - most) * by - less - (1 - loss.smoothing);
    store_first<KEPT>(logits + target, own, 1);
  }

  static float maximum(const Number* logits, std::int64_t n) {
    const float lowest = -__builtin_inff();
    F most[2] = {all(lowest), all(lowest)};
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      most[0] = larger(KEPT::load(logits + i), most[0]);
      most[1] = larger(KEPT::load(logits + i + kLanes), most[1]);
    }
    for (; i < n; i += kLanes) {
      most[0] = larger(load_some<KEPT>(logits + i, n - i, lowest), most[0]);
    }
    return largest(larger(most[0], most[1]));
  }

  template <class Of>
  static REGARD_INLINE double sum_of(const Number* logits, std::int64_t n, Of of) {
    double total = 0;
    const std::int64_t whole = n / kLanes * kLanes;
    for (std::int64_t start = 0; start < whole; start += kStretch) {
      const std::int64_t end = start + kStretch < whole ? start + kStretch : whole;
      F part[2] = {};
      std::int64_t i = start;
      for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
        part[0] = part[0] + of(KEPT::load(logits + i), i);
        part[1] = part[1] + of(KEPT::load(logits + i + kLanes), i + kLanes);
      }
      if (i < end) part[0] = part[0] + of(KEPT::load(logits + i), i);
      total += static_cast<double>(sum(part[0] + part[1]));
    }
    if (whole < n) {
      const F last = of(load_first<KEPT>(logits + whole, static_cast<int>(n - whole)), whole);
      float lanes[kLanes];
      Full::store(lanes, last);
      for (std::int64_t i = 0; i < n - whole; ++i) total += static_cast<double>(lanes[i]);
    }
    return total;
  }
};
