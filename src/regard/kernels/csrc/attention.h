// Attention of blocks of queries to the keys that each may see, and its slopes. After product.h.
//
// Keys are dealt with in steps, whose scores stay in the cache: no matrix of all scores is made.
// In the backward pass they are computed anew from the logarithm of each query's sum. What is read
// and written may be bfloat16; all between is float32.

// Groups of sixteen keys that lie within one panel of keys.
struct Piece {
  std::int64_t key, groups;
};

struct AttentionOf {
  static constexpr std::int64_t kPanel = kAttentionPanel, kBlock = kAttentionBlock;
  // With a step as long as a power of two, the rows of scores would share too few lines of a cache.
  static constexpr std::int64_t kStep = kAttentionStep, kScores = kStep + kLanes;
  static constexpr std::int64_t kPieces = kStep / kLanes;

  static void rows(const Attention& call, std::int64_t begin, std::int64_t end, float* scratch) {
    for (std::int64_t job = begin; job < end; ++job) Forward(call, job, scratch).run();
  }

  static void slopes(const Attention& call, std::int64_t begin, std::int64_t end, float* scratch) {
    for (std::int64_t job = begin; job < end; ++job) Backward(call, job, scratch).run();
  }

 private:
  static std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
  static std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  // What both directions have: a head of keys and values of one row of the batch.
  struct Job {
    const Attention& call;
    std::int64_t row, head, key_width, value_width, used_keys, padded_keys;
    float* free;
    float check = 0;  // stays 0 if all keys and values are finite

    Job(const Attention& of, std::int64_t job, float* scratch)
        : call(of),
          row(job / of.heads),
          head(job % of.heads),
          key_width(up(of.width, kLanes)),
          value_width(up(of.value_width, kLanes)),
          used_keys(up(of.keys, kLanes)),
          padded_keys(up(of.keys, kPanel)),
          free(scratch) {}

    float* take(std::int64_t numbers) {
      float* const taken = free;
      free += up(numbers, kLanes);
      return taken;
    }

    // Calls work(Full{}) or work(Half{}), as the vectors lie in memory.
    template <class Work>
    REGARD_ALWAYS void as_kept(Work&& work) const {
      if (call.narrow) return work(Half{});
      work(Full{});
    }

    template <class KEPT>
    typename KEPT::Number* at(const Places& places, std::int64_t its_head,
                              std::int64_t place) const {
      return static_cast<typename KEPT::Number*>(places.at) + row * places.row +
             its_head * places.head + place * places.place;
    }

    // How far it is to the vectors that are dealt with after these: of the next head, or row.
    std::int64_t onward(const Places& places, std::int64_t its_head) const {
      return its_head + 1 < places.heads ? places.head : places.row - its_head * places.head;
    }

    // Asks for a vector: they are apart by more than the processor looks ahead.
    template <class KEPT, int WRITE>
    static REGARD_ALWAYS void fetch(const typename KEPT::Number* place, std::int64_t width) {
      constexpr std::int64_t kLine = 64 / sizeof(typename KEPT::Number);
      for (std::int64_t j = 0; j < width; j += kLine) __builtin_prefetch(place + j, WRITE);
    }

    // Some places of one head side by side, each times a factor, with zeros up to `wide`.
    void gather(const Places& from, std::int64_t its_head, std::int64_t first, std::int64_t count,
                std::int64_t width, std::int64_t wide, float by, float* to) {
      F off{};
      const std::int64_t next = onward(from, its_head);
      as_kept([&](auto kept) REGARD_ALWAYS {
        using KEPT = decltype(kept);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto* const place = at<KEPT>(from, its_head, first + i);
          fetch<KEPT, 0>(place + next, width);
          for (std::int64_t j = 0; j < wide; j += kLanes) {
            const F value = load_some<KEPT>(place + j, width - j) * by;
            off = off + value * 0.0f;
            Full::store(to + i * wide + j, value);
          }
        }
      });
      check += sum(off);
    }

    // Some vectors, each times a factor, to where they belong.
    void put(const float* from, const Places& to, std::int64_t its_head, std::int64_t first,
             std::int64_t count, std::int64_t width, std::int64_t wide, const float* by) const {
      const std::int64_t next = onward(to, its_head);
      as_kept([&](auto kept) REGARD_ALWAYS {
        using KEPT = decltype(kept);
        for (std::int64_t i = 0; i < count; ++i) {
          auto* const place = at<KEPT>(to, its_head, first + i);
          fetch<KEPT, 1>(place + next, width);
          for (std::int64_t j = 0; j < width; j += kLanes) {
            store_some<KEPT>(place + j, Full::load(from + i * wide + j) * (by ? by[i] : 1), width - j);
          }
        }
      });
    }

    void gather_all(const Places& from, std::int64_t width, std::int64_t wide, float* to) {
      gather(from, head, 0, call.keys, width, wide, 1, to);
      for (std::int64_t i = call.keys * wide; i < used_keys * wide; ++i) to[i] = 0;
    }

    // Panels of keys with the numbers of each one below the other: width x kPanel.
    void turn(const float* places, std::int64_t width, std::int64_t wide, float* to) {
      for (std::int64_t key = 0; key < used_keys; key += kLanes) {
        float* const into = to + key / kPanel * kPanel * width + key % kPanel;
        for (std::int64_t e = 0; e < width; e += kLanes) {
          turn_square(places + key * wide + e, wide, into + e * kPanel, kPanel, width - e);
        }
      }
    }

    const int* seen(std::int64_t query) const {
      return call.seen + row * call.seen_row + 3 * query;
    }

    template <class Work>
    void each_block(Work&& work) const {
      std::int64_t rows = call.lead > 0 ? call.lead : call.block;
      for (std::int64_t number = 0, first = 0; first < call.queries; ++number) {
        rows = least(rows, call.queries - first);
        work(number, first, rows);
        first += rows;
        rows = call.block;
      }
    }

    // Calls work(pieces, how many, columns) for each step of the keys that a block looks at.
    template <class Work>
    void each_step(std::int64_t block, Work&& work) const {
      Piece pieces[kPieces];
      std::int64_t count = 0, columns = 0, done = 0;
      const int* stretch = call.stretch + row * call.stretch_row + 2 * block * call.stretches;
      for (std::int64_t s = 0; s < call.stretches; ++s, stretch += 2) {
        if (stretch[0] >= stretch[1]) continue;
        std::int64_t from = most(stretch[0] / kLanes * kLanes, done);
        const std::int64_t to = least(up(stretch[1], kLanes), used_keys);
        for (; from < to; from = done) {
          done = least(to, (from / kPanel + 1) * kPanel);
          if (columns + (done - from) > kStep) {
            work(pieces, count, columns);
            count = columns = 0;
          }
          pieces[count++] = {from, (done - from) / kLanes};
          columns += done - from;
        }
      }
      if (count > 0) work(pieces, count, columns);
    }

    // Products of `rows` left vectors with the keys of the pieces, side by side.
    void scores(const float* left, std::int64_t left_row, std::int64_t width, std::int64_t rows,
                const float* turned, const Piece* pieces, std::int64_t count, float* to) const {
      for (std::int64_t p = 0; p < count; ++p) {
        const std::int64_t panel = pieces[p].key / kPanel * kPanel;
        product(rows, pieces[p].groups, width, {left, left_row, 1},
                turned + panel * width + (pieces[p].key - panel), kPanel, to, kScores, false);
        to += pieces[p].groups * kLanes;
      }
    }

    // Minus infinity where a query of the block may not look.
    void hide(std::int64_t first, std::int64_t rows, const Piece* pieces, std::int64_t count,
              float* scores) const {
      std::int64_t latest = 0, earliest = call.keys;  // all see what is between
      for (std::int64_t i = 0; i < rows; ++i) {
        const int* const query = seen(first + i);
        latest = most(latest, query[0]);
        earliest = least(earliest, query[1]);
      }
      for (std::int64_t p = 0; p < count; ++p) {
        const std::int64_t key = pieces[p].key, groups = pieces[p].groups;
        if (key < latest || key + groups * kLanes > earliest) {
          for (std::int64_t i = 0; i < rows; ++i) {
            hide_of(seen(first + i), key, groups, scores + i * kScores);
          }
        }
        scores += groups * kLanes;
      }
    }

    void hide_of(const int* query, std::int64_t key, std::int64_t groups, float* scores) const {
      const std::int64_t from = most(query[0], 0), to = least(query[1], call.keys);
      const unsigned start = static_cast<unsigned>(from);
      const unsigned length = static_cast<unsigned>(most(to - from, 0));
      const unsigned front = static_cast<unsigned>(most(least(query[2], call.keys), 0));
      unsigned lanes[kLanes];
      for (unsigned i = 0; i < kLanes; ++i) lanes[i] = static_cast<unsigned>(key) + i;
      U place;
      __builtin_memcpy(&place, lanes, sizeof place);
      const F hidden = all(-__builtin_inff());
      for (std::int64_t g = 0; g < groups; ++g) {
        const F score = Full::load(scores + g * kLanes);
        const F near = where_at_least(place - start, all(length), hidden, score);
        Full::store(scores + g * kLanes, where_at_least(place, all(front), near, score));
        place = place + static_cast<unsigned>(kLanes);
      }
    }
  };

  struct Forward : Job {
    float *turned, *values, *left, *scored, *sums;
    float highest[kBlock], total[kBlock];

    Forward(const Attention& of, std::int64_t job, float* scratch) : Job(of, job, scratch) {
      turned = take(padded_keys * of.width);
      values = take(padded_keys * most(key_width, value_width));
      left = take(kBlock * key_width);
      scored = take(kBlock * kScores);
      sums = take(kBlock * value_width);
    }

    void run() {
      gather_all(call.key, call.width, key_width, values);
      turn(values, call.width, key_width, turned);
      gather_all(call.value, call.value_width, value_width, values);
      call.flaws[row * call.heads + head] = check;
      for (std::int64_t s = 0; s < call.sharing; ++s) {
        each_block([&](std::int64_t number, std::int64_t first, std::int64_t rows) {
          block(head * call.sharing + s, number, first, rows);
        });
      }
    }

    void block(std::int64_t query_head, std::int64_t number, std::int64_t first,
               std::int64_t rows) {
      gather(call.query, query_head, first, rows, call.width, key_width, call.scale, left);
      for (std::int64_t i = 0; i < rows; ++i) {
        highest[i] = -__builtin_inff();
        total[i] = 0;
      }
      for (std::int64_t i = 0; i < rows * value_width; ++i) sums[i] = 0;
      each_step(number, [&](const Piece* pieces, std::int64_t count, std::int64_t columns) {
        scores(left, key_width, call.width, rows, turned, pieces, count, scored);
        hide(first, rows, pieces, count, scored);
        for (std::int64_t i = 0; i < rows; ++i) exponentials(i, columns);
        const float* weights = scored;
        for (std::int64_t p = 0; p < count; ++p) {
          product(rows, value_width / kLanes, pieces[p].groups * kLanes, {weights, kScores, 1},
                  values + pieces[p].key * value_width, value_width, sums, value_width, true);
          weights += pieces[p].groups * kLanes;
        }
      });
      finish(query_head, first, rows);
    }

    void exponentials(std::int64_t i, std::int64_t columns) {
      float* const row_at = scored + i * kScores;
      F above = all(-__builtin_inff());
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        above = larger(Full::load(row_at + j), above);
      }
      const float high = largest(above), before = highest[i];
      const float now = high > before ? high : before;
      if (now == -__builtin_inff() && total[i] == 0) {  // none is seen yet, or none is a number
        F any{};
        for (std::int64_t j = 0; j < columns; j += kLanes) {
          const F score = Full::load(row_at + j);
          const F weight = where_less(score, F{}, F{}, score);
          any = any + weight;
          Full::store(row_at + j, weight);
        }
        total[i] += sum(any);
        return;
      }
      F added{};
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        const F weight = exp(Full::load(row_at + j) - now);
        added = added + weight;
        Full::store(row_at + j, weight);
      }
      highest[i] = now;
      if (now == before) {
        total[i] += sum(added);
        return;
      }
      const float by = exp(all(before - now)).part[0][0];
      total[i] = total[i] * by + sum(added);
      for (std::int64_t j = 0; j < value_width; j += kLanes) {
        Full::store(sums + i * value_width + j, Full::load(sums + i * value_width + j) * by);
      }
    }

    void finish(std::int64_t query_head, std::int64_t first, std::int64_t rows) {
      float by[kBlock];
      for (std::int64_t i = 0; i < rows; ++i) {
        const bool none = total[i] == 0;
        by[i] = none ? 0 : 1 / total[i];
        level(query_head)[first + i] =
            none ? __builtin_inff() : highest[i] + __builtin_logf(total[i]);
      }
      put(sums, call.out, query_head, first, rows, call.value_width, value_width, by);
    }

    float* level(std::int64_t query_head) const {
      return call.level + (row * call.heads * call.sharing + query_head) * call.queries;
    }
  };

  struct Backward : Job {
    float *keys, *turned, *values, *for_keys, *for_values, *left, *slope, *for_left, *scored,
        *other;
    float along[kBlock];

    Backward(const Attention& of, std::int64_t job, float* scratch) : Job(of, job, scratch) {
      keys = take(padded_keys * key_width);
      turned = take(padded_keys * of.width);
      values = take(padded_keys * of.value_width);
      for_keys = take(padded_keys * key_width);
      for_values = take(padded_keys * value_width);
      left = take(kBlock * key_width);
      slope = take(kBlock * value_width);
      for_left = take(kBlock * key_width);
      scored = take(kBlock * kScores);
      other = take(kBlock * kScores);
    }

    void run() {
      gather_all(call.value, call.value_width, value_width, for_values);
      turn(for_values, call.value_width, value_width, values);
      gather_all(call.key, call.width, key_width, keys);
      turn(keys, call.width, key_width, turned);
      for (std::int64_t i = 0; i < used_keys * key_width; ++i) for_keys[i] = 0;
      for (std::int64_t i = 0; i < used_keys * value_width; ++i) for_values[i] = 0;
      for (std::int64_t s = 0; s < call.sharing; ++s) {
        each_block([&](std::int64_t number, std::int64_t first, std::int64_t rows) {
          block(head * call.sharing + s, number, first, rows);
        });
      }
      put(for_keys, call.for_key, head, 0, call.keys, call.width, key_width, nullptr);
      put(for_values, call.for_value, head, 0, call.keys, call.value_width, value_width, nullptr);
    }

    void block(std::int64_t query_head, std::int64_t number, std::int64_t first,
               std::int64_t rows) {
      gather(call.query, query_head, first, rows, call.width, key_width, call.scale, left);
      gather(call.slope, query_head, first, rows, call.value_width, value_width, 1, slope);
      std::int64_t steps = 0;
      each_step(number, [&](const Piece*, std::int64_t, std::int64_t) { ++steps; });
      if (steps > 1) meet(query_head, first, rows);
      for (std::int64_t i = 0; i < rows * key_width; ++i) for_left[i] = 0;
      const float* const level =
          call.level + (row * call.heads * call.sharing + query_head) * call.queries + first;
      each_step(number, [&](const Piece* pieces, std::int64_t count, std::int64_t columns) {
        scores(left, key_width, call.width, rows, turned, pieces, count, scored);
        hide(first, rows, pieces, count, scored);
        scores(slope, value_width, call.value_width, rows, values, pieces, count, other);
        for (std::int64_t i = 0; i < rows; ++i) slopes_of_scores(i, columns, level[i], steps == 1);
        std::int64_t column = 0;
        for (std::int64_t p = 0; p < count; ++p) {
          const std::int64_t key = pieces[p].key, wide = pieces[p].groups * kLanes;
          product(wide, value_width / kLanes, rows, {scored + column, 1, kScores}, slope,
                  value_width, for_values + key * value_width, value_width, true);
          product(wide, key_width / kLanes, rows, {other + column, 1, kScores}, left, key_width,
                  for_keys + key * key_width, key_width, true);
          product(rows, key_width / kLanes, wide, {other + column, kScores, 1},
                  keys + key * key_width, key_width, for_left, key_width, true);
          column += wide;
        }
      });
      float by[kBlock];
      for (std::int64_t i = 0; i < rows; ++i) by[i] = call.scale;
      put(for_left, call.for_query, query_head, first, rows, call.width, key_width, by);
    }

    // Weights over scores, and slopes of scores over those of weights. What a query's slopes and
    // weights make together comes from all its keys, if they are here, and else from `meet`.
    void slopes_of_scores(std::int64_t i, std::int64_t columns, float level, bool all_here) {
      float *const weights = scored + i * kScores, *const slopes = other + i * kScores;
      F total{};
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        const F weight = exp(Full::load(weights + j) - level);
        Full::store(weights + j, weight);
        total = total + weight * Full::load(slopes + j);
      }
      if (all_here) along[i] = sum(total);
      for (std::int64_t j = 0; j < columns; j += kLanes) {
        Full::store(slopes + j, Full::load(weights + j) * (Full::load(slopes + j) - along[i]));
      }
    }

    // The same from each query's output and its slope.
    void meet(std::int64_t query_head, std::int64_t first, std::int64_t rows) {
      as_kept([&](auto kept) REGARD_ALWAYS {
        using KEPT = decltype(kept);
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto* const out = at<KEPT>(call.out, query_head, first + i);
          F total{};
          for (std::int64_t j = 0; j < call.value_width; j += kLanes) {
            total = total + load_some<KEPT>(out + j, call.value_width - j) *
                                Full::load(slope + i * value_width + j);
          }
          along[i] = sum(total);
        }
      });
    }
  };
};
